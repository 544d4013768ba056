"""Shares of items of a public domain, without a trusted server."""
