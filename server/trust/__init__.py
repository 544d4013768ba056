"""Levels of trust: noise of the server, of nodes, and of a shuffler."""
