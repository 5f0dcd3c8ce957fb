"""The estimators, one file each."""

from fairconstrained.estimators.loss_parity import LossParityClassifier
from fairconstrained.estimators.rate_constrained import RateConstrainedClassifier

__all__ = ["LossParityClassifier", "RateConstrainedClassifier"]
