"""Accurate classifiers that keep fairness constraints, as scikit-learn estimators."""

from fairconstrained._version import __version__
from fairconstrained.estimators import RateConstrainedClassifier

__all__ = ["RateConstrainedClassifier", "__version__"]
