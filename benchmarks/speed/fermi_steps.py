"""Time of one private step of DP-FERMI: ``python -m benchmarks.speed.fermi_steps``.

Adult in size: 36,631 rows, 107 one-hot columns with 13 % of nonzeros, two groups, batches of 512 in
expectation, one thread; whole steps as the solvers make them: Poisson batch, table, clipped
gradients, noise, step. Beside it a step of plain SGD on 512 rows, written by hand with torch, in
turns.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from benchmarks import results
from fairconstrained.constraints import DemographicParity, Space, Stack
from fairconstrained.constraints.mutual_information import MutualInformation
from fairconstrained.losses import log_loss
from fairconstrained.models import Linear
from fairconstrained.models.features import as_features
from fairconstrained.privacy.mechanisms import Releases
from fairconstrained.problems import Rows
from fairconstrained.problems.private.fermi import AttributeFermi, RecordFermi
from fairconstrained.process import one_thread
from fairconstrained.solvers import DPFERMI, Budget, NoisyTables

_ROWS, _COLUMNS, _DENSITY, _BATCH, _ROUNDS, _CHUNK = 36_631, 107, 0.13, 512, 60, 20


def data() -> Rows:
    """Random rows."""
    rng = np.random.default_rng(0)
    X = as_features((rng.random((_ROWS, _COLUMNS)) < _DENSITY).astype(float))
    y, group = (torch.as_tensor(rng.integers(2, size=_ROWS)) for _ in range(2))
    return Rows((X,), y, group, torch.ones(_ROWS, dtype=torch.float64))


def private_steps(solver: DPFERMI, unit: str, rows: Rows) -> Iterator[object]:
    """Iterates of a run long enough to be timed; each is `_CHUNK` steps."""
    space = Space([0, 1], ["a", "b"])
    stack = Stack(space, [DemographicParity().bind(space, 1.0)])
    record = unit == "record"
    zeros, ones = torch.zeros(_COLUMNS).double(), torch.ones(_COLUMNS).double()
    model = (
        Linear().build_private(zeros, ones, 1)
        if record
        else Linear().build(rows.X, rows.weight, 1, 1e-4)
    )
    budget = Budget(1.0, 1e-5, "record" if record else "sensitive_features")
    counts = torch.full((2,), _ROWS / 2).double()
    kind = RecordFermi if record else AttributeFermi
    problem = kind(
        model=model,
        data=rows,
        loss=log_loss,
        alpha=1e-4,
        constraint=stack,
        counts=counts,
        information=MutualInformation.within(stack, counts),
        weight=1.0,
        releases=Releases(solver.plan(_ROWS, budget)),
    )
    rng = torch.Generator().manual_seed(0)
    x = problem.start()
    return solver.iterate(problem, x, torch.zeros(0).double(), 1e-4, rng)


def plain_step(rows: Rows) -> Callable[[], None]:
    """SGD on the log loss."""
    X = rows.X.to_dense().float()
    y = rows.y.float()
    w = torch.zeros(_COLUMNS, requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=0.01)

    def step() -> None:
        batch = torch.randint(_ROWS, (_BATCH,))
        optimizer.zero_grad()
        F.binary_cross_entropy_with_logits(X[batch] @ w, y[batch]).backward()
        optimizer.step()

    return step


def main(argv: Sequence[str] | None = None) -> None:
    """Write and print milliseconds a step, the methods in turns."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.fermi_steps")
    parser.add_argument("--output", type=Path, default=Path("results"))
    options = parser.parse_args(argv)
    rows = data()
    n_steps = 30 * _CHUNK * max(1, _ROUNDS // 30)
    per_round = n_steps // 30
    plain = plain_step(rows)
    runs = {
        f"{type(solver).__name__}, {unit}": private_steps(solver, unit, rows)
        for solver in (
            DPFERMI(batch_size=_BATCH, n_steps=n_steps),
            NoisyTables(batch_size=_BATCH, n_steps=n_steps),
        )
        for unit in ("sensitive_features", "record")
    }
    steps = {"plain SGD": lambda: [plain() for _ in range(per_round)]}
    steps |= {name: partial(next, run) for name, run in runs.items()}
    rows = []
    with one_thread():
        for i in range(28):
            for name, step in steps.items():
                start = time.perf_counter()
                step()
                ms = 1e3 * (time.perf_counter() - start) / per_round
                rows.append({"round": i, "method": name, "ms": ms})
    found = results.save(options.output / "fermi_steps.csv", rows)
    times = found.groupby("method", sort=False)["ms"]
    print(times.quantile([0.0, 0.1, 0.5]).unstack().round(2).to_string())


if __name__ == "__main__":
    main()
