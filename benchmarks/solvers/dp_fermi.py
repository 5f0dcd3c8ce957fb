"""DPFermiClassifier as a user gets it, private and not."""

from __future__ import annotations

import math
from typing import Any

from torch import nn

from benchmarks.objectives.rate_constrained import ALPHA, DELTA, Fitted, Rows
from benchmarks.solvers import Cells, Method, grid
from fairconstrained import DPFermiClassifier


def cells(asked: dict[str, list[Any]]) -> Cells:
    """Return every budget, and for secret groups none as well."""
    free = {"unit": ["sensitive_features"], "epsilon": [math.nan]}
    return grid(asked) + grid({**asked, **free})


def classifier(name: str, objectives: list[str], **options: Any) -> Method:
    """Return the classifier with these parameters, and default settings."""

    def fit(
        train: Rows, *, constraint: str, unit: str, epsilon: float, penalty: float, seed: int
    ) -> Fitted:
        budget = {"epsilon": None if math.isnan(epsilon) else epsilon, "delta": DELTA}
        model = DPFermiClassifier(
            constraint, penalty=penalty, protect=unit, random_state=seed, **budget, **options
        )
        model.fit(train.X, train.y, sensitive_features=train.groups)
        return Fitted(lambda X, groups: model.predict(X).astype(float), model.converged_)

    return Method(name, objectives, fit, cells)


def convolution(n_features: int, n_outputs: int) -> nn.Module:
    """Return a small network of pictures of 8 x 8 pixels."""
    return nn.Sequential(
        *(nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(144, n_outputs)),
    )


SOLVERS = {
    "dp_fermi": classifier("DPFermiClassifier", ["dp_fermi"], alpha=ALPHA),
    "dp_fermi_convolution": classifier("DPFermiClassifier, convolution", [], model=convolution),
}
