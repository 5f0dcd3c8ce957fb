"""Accurate classifiers that keep fairness constraints, as scikit-learn estimators."""

from fairconstrained._version import __version__
from fairconstrained.estimators import AUCFairClassifier, RateConstrainedClassifier

__all__ = ["AUCFairClassifier", "RateConstrainedClassifier", "__version__"]
