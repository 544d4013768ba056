"""From votes to windows and supports."""
