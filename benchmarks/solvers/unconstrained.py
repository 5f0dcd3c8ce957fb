"""LogisticRegression without any constraint."""

from math import nan
from typing import Any

from benchmarks.objectives.rate_constrained import Fitted, base_model

METHOD = "unconstrained"
OBJECTIVES = ["rate_constrained"]


def slacks(notion: str, asked: list[float]) -> list[float]:
    """It has none."""
    return [nan]


def fit(X: Any, y: Any, sensitive_features: Any, *, notion: str, slack: float, seed: int) -> Fitted:
    """Train without the sensitive features."""
    model = base_model(len(y)).fit(X, y)
    return Fitted(lambda X, groups: model.predict(X).astype(float))
