"""Private gradient descent: plans and steps."""
