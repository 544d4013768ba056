"""What the server's half of quantiles computes."""
