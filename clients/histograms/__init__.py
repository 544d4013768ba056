"""Questions about total counts of items, and about how many items users have."""
