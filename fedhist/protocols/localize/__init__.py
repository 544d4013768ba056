"""Vote for a window, then refine inside it: script, protocol and queries by fold."""
