"""Accurate classifiers that keep fairness constraints, as scikit-learn estimators."""

from fairconstrained._version import __version__
from fairconstrained.estimators import PartialParityClassifier, RateConstrainedClassifier

__all__ = ["PartialParityClassifier", "RateConstrainedClassifier", "__version__"]
