"""What runs where messages arrive: estimators, noise, the Flower strategy."""
