"""Means and distributions in high dimension from few users, with a trusted server."""
