"""What everybody does today: one report a user, and privacy of single items."""
