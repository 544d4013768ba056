"""`fedhist sweep`: grids of runs in one file."""
