"""What the fast routes through `FairERM.linearize` buy: ``python -m benchmarks.speed.routes``.

A constraint that is linear in its table has its terms in closed form; the same terms by autograd
are the general route. Where extra variables are thresholds, all gradients come from one product,
or from a pullback for each. Estimates from three draws take one pass, or one for
each by autograd. Times are processor seconds of one thread, the least of the rounds. Both routes
run in turns, so that a busy machine slows both down.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks import results
from fairconstrained.constraints import DemographicParity, PartialStatisticalParity, Space, Stack
from fairconstrained.distributed import one_thread
from fairconstrained.losses import log_loss
from fairconstrained.models import Linear
from fairconstrained.models.features import as_features
from fairconstrained.problems import FairERM, Linearization, Rows, separate_estimates
from fairconstrained.problems.objectives import MeanLoss
from fairconstrained.solvers.stochastic import Balanced

_COLUMNS, _GROUPS, _ROUNDS = 50, 5, 15

Route = Callable[[], object]


def problem(n_rows: int, notion: object) -> FairERM:
    """Random rows of five groups, and a linear model."""
    rng = np.random.default_rng(0)
    X = as_features(rng.normal(size=(n_rows, _COLUMNS)))
    y = torch.as_tensor(rng.integers(2, size=n_rows))
    group = torch.as_tensor(rng.integers(_GROUPS, size=n_rows))
    weight = torch.ones(n_rows, dtype=torch.float64)
    space = Space([0, 1], list(range(_GROUPS)))
    stack = Stack(space, [notion.bind(space, 0.05)])  # type: ignore[attr-defined]
    model = Linear().build(X, weight, 1, 1e-4)
    return FairERM(model, Rows((X,), y, group, weight), MeanLoss(log_loss), stack, 1e-4)


def by_autograd(erm: FairERM, x: Tensor, rows: Tensor | None) -> Linearization:
    """Terms of the general route."""

    def terms(scores: Tensor, aux: Tensor, batch: Rows) -> Tensor:
        risk = erm.risk.soft(scores, batch.y, batch.weight, erm.total)[None]
        return torch.cat((risk, erm._values(scores, aux, batch)))

    return erm._penalised(x, erm.of_scores(terms, x, rows))


def one_by_one(terms: Linearization, weights: Tensor) -> list[Tensor]:
    """Return all gradients, a pullback for each."""
    return [terms.pullback(row) for row in weights]


def in_turns(fast: Route, slow: Route, n: int) -> tuple[float, float]:
    """Least processor milliseconds of each."""
    found: list[list[float]] = [[], []]
    with one_thread():
        for _ in range(_ROUNDS):
            for times, route in zip(found, (fast, slow), strict=True):
                start = time.process_time()
                for _ in range(n):
                    route()
                times.append(1e3 * (time.process_time() - start) / n)
    return min(found[0]), min(found[1])


def main(argv: Sequence[str] | None = None) -> None:
    """Write and print the times of each route and size."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.routes")
    parser.add_argument("--output", type=Path, default=Path("results"))
    options = parser.parse_args(argv)
    found = results.save(options.output / "routes.csv", rows())
    print(found.round(3).to_string(index=False))


def rows() -> Iterator[dict[str, Any]]:
    """A row for each route and size."""
    rng = np.random.default_rng(1)
    for n_rows, size in ((40_000, None), (40_000, 128)):
        erm = problem(n_rows, DemographicParity())
        x = erm.start() + 0.1
        rows = None if size is None else torch.as_tensor(rng.integers(n_rows, size=size))
        weights = torch.ones(1 + erm.n_constraints, dtype=torch.float64)
        times = in_turns(
            lambda: erm.linearize(x, rows).pullback(weights),  # noqa: B023
            lambda: by_autograd(erm, x, rows).pullback(weights),  # noqa: B023
            10 if size is None else 100,
        )
        yield _row(f"closed form, {size or n_rows} rows, a gradient", *times)
    erm = problem(40_000, DemographicParity())
    x, draw = erm.start() + 0.1, torch.Generator().manual_seed(0)
    balanced = Balanced(erm.strata)
    draws = [torch.randint(erm.n_rows, (128,), generator=draw)]
    draws += [balanced.draw(128 // _GROUPS, draw) for _ in range(2)]  # type: ignore[misc]
    weights = torch.ones(1 + 2 * erm.n_constraints, dtype=torch.float64)
    times = in_turns(
        lambda: erm.estimates(x, *draws).pullback(weights),  # type: ignore[arg-type]
        lambda: separate_estimates(erm, x, *draws).pullback(weights),  # type: ignore[arg-type]
        100,
    )
    yield _row("one pass for three draws of 128 rows", *times)
    erm = problem(40_000, PartialStatisticalParity((0.0, 0.3)))
    x = erm.start() + 0.1 * torch.as_tensor(rng.normal(size=len(erm.start())))
    for k in (1, 20):
        weights = torch.eye(1 + erm.n_constraints, dtype=torch.float64)[:k]
        times = in_turns(
            lambda: erm.linearize(x).pullbacks(weights),  # noqa: B023
            lambda: one_by_one(erm.linearize(x), weights),  # noqa: B023
            1,
        )
        yield _row(f"thresholds, all rows, {k} gradients", *times)


def _row(route: str, fast: float, general: float) -> dict[str, Any]:
    return {"route": route, "fast, ms": fast, "general, ms": general, "ratio": general / fast}


if __name__ == "__main__":
    main()
