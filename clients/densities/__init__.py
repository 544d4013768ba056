"""Questions about densities on [0, 1]."""
