"""What touches a user's record: questions, their answers, bounding, randomizers, the guard."""
