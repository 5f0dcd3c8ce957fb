"""As `dpsgda`, with a small convolutional network under group normalisation."""

from functools import partial
from math import isqrt

from torch import nn

from benchmarks.solvers import dpsgda

METHOD = "fairconstrained, private convolutions"
OBJECTIVES = ["private_images"]


def network(n_features: int, n_outputs: int) -> nn.Module:
    """Two convolutions on square pictures."""
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


epsilons = dpsgda.epsilons
fit = partial(dpsgda.fit, model=network)
