"""RateConstrainedClassifier(epsilon=...) as a user gets it, and without privacy beside it."""

import math
from typing import Any

from benchmarks.objectives.private_rates import DELTA
from benchmarks.objectives.rate_constrained import ALPHA, Fitted
from fairconstrained import RateConstrainedClassifier

METHOD = "fairconstrained, private"
OBJECTIVES = ["private_rates", "private_images"]


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
    model: Any = "linear",
) -> Fitted:
    """Train with default settings."""
    classifier = RateConstrainedClassifier(
        constraint=notion,
        slack=slack,
        epsilon=None if math.isnan(epsilon) else epsilon,
        delta=DELTA,
        model=model,
        alpha=ALPHA,
        random_state=seed,
    )
    classifier.fit(X, y, sensitive_features=sensitive_features)
    return Fitted(lambda X, groups: classifier.predict(X).astype(float), classifier.converged_)
