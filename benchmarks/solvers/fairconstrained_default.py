"""RateConstrainedClassifier as a user gets it."""

from typing import Any

from benchmarks.objectives.rate_constrained import ALPHA, Fitted
from fairconstrained import RateConstrainedClassifier

METHOD = "fairconstrained"
OBJECTIVES = ["rate_constrained"]


def slacks(notion: str, asked: list[float]) -> list[float]:
    """Every notion at every slack."""
    return asked


def fit(X: Any, y: Any, sensitive_features: Any, *, notion: str, slack: float, seed: int) -> Fitted:
    """Train with default settings."""
    model = RateConstrainedClassifier(constraint=notion, slack=slack, alpha=ALPHA)
    model.fit(X, y, sensitive_features=sensitive_features)
    return Fitted(lambda X, groups: model.predict(X).astype(float), model.converged_)
