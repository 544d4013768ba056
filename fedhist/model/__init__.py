"""What an author writes: queries and their parts, protocols, losses, the registry of names."""
