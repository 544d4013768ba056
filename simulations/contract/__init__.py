"""The contract of protocols: laws that hold for all of them, ours and anybody's."""
