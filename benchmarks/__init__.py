"""Benchmarks of fairconstrained: objective x data set x solver, one file each (see README.md)."""
