"""A run: the session that drives a script, the curator of noise, the journal."""
