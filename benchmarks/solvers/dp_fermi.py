"""DPFermiClassifier as a user gets it, private and not."""

from __future__ import annotations

import math
from typing import Any

from benchmarks.objectives.rate_constrained import ALPHA, DELTA, Fitted, Rows
from benchmarks.solvers import Cells, Method, grid
from fairconstrained import DPFermiClassifier


def cells(asked: dict[str, list[Any]]) -> Cells:
    """Return every budget, and for secret groups none as well."""
    free = {"unit": ["sensitive_features"], "epsilon": [math.nan]}
    return grid(asked) + grid({**asked, **free})


def fit(
    train: Rows, *, constraint: str, unit: str, epsilon: float, penalty: float, seed: int
) -> Fitted:
    """Train with default settings."""
    given = {"epsilon": None if math.isnan(epsilon) else epsilon, "delta": DELTA, "protect": unit}
    model = DPFermiClassifier(constraint, penalty=penalty, alpha=ALPHA, random_state=seed, **given)
    model.fit(train.X, train.y, sensitive_features=train.groups)
    return Fitted(lambda X, groups: model.predict(X).astype(float), model.converged_)


SOLVERS = {"dp_fermi": Method("DPFermiClassifier", ["dp_fermi"], fit, cells)}
