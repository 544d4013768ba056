"""Questions about items that nobody listed, and their codes."""
