"""The estimators, one file each."""

from fairconstrained.estimators.rate_constrained import RateConstrainedClassifier

__all__ = ["RateConstrainedClassifier"]
