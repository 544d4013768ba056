"""Simulated populations, runtimes and experiments."""
