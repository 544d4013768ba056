"""Densities on [0, 1], with and without a trusted server."""
