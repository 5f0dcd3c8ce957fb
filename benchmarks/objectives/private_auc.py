"""Ranking under AUC-based fairness with differential privacy of the record.

As ``auc_fair``, with a budget: ``fit`` of a solver also gets ``epsilon`` (delta is 1e-5; nan for
training without privacy). A seed draws the split and the noise.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pandas as pd

from benchmarks.objectives import auc_fair, private_rates
from benchmarks.objectives.auc_fair import COLUMNS, prepare
from benchmarks.objectives.private_rates import DELTA, cells
from benchmarks.objectives.rate_constrained import Rows

__all__ = ["COLUMNS", "DELTA", "PARAMETERS", "cells", "measure", "prepare", "report"]

PARAMETERS: dict[str, list[Any]] = {
    "notion": ["group_auc", "inter_group", "intra_group"],
    "epsilon": [0.5, 1.0, 3.0],
    "slack": [0.02, 0.1],
}


def measure(
    solver: ModuleType,
    split: tuple[Rows, Rows],
    seed: int,
    *,
    notion: str,
    epsilon: float,
    slack: float,
) -> dict[str, Any]:
    """Train and test once."""
    private: Any = SimpleNamespace(fit=partial(solver.fit, epsilon=epsilon))
    return auc_fair.measure(private, split, seed, notion=notion, slack=slack)


def report(results: pd.DataFrame, output: Path) -> str:
    """One table: 1 - AUC and gap on training and test rows, by budget."""
    return private_rates.report(results, output)
