"""What families share: domains, targets, sample sizes, item encodings, errors of noise."""
