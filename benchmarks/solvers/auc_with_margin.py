"""AUCFairClassifier whose slack is narrowed by one standard error of the training gap."""

from typing import Any

from benchmarks.objectives.auc_fair import ALPHA, Fitted
from fairconstrained import AUCFairClassifier

METHOD = "fairconstrained, AUC, margin 1"
OBJECTIVES = ["auc_fair"]


def slacks(notion: str, asked: list[float]) -> list[float]:
    """Every notion at every slack."""
    return asked


def fit(X: Any, y: Any, sensitive_features: Any, *, notion: str, slack: float, seed: int) -> Fitted:
    """Train twice, the second time within the narrower slack."""
    model = AUCFairClassifier(notion, slack=slack, margin=1.0, alpha=ALPHA)
    model.fit(X, y, sensitive_features=sensitive_features)
    return Fitted(lambda X, groups: model.decision_function(X))
