"""AUCFairClassifier on the log loss, under the AUCs of normal scores."""

from typing import Any

from benchmarks.objectives.auc_fair import ALPHA, Fitted
from fairconstrained import AUCFairClassifier

METHOD = "fairconstrained, log loss"
OBJECTIVES = ["auc_fair"]


def slacks(notion: str, asked: list[float]) -> list[float]:
    """Every notion at every slack."""
    return asked


def fit(X: Any, y: Any, sensitive_features: Any, *, notion: str, slack: float, seed: int) -> Fitted:
    """Train with the objective that gives probabilities of its own."""
    model = AUCFairClassifier(
        notion, slack=slack, objective="log", surrogate="binormal", alpha=ALPHA
    )
    model.fit(X, y, sensitive_features=sensitive_features)
    return Fitted(lambda X, groups: model.decision_function(X))
