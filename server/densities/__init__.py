"""Series estimators of densities."""
