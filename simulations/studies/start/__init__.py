"""A study of one's own to start from: a file of settings for a file of data."""
