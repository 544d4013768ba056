"""`fedhist compare`: protocols ranked on the same users."""
