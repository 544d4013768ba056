"""One item of each user, reported without a trusted server."""
