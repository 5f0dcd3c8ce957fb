"""DPFermiClassifier with a small convolutional network, private and not."""

import math
from collections.abc import Callable
from math import isqrt
from typing import Any

from numpy.typing import NDArray
from torch import nn

from benchmarks.objectives.dp_fermi import DELTA
from benchmarks.solvers.dp_fermi import epsilons
from fairconstrained import DPFermiClassifier
from fairconstrained.solvers import FERMI, ReleasedMoments

__all__ = ["METHOD", "OBJECTIVES", "epsilons", "fit"]

METHOD = "DPFermiClassifier, convolutions"
OBJECTIVES = ["fermi_pictures"]


def network(n_features: int, n_outputs: int) -> nn.Module:
    """One convolution under group normalisation, on square pictures."""
    side = isqrt(n_features)
    return nn.Sequential(
        nn.Unflatten(1, (1, side, side)),
        nn.Conv2d(1, 8, 3, padding=1),
        nn.GroupNorm(2, 8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(8 * (side // 2) ** 2, n_outputs),
    )


def fit(
    X: Any, y: Any, sensitive_features: Any, *, epsilon: float, penalty: float, seed: int
) -> Callable[[Any], NDArray[Any]]:
    """Train; the prediction of the result."""
    inner = FERMI(n_steps=400, batch_size=256)
    private = not math.isnan(epsilon)
    model = DPFermiClassifier(
        penalty=penalty,
        epsilon=epsilon if private else None,
        delta=DELTA,
        model=network,
        solver=ReleasedMoments(n_rounds=2, inner=inner) if private else inner,
        random_state=seed,
    )
    model.fit(X, y, sensitive_features=sensitive_features)
    predict: Callable[[Any], NDArray[Any]] = model.predict
    return predict
