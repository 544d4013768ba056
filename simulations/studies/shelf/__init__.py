"""What lies under results/: a list of it, and what differs between two."""
