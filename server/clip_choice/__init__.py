"""Rules that choose a clip privately, and what their choice costs."""
