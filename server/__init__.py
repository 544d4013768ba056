"""What learns: scripts, estimators, central noise, predictions, the Flower strategy."""
