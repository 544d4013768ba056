"""Clipped gradients of users, and the risks that they belong to."""
