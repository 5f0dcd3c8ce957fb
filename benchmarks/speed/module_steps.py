"""A step of ``training.train`` on a user's module, beside a loop by hand that does the same.

    python -m benchmarks.speed.module_steps --output results

Both take the loss of 256 rows and a gap of losses on 128 rows of each of two groups, an augmented
Lagrangian, AdamW and averaged weights, in single precision and on one thread. Processor time, in
rounds that take turns, so that other work on the machine hits both alike.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks import results
from fairconstrained.models import NetworkModel
from fairconstrained.process import one_thread
from fairconstrained.solvers import EarlyStoppedSGDA
from fairconstrained.solvers.stochastic import Estimates
from fairconstrained.training.data import as_source
from fairconstrained.training.problem import ModuleProblem
from fairconstrained.training.terms import FunctionConstraint, Risk
from fairconstrained.workers import Workers

_ROWS, _FEATURES, _BATCH = 20_000, 30, 256
_STEPS = 25  # of a round
Rows = tuple[Tensor, ...]


def data() -> Rows:
    """Columns, labels and groups."""
    rng = torch.Generator().manual_seed(0)
    X = torch.randn((_ROWS, _FEATURES), generator=rng)
    y = (X[:, 0] + torch.randn(_ROWS, generator=rng) > 0).float()
    return X, y, torch.randint(2, (_ROWS,), generator=rng)


def network() -> nn.Module:
    """A perceptron."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(_FEATURES, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1)
    )


def loss(outputs: Tensor, batch: Rows) -> Tensor:
    """The mean log loss."""
    return F.binary_cross_entropy_with_logits(outputs[:, 0], batch[1])


def gap(outputs: Tensor, batch: Rows) -> Tensor:
    """A bound on the gap of mean losses of two groups."""
    losses = F.binary_cross_entropy_with_logits(outputs[:, 0], batch[1], reduction="none")
    difference = losses[batch[2] == 1].mean() - losses[batch[2] == 0].mean()
    return torch.stack((difference - 0.02, -difference - 0.02))


def by_hand(rows: Rows) -> Callable[[], None]:
    """A step of plain torch."""
    module = network()
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.0015)
    averages = [parameter.detach().clone() for parameter in module.parameters()]
    groups = [torch.nonzero(rows[2] == g)[:, 0] for g in (0, 1)]
    dual = torch.zeros(2)

    def drawn(index: Tensor) -> Rows:
        return tuple(column[index] for column in rows)

    def step() -> None:
        nonlocal dual
        one = drawn(torch.randint(_ROWS, (_BATCH,)))
        half = [own[torch.randint(len(own), (_BATCH // 2,))] for own in groups]
        other = drawn(torch.cat(half))
        optimizer.zero_grad()
        value = gap(module(other[0]), other)
        penalty = 0.5 * (dual + value).clamp_min(0.0).square().sum()
        (loss(module(one[0]), one) + penalty).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        with torch.no_grad():
            dual = (dual + 0.1 * value.detach()).clamp(0.0, 100.0)
            for average, parameter in zip(averages, module.parameters(), strict=True):
                average.lerp_(parameter, 0.005)

    return step


def of_train(rows: Rows) -> Callable[[], None]:
    """A step of the default solver of ``train``, as between two of its evaluations."""
    constraint = FunctionConstraint(gap)
    problem = ModuleProblem(
        NetworkModel(network()),
        as_source(rows, torch.float32),
        Risk(loss),
        [constraint],
        rows[2],
        torch.device("cpu"),
        0.0,
        Workers.initialised(),
    )
    solver, dual = EarlyStoppedSGDA(batch_size=_BATCH), torch.zeros(2)
    estimates = Estimates(problem, _BATCH, torch.Generator().manual_seed(0))
    estimates.shift = dual
    steps = solver.steps(estimates, solver.begin(estimates, problem.start(), dual, 10**9))
    return lambda: next(steps) and None


def main(argv: Sequence[str] | None = None) -> None:
    """Print milliseconds a step, and their ratio."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.speed.module_steps",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--output", type=Path, default=Path("results"))
    options = parser.parse_args(argv)
    rows = data()
    methods = {"by hand": by_hand(rows), "train": of_train(rows)}
    runs = []
    with one_thread():
        for i in range(options.rounds):
            for name, step in methods.items():
                start = time.process_time()
                for _ in range(_STEPS):
                    step()
                ms = 1e3 * (time.process_time() - start) / _STEPS
                runs.append({"round": i, "method": name, "ms": ms})
    found = results.save(options.output / "module_steps.csv", runs)
    times = found.pivot(index="round", columns="method", values="ms")[list(methods)]
    print(times.agg(["min", "median"]).T.round(3).to_string())
    ratio = (times["train"] / times["by hand"]).median()
    print(f"train / by hand, median over rounds: {ratio:.3f}")


if __name__ == "__main__":
    main()
