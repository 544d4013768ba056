"""Convex optimization: linear and logistic regression in many rounds."""
