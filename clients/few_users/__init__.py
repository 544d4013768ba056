"""Questions about means of few users in high dimension."""
