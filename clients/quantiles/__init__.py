"""Questions about ranks of real samples."""
