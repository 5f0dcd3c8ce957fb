"""Deterministic solvers, which pass over all rows."""
