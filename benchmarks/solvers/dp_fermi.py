"""DPFermiClassifier as a user gets it, private and not."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from torch import nn

from benchmarks.objectives.rate_constrained import ALPHA
from benchmarks.solvers import Cells, grid
from benchmarks.solvers.rates import classifier
from fairconstrained import DPFermiClassifier


def cells(asked: dict[str, list[Any]]) -> Cells:
    """Return every budget, and for secret groups none as well."""
    free = {"unit": ["sensitive_features"], "epsilon": [math.nan]}
    return grid(asked) + grid({**asked, **free})


def convolution(n_features: int, n_outputs: int) -> nn.Module:
    """Return a small network of pictures of 8 x 8 pixels."""
    return nn.Sequential(
        *(nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(144, n_outputs)),
    )


fermi = partial(classifier, DPFermiClassifier, cells=cells)
SOLVERS = {
    "dp_fermi": fermi("DPFermiClassifier", ["dp_fermi"], alpha=ALPHA),
    "dp_fermi_convolution": fermi("DPFermiClassifier, convolution", [], model=convolution),
}
