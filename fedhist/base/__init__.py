"""What everything stands on: errors, checks, whole files, bisection, public hashing."""
