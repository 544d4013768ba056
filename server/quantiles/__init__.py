"""Quantiles of real samples, with a trusted server and without one."""
