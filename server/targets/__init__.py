"""What protocols estimate: domains, means, sample sizes, lower bounds."""
