"""RateConstrainedClassifier(epsilon=...) as a user gets it, and without privacy beside it."""

import math
from typing import Any

from benchmarks.objectives.private_rates import DELTA
from benchmarks.objectives.rate_constrained import ALPHA, Fitted
from fairconstrained import RateConstrainedClassifier

METHOD = "fairconstrained, private"
OBJECTIVES = ["private_rates"]


def epsilons(asked: list[float]) -> list[float]:
    """Every budget, and none."""
    return [*asked, math.nan]


def fit(
    X: Any,
    y: Any,
    sensitive_features: Any,
    *,
    notion: str,
    slack: float,
    epsilon: float,
    seed: int,
) -> Fitted:
    """Train with default settings."""
    model = RateConstrainedClassifier(
        constraint=notion,
        slack=slack,
        epsilon=None if math.isnan(epsilon) else epsilon,
        delta=DELTA,
        alpha=ALPHA,
        random_state=seed,
    )
    model.fit(X, y, sensitive_features=sensitive_features)
    return Fitted(lambda X, groups: model.predict(X).astype(float), model.converged_)
