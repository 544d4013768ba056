"""Distributions of users with differing numbers of samples."""
