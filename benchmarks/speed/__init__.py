"""Timings that constants in the package cite."""
