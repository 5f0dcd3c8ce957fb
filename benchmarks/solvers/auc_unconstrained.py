"""LogisticRegression without any constraint, for its scores."""

from math import nan
from typing import Any

from benchmarks.objectives.auc_fair import Fitted
from benchmarks.objectives.rate_constrained import base_model

METHOD = "unconstrained, AUC"
OBJECTIVES = ["auc_fair"]


def slacks(notion: str, asked: list[float]) -> list[float]:
    """It has none."""
    return [nan]


def fit(X: Any, y: Any, sensitive_features: Any, *, notion: str, slack: float, seed: int) -> Fitted:
    """Train without the sensitive features."""
    model = base_model(len(y)).fit(X, y)
    return Fitted(lambda X, groups: model.decision_function(X))
