"""Algorithms that pass over all rows."""
