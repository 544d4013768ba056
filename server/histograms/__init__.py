"""Histograms of total counts with a trusted server: bounded, adaptive, unbounded, Poisson."""
