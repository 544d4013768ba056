"""What is promised and what it costs: guarantees, releases, ledger, noise sources, samplers."""
