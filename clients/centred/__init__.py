"""Reports of vectors around an estimate from earlier users, and votes for their radius."""
