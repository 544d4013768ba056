"""The few-users mean: plans, the exact ball sampler, interpolation, many users."""
