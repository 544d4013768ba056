"""Benchmarks: ratios measured in one run, printed with their targets (``make bench``)."""
