"""Studies: many runs on many settings, kept in one file: sweeps, comparisons, plans, reports."""
