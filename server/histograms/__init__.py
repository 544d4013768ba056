"""Sensitivities of clipped histograms and the search for a clip."""
