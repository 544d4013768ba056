"""A run: the session that drives a script, the curator, the journal, the codec of digests."""
