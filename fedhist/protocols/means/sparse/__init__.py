"""Sparse means: hashed votes choose the coordinates, reports refine them."""
