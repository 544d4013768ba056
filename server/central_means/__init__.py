"""Means with a trusted server: how much noise, which steps, from public numbers."""
