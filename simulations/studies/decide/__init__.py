"""`fedhist decide`: from a file to a decision, under every level of trust."""
