"""The estimators, one file each."""

from fairconstrained.estimators.partial_parity import PartialParityClassifier
from fairconstrained.estimators.rate_constrained import RateConstrainedClassifier

__all__ = ["PartialParityClassifier", "RateConstrainedClassifier"]
