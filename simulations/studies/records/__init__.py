"""What a study keeps of each run, and its summary."""
