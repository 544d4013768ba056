"""Questions about means under a trusted server."""
