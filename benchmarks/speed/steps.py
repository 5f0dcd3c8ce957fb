"""Time of one step of each stochastic solver: ``python -m benchmarks.speed.steps``.

The problem of the benchmark of paper 5 in size: 14,333 rows, 9 features, groups of 10,680 and
3,653, a network 64-32, two loss-gap constraints, one thread. Beside it, a step of plain torch (one
forward and backward pass of 128 rows in single precision, one constraint from the same rows), the
machine's speed; and, where ``humancompatible-train`` is installed, steps of the public code of the
paper: 128 rows in single precision for the objective and both constraints, where ours draw three
times 128 rows in double precision.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks import results
from benchmarks.baselines import SGD, PenaltySGD
from fairconstrained.constraints import LossParity, Space, Stack
from fairconstrained.losses import log_loss
from fairconstrained.models import Network
from fairconstrained.models.features import DenseFeatures
from fairconstrained.problems import FairERM, Rows
from fairconstrained.problems.objectives import MeanLoss
from fairconstrained.process import one_thread
from fairconstrained.solvers import (
    ALM,
    SSLALM,
    StochasticGhost,
    SwitchingSubgradient,
)
from fairconstrained.solvers.stochastic import Estimates, StochasticSolver

_ROWS, _FIRST_GROUP, _FEATURES = 14_333, 10_680, 9
_ROUNDS = 200


def problem(dtype: torch.dtype = torch.float64) -> FairERM:
    """The problem, on random data."""
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    X = DenseFeatures(torch.as_tensor(rng.normal(size=(_ROWS, _FEATURES)), dtype=dtype))
    y = torch.as_tensor(rng.integers(2, size=_ROWS))
    weight = torch.ones(_ROWS, dtype=dtype)
    group = torch.as_tensor((np.arange(_ROWS) >= _FIRST_GROUP).astype(np.int64))
    space = Space([0, 1], ["white", "non-white"])
    stack = Stack(space, [LossParity(0.005).bind(space, 0.005)])
    model = Network((64, 32), n_bins=None).build(X, weight, 1, 0.0)
    return FairERM(model, Rows((X,), y, group, weight), MeanLoss(log_loss), stack, 0.0)


def plain_network() -> tuple[nn.Module, Callable[[nn.Module], tuple[Tensor, Tensor]]]:
    """A network in single precision; its mean loss and loss gap on 128 rows drawn each time."""
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Linear(_FEATURES, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1)
    )
    X, y = torch.randn(_ROWS, _FEATURES), torch.randint(2, (_ROWS, 1)).float()

    def losses(network: nn.Module) -> tuple[Tensor, Tensor]:
        rows = torch.randint(_ROWS, (128,))
        rowwise = F.binary_cross_entropy_with_logits(network(X[rows]), y[rows], reduction="none")
        return rowwise.mean(), rowwise[:64].mean() - rowwise[64:].mean()

    return network, losses


def plain_step() -> Callable[[], None]:
    """A step as one would write it by hand."""
    network, losses = plain_network()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)

    def step() -> None:
        optimizer.zero_grad()
        risk, gap = losses(network)
        (risk + gap.clamp_min(0.0)).backward()
        optimizer.step()

    return step


def public_steps() -> dict[str, Callable[[], None]]:
    """Steps of the paper's public code, as its examples call it; none if it is not installed."""
    try:
        from humancompatible.train.optim import SSG, SSLALM  # type: ignore[import-not-found]
    except ImportError:
        return {}

    def augmented_lagrangian() -> Callable[[], None]:
        network, losses = plain_network()
        optimizer = SSLALM(network.parameters(), m=2, lr=0.01, dual_lr=0.05)

        def step() -> None:
            risk, gap = losses(network)
            for i, value in enumerate((gap - 0.005, -gap - 0.005)):
                optimizer.dual_step(i, value)
            optimizer.step(risk)
            optimizer.zero_grad()

        return step

    def switching() -> Callable[[], None]:
        network, losses = plain_network()
        optimizer = SSG(network.parameters(), m=1, lr=0.5, dual_lr=0.05)

        def step() -> None:
            risk, gap = losses(network)
            worst = gap.abs() - 0.005
            worst.backward(retain_graph=True)
            optimizer.dual_step(0)
            optimizer.zero_grad()
            risk.backward()
            optimizer.step(worst)
            optimizer.zero_grad()

        return step

    return {"public SSLALM": augmented_lagrangian(), "public SSG": switching()}


def solver_step(solver: StochasticSolver, erm: FairERM) -> Callable[[], None]:
    """One step of a run that goes on from call to call."""
    rng = torch.Generator().manual_seed(0)
    estimates, x = Estimates(erm, solver.batch_size, rng), erm.start()
    now = solver.begin(estimates, x, x.new_zeros(erm.n_constraints), 10**9)
    steps: Iterator[object] = solver.steps(estimates, now)
    return lambda: next(steps) and None


def main(argv: Sequence[str] | None = None) -> None:
    """Write and print milliseconds a step, the methods in turns."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.steps")
    parser.add_argument("--output", type=Path, default=Path("results"))
    options = parser.parse_args(argv)
    erm = problem()
    methods = {
        "plain torch": plain_step(),
        **public_steps(),
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
    rows = []
    with one_thread():
        for i in range(_ROUNDS):
            for name, step in methods.items():
                start = time.perf_counter()
                step()
                ms = 1e3 * (time.perf_counter() - start)
                rows.append({"round": i, "method": name, "ms": ms})
    found = results.save(options.output / "steps.csv", rows)
    times = found.groupby("method", sort=False)["ms"]
    print(times.quantile([0.0, 0.1, 0.5]).unstack().round(2).to_string())


if __name__ == "__main__":
    main()
