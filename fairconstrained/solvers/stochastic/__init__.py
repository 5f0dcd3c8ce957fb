"""Algorithms that draw mini-batches."""
