"""Algorithms that see noisy releases of the data only."""
