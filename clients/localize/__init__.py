"""Votes for a window, and reports inside it, by fold."""
