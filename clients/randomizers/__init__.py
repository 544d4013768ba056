"""Local randomizers, vectorised over users."""
