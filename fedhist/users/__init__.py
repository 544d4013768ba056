"""Whose data it is: keys, batches, frames, cohorts, folds, and each user's private streams."""
