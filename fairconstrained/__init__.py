"""Accurate classifiers that keep fairness constraints, as scikit-learn estimators."""

from fairconstrained._version import __version__
from fairconstrained.estimators import (
    AUCFairClassifier,
    DPFermiClassifier,
    LossParityClassifier,
    PartialParityClassifier,
    RateConstrainedClassifier,
)

__all__ = [
    "AUCFairClassifier",
    "DPFermiClassifier",
    "LossParityClassifier",
    "PartialParityClassifier",
    "RateConstrainedClassifier",
    "__version__",
]
