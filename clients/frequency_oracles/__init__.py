"""One item of each user, reported by a frequency oracle."""
