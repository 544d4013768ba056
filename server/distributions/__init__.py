"""Discrete distributions: by selection, counts and presence, and without a trusted server."""
