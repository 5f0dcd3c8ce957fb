"""Time of one step of each stochastic solver: ``python -m benchmarks.speed.steps``.

The problem of the benchmark of paper 5 in size: 14,333 rows, 9 features, groups of 10,680 and
3,653, a network 64-32, two loss-gap constraints, one thread. Beside it, a step of plain torch (one
forward and backward pass of 128 rows in single precision, one constraint from the same rows): the
machine's speed, to compare figures of different machines or moments with.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from fairconstrained.constraints import LossParity, Space, Stack
from fairconstrained.features import as_features
from fairconstrained.losses import log_loss
from fairconstrained.models import as_model
from fairconstrained.objectives import MeanLoss
from fairconstrained.problem import Batch, FairERM
from fairconstrained.solvers import (
    ALM,
    SGD,
    SSLALM,
    PenaltySGD,
    StochasticGhost,
    SwitchingSubgradient,
)
from fairconstrained.solvers.run import one_thread
from fairconstrained.solvers.stochastic import Estimates, StochasticSolver

_ROWS, _FIRST_GROUP, _FEATURES = 14_333, 10_680, 9
_ROUNDS = 200


def problem() -> FairERM:
    """The problem, on random data."""
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    X = as_features(rng.normal(size=(_ROWS, _FEATURES)))
    y = torch.as_tensor(rng.integers(2, size=_ROWS))
    weight = torch.ones(_ROWS, dtype=torch.float64)
    group = torch.as_tensor((np.arange(_ROWS) >= _FIRST_GROUP).astype(np.int64))
    space = Space([0, 1], ["white", "non-white"])
    stack = Stack(space, [LossParity(0.005).bind(space, 0.005, 1.0)])
    model = as_model((64, 32), X, weight, 1, 0.0, True)
    return FairERM(model, Batch(X, y, group, weight), MeanLoss(log_loss), stack, 0.0)


def plain_step() -> Callable[[], None]:
    """A step as one would write it by hand."""
    network = nn.Sequential(
        nn.Linear(_FEATURES, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1)
    )
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    X, y = torch.randn(128, _FEATURES), torch.randint(2, (128, 1)).float()

    def step() -> None:
        optimizer.zero_grad()
        losses = F.binary_cross_entropy_with_logits(network(X), y, reduction="none")
        gap = losses[:64].mean() - losses[64:].mean()
        (losses.mean() + gap.clamp_min(0.0)).backward()
        optimizer.step()

    return step


def solver_step(solver: StochasticSolver, erm: FairERM) -> Callable[[], None]:
    """One step of a run that goes on from call to call."""
    rng = torch.Generator().manual_seed(0)
    estimates = Estimates(erm, solver.batch_size, rng)
    dual = torch.zeros(erm.n_constraints, dtype=torch.float64)
    steps: Iterator[object] = solver.steps(estimates, erm.start(), dual, 10**9, rng)
    return lambda: next(steps) and None


def main() -> None:
    """Print milliseconds a step, the methods in turns."""
    erm = problem()
    methods = {
        "plain torch": plain_step(),
        **{
            repr(solver): solver_step(solver, erm)
            for solver in (
                SGD(),
                PenaltySGD(),
                ALM(),
                SSLALM(),
                SSLALM(batch_size=8),
                SwitchingSubgradient(),
                StochasticGhost(),
            )
        },
    }
    times: dict[str, list[float]] = {name: [] for name in methods}
    with one_thread():
        for _ in range(_ROUNDS):
            for name, step in methods.items():
                start = time.perf_counter()
                step()
                times[name].append(1e3 * (time.perf_counter() - start))
    print(f"{'ms a step':24}{'least':>8}{'10 %':>8}{'median':>8}{'mean':>8}")
    for name, values in times.items():
        figures = (min(values), np.quantile(values, 0.1), np.median(values), np.mean(values))
        print(f"{name:24}" + "".join(f"{figure:8.2f}" for figure in figures))


if __name__ == "__main__":
    main()
