"""Questions about the items of users whose rows are shares."""
