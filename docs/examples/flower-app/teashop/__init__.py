"""A Flower app that asks what people drink, and trains a model."""
