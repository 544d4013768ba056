"""Means without a trusted server: scalar, l-infinity, l2, sparse, and selection over a cover."""
