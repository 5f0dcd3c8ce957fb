"""RateConstrainedClassifier(epsilon=...) as a user gets it, and without privacy beside it."""

from __future__ import annotations

import math
from math import isqrt
from types import SimpleNamespace
from typing import Any

from torch import nn

from benchmarks.objectives.private_rates import DELTA
from benchmarks.objectives.rate_constrained import ALPHA, Fitted
from fairconstrained import RateConstrainedClassifier


def epsilons(asked: list[float]) -> list[float]:
    """Every budget, and none."""
    return [*asked, math.nan]


def method(name: str, objectives: list[str], model: Any) -> SimpleNamespace:
    """The classifier with another model, all else being the default."""

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

    return SimpleNamespace(METHOD=name, OBJECTIVES=objectives, epsilons=epsilons, fit=fit)


def convolutions(n_features: int, n_outputs: int) -> nn.Module:
    """Two convolutions under group normalisation, on square pictures."""
    side = isqrt(n_features)
    return nn.Sequential(
        nn.Unflatten(1, (1, side, side)),
        nn.Conv2d(1, 8, 3, stride=2),
        nn.GroupNorm(2, 8),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, stride=2),
        nn.GroupNorm(2, 8),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(8 * ((side - 3) // 4) ** 2, n_outputs),
    )


TABLES, PICTURES = "private_rates", "private_images"
SOLVERS = {
    "dpsgda": method("fairconstrained, private", [TABLES, PICTURES], "linear"),
    "dpsgda_mlp": method("fairconstrained, private network", [TABLES, PICTURES], (32,)),
    "dpsgda_cnn": method("fairconstrained, private convolutions", [PICTURES], convolutions),
}
