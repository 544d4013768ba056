"""Reports of vectors around an estimate from earlier users, inside a radius that others voted."""
