"""Contribution bounding: clip, sample, count, before anything leaves the user."""
