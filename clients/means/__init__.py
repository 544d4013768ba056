"""Hashed votes for the coordinates of a sparse mean."""
