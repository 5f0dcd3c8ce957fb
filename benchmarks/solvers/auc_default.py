"""AUCFairClassifier as a user gets it."""

from typing import Any

from benchmarks.objectives.auc_fair import ALPHA, Fitted
from fairconstrained import AUCFairClassifier

METHOD = "fairconstrained, AUC"
OBJECTIVES = ["auc_fair"]


def slacks(notion: str, asked: list[float]) -> list[float]:
    """Every notion at every slack."""
    return asked


def fit(X: Any, y: Any, sensitive_features: Any, *, notion: str, slack: float, seed: int) -> Fitted:
    """Train with default settings."""
    model = AUCFairClassifier(notion, slack=slack, alpha=ALPHA)
    model.fit(X, y, sensitive_features=sensitive_features)
    return Fitted(lambda X, groups: model.decision_function(X))
