"""What a population is like, before anything is estimated about it. NOT PRIVATE."""
