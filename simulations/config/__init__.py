"""Configurations: run files, their values and the files that come with fedhist."""
