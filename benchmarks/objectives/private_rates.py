"""Classification under a rate constraint with differential privacy of the record.

As ``rate_constrained``, with a budget: ``fit`` of a solver also gets ``epsilon`` (delta is 1e-5;
nan for training without privacy).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pandas as pd

from benchmarks import frontier
from benchmarks.objectives import rate_constrained
from benchmarks.objectives.rate_constrained import COLUMNS, Rows, prepare

__all__ = ["COLUMNS", "DELTA", "PARAMETERS", "cells", "measure", "prepare", "report"]

DELTA = 1e-5
PARAMETERS: dict[str, list[Any]] = {
    "notion": ["demographic_parity"],
    "epsilon": [0.1, 0.5, 1.0, 2.0, 9.0],
    "slack": [0.02, 0.05, 0.1],
}


def cells(solver: ModuleType, asked: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """Parameters of the runs of one solver."""
    return [
        {"notion": notion, "epsilon": epsilon, "slack": slack}
        for notion in asked["notion"]
        for epsilon in solver.epsilons(asked["epsilon"])
        for slack in asked["slack"]
    ]


def with_budget(measure: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """The measure of an objective for solvers whose `fit` also gets `epsilon`."""

    def private(
        solver: ModuleType,
        split: tuple[Rows, Rows],
        seed: int,
        *,
        notion: str,
        epsilon: float,
        slack: float,
    ) -> dict[str, Any]:
        """Train and test once."""
        fit: Any = SimpleNamespace(fit=partial(solver.fit, epsilon=epsilon))
        return measure(fit, split, seed, notion=notion, slack=slack)

    return private


measure = with_budget(rate_constrained.measure)


def report(results: pd.DataFrame, output: Path) -> str:
    """One table: error and violation on test rows, violation on training rows, by budget."""
    names = [
        f"{method}, epsilon {'none' if math.isnan(epsilon) else f'{epsilon:g}'}"
        for method, epsilon in zip(results["method"], results["epsilon"], strict=True)
    ]
    named = results.assign(method=names)
    return "## All runs, delta 1e-5\n\n" + frontier.summary_table(named)
