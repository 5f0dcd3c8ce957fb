"""Time of a private and fair step beside the same step without both.

    python -m benchmarks.speed.private_steps

A linear model on 36,631 rows of 102 columns, two groups, 512 rows a batch, one thread. Rounds of
each method take turns, so that a busy machine slows all of them.

* by hand: a batch, the logistic loss, its gradient, a step; a few lines of torch.
* plain: the same by `benchmarks.baselines.SGD`, on the same model.
* private: `DPSGDA` without constraint: a Poisson batch, clipped gradients, noise.
* private and fair: demographic parity, with a noisy table in every step and multipliers.
* of the system: the same without a seed, as private fits are: cryptographic noise, on a grid.
* not hardened: the same with normal numbers of torch, added as they are.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from benchmarks import results
from benchmarks.baselines import SGD
from fairconstrained.constraints import DemographicParity, Space, Stack
from fairconstrained.losses import log_loss
from fairconstrained.models import Linear
from fairconstrained.models.features import as_features
from fairconstrained.privacy import Gaussian
from fairconstrained.privacy.mechanisms import ADD_NOISE, Releases, noise_generator
from fairconstrained.problems import FairERM, Rows
from fairconstrained.problems.objectives import MeanLoss
from fairconstrained.problems.private.erm import PrivateERM
from fairconstrained.process import one_thread
from fairconstrained.solvers import DPSGDA, Budget
from fairconstrained.solvers.stochastic import Estimates

STEPS = 200  # in one round
SPACE = Space([0, 1], ["a", "b"])


def table(n_rows: int, n_columns: int) -> Rows:
    """Random rows."""
    rng = np.random.default_rng(0)
    X = as_features(rng.random((n_rows, n_columns)))
    y, group = (torch.as_tensor(rng.integers(2, size=n_rows)) for _ in range(2))
    return Rows((X,), y, group, torch.ones(n_rows, dtype=torch.float64))


def not_hardened(value: Tensor, deviation: float, rng: Generator) -> Tensor:
    """Noise whose last bits can give a value away."""
    return value + deviation * torch.randn(value.shape, generator=rng, dtype=value.dtype)


def private_round(
    data: Rows,
    batch_size: int,
    fair: bool,
    seed: int | None = 0,
    add_noise: Any = ADD_NOISE[Gaussian],
) -> Callable[[], None]:
    """Steps as the estimator makes them; the plan is priced once, outside the clock."""
    n_rows, n_columns = data.X.shape
    solver = DPSGDA(n_steps=STEPS, sampling_rate=batch_size / n_rows)
    plan = solver.plan(n_rows, Budget(1.0, 1e-5, "record"))
    zero, one = (data.weight.new_full((n_columns,), value) for value in (0.0, 1.0))
    stack = Stack(SPACE, [DemographicParity().bind(SPACE, 0.05)] if fair else [])
    counts = stack.place(data.y, data.group, data.weight).counts()

    def run() -> None:
        model = Linear().build_private(zero, one, 1)
        with mock.patch.dict(ADD_NOISE, {Gaussian: add_noise}):
            erm = PrivateERM(model, data, log_loss, stack, 1e-4, counts, Releases(plan))
            dual, rng = zero.new_zeros(erm.n_constraints), noise_generator(seed)
            for _ in solver.iterate(erm, erm.start(), dual, 0.0, rng):
                pass

    return run


def plain_round(data: Rows, batch_size: int) -> Callable[[], None]:
    """The package's step without fairness and privacy."""
    zero, one = (data.weight.new_full((data.X.shape[1],), value) for value in (0.0, 1.0))
    model = Linear().build_private(zero, one, 1)
    erm = FairERM(model, data, MeanLoss(log_loss), Stack(SPACE, []), 1e-4)
    solver = SGD(step_size=0.1, batch_size=batch_size)

    def run() -> None:
        rng = torch.Generator().manual_seed(0)
        estimates, x = Estimates(erm, batch_size, rng), erm.start()
        for _ in solver.steps(estimates, solver.begin(estimates, x, x.new_zeros(0), STEPS)):
            pass

    return run


def by_hand(data: Rows, batch_size: int) -> Callable[[], None]:
    """The step that one would write by hand."""
    n_rows, n_columns = data.X.shape
    X, y = data.X.to_dense(), data.y.double()

    def run() -> None:
        rng = torch.Generator().manual_seed(0)
        w = torch.zeros(n_columns, dtype=torch.float64, requires_grad=True)
        b = torch.zeros(1, dtype=torch.float64, requires_grad=True)
        optimizer = torch.optim.SGD([w, b], lr=0.1)
        for _ in range(STEPS):
            rows = torch.randint(n_rows, (batch_size,), generator=rng)
            optimizer.zero_grad()
            F.binary_cross_entropy_with_logits(X[rows] @ w + b, y[rows]).backward()
            optimizer.step()

    return run


def main(argv: Sequence[str] | None = None) -> None:
    """Write the times of all rounds, and print a line for each method."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.speed.private_steps",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rows", type=int, default=36_631)
    parser.add_argument("--columns", type=int, default=102)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--output", type=Path, default=Path("results"))
    options = parser.parse_args(argv)
    data = table(options.rows, options.columns)
    methods = {
        "by hand": by_hand(data, options.batch),
        "plain": plain_round(data, options.batch),
        "private": private_round(data, options.batch, fair=False),
        "private and fair": private_round(data, options.batch, fair=True),
        "of the system": private_round(data, options.batch, fair=True, seed=None),
        "not hardened": private_round(data, options.batch, fair=True, add_noise=not_hardened),
    }
    rows = []
    with one_thread():
        for run in methods.values():
            run()  # what torch loads on the first call
        for i in range(options.rounds):
            for name, run in methods.items():
                start = time.perf_counter()
                run()
                ms = 1e3 * (time.perf_counter() - start) / STEPS
                rows.append({"round": i, "method": name, "ms": ms})
    found = results.save(options.output / "private_steps.csv", rows)
    times = found.pivot(index="round", columns="method", values="ms")[list(methods)]
    print(times.agg(["min", "median"]).T.round(3).to_string())
    for name in ("by hand", "plain", "not hardened"):
        ratio = (times["of the system"] / times[name]).median()
        print(f"of the system / {name}, median over rounds: {ratio:.2f}")


if __name__ == "__main__":
    main()
