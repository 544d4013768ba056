"""Popular items that nobody listed, without a trusted server."""
