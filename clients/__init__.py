"""What runs where the data are: contribution bounding, randomizers, the guard."""
