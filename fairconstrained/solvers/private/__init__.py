"""Algorithms that see only noisy releases of the data."""
