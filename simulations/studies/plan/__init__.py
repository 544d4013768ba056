"""`fedhist plan`: users, samples or epsilon for a target error."""
