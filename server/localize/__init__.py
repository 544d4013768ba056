"""Vote for a window, then refine inside it: script, stages and their choice."""
