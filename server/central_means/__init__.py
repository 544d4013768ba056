"""Means with a trusted server: clipped, around a centre, over an interval, in steps."""
