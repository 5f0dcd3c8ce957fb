"""AUCFairClassifier as a user gets it."""

from typing import Any

from benchmarks.objectives.auc_fair import ALPHA, Fitted
from fairconstrained import AUCFairClassifier

METHOD = "fairconstrained, AUC"
OBJECTIVES = ["auc_fair"]
WIDE = [0.2, 0.3]  # where others have points too, which want a frontier to be compared with


def slacks(notion: str, asked: list[float]) -> list[float]:
    """Every notion at every slack, and some beyond."""
    return sorted({*asked, *WIDE})


def fit(X: Any, y: Any, sensitive_features: Any, *, notion: str, slack: float, seed: int) -> Fitted:
    """Train with default settings."""
    model = AUCFairClassifier(notion, slack=slack, alpha=ALPHA)
    model.fit(X, y, sensitive_features=sensitive_features)
    return Fitted(lambda X, groups: model.decision_function(X))
