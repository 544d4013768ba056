"""Hypothesis selection for binomials and projections to the simplex."""
