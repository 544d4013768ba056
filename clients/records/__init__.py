"""What a report says of a record: rows, functionals, gradients."""
