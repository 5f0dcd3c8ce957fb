"""Accurate classifiers that keep fairness constraints, as scikit-learn estimators."""

from fairconstrained._version import __version__
from fairconstrained.estimators import (
    AUCFairClassifier,
    LossParityClassifier,
    PartialParityClassifier,
    RateConstrainedClassifier,
)

__all__ = [
    "AUCFairClassifier",
    "LossParityClassifier",
    "PartialParityClassifier",
    "RateConstrainedClassifier",
    "__version__",
]
