"""Ranking under AUC-based fairness: 1 - AUC against the gap of true AUCs, and the time it takes.

A solver's file gives

* ``METHOD``, the name in tables, and ``OBJECTIVES``, which must list this file's name;
* ``slacks(notion, asked)``: the slacks to run for a notion, ``[]`` where the method does not apply.
  A method that does not bound true gaps gives the values of its own parameter instead (the
  surrogate's slack, the weight of a penalty), enough of them to draw its frontier;
* ``fit(X, y, sensitive_features, *, notion, slack, seed) -> Fitted``; the call is timed.

All are linear models with the same l2 penalty.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.utils import Bunch

from benchmarks import frontier
from benchmarks.objectives import rate_constrained
from benchmarks.objectives.rate_constrained import ALPHA, Rows, cells, timed_fit
from fairconstrained.auc import COMPARISONS, auc_differences, win_table
from fairconstrained.groups import encode_groups

__all__ = [
    "ALPHA",
    "COLUMNS",
    "PARAMETERS",
    "Fitted",
    "cells",
    "differences",
    "measure",
    "prepare",
    "report",
]

PARAMETERS: dict[str, list[Any]] = {
    "notion": ["group_auc", "inter_group", "intra_group"],
    "slack": [0.01, 0.02, 0.05, 0.1],
}
COLUMNS = [
    *("train_error", "test_error", "train_violation", "test_violation", "test_deviation"),
    *("fit_time", "n_rows", "n_features", "feasible", "warned", "n_warnings", "warnings"),
]
OURS, FREE = "fairconstrained, AUC", "unconstrained, AUC"
WITH_MARGIN = "fairconstrained, AUC, margin 1"
# These need everybody's group to predict, and are compared with each other.
OURS_WITH_GROUPS, RESCALED = "fairconstrained, AUC, with groups", "rescaled group"
TOLERANCE = 2e-3  # what a training gap may exceed the slack by
TEST_TOLERANCE = 0.015
TRAINING_FRACTION = (
    0.9  # of the training rows, where a data set has its own test rows (the paper's)
)
BOOTSTRAPS = 25


class Fitted(NamedTuple):
    """What a solver gives back.

    Attributes
    ----------
    scores : callable
        ``scores(X, sensitive_features) -> (n,)``.
    """

    scores: Callable[[Any, Any], NDArray[np.float64]]


def prepare(data: Bunch, seed: int) -> tuple[Rows, Rows]:
    """Training and test rows; of a data set with its own test rows, most of the others."""
    if "test" not in data:
        return rate_constrained.prepare(data, seed)
    y, groups = np.asarray(data.target), encode_groups(data.sensitive_features).codes
    strata = y * (groups.max() + 1) + groups
    ours = np.flatnonzero(~data.test)
    train, _ = train_test_split(
        ours, train_size=TRAINING_FRACTION, stratify=strata[ours], random_state=seed
    )
    parts = train, np.flatnonzero(data.test)
    return tuple(Rows(data.data[rows], y[rows], groups[rows]) for rows in parts)  # type: ignore[return-value]


def measure(
    solver: ModuleType, split: tuple[Rows, Rows], seed: int, *, notion: str, slack: float
) -> dict[str, Any]:
    """Train and test once."""
    train, test = split
    fitted, told = timed_fit(solver, train, notion=notion, slack=slack, seed=seed)
    scores = [fitted.scores(rows.X, rows.groups) for rows in split]
    errors = [1 - roc_auc_score(r.y, z) for r, z in zip(split, scores, strict=True)]
    gaps = [
        float(np.abs(differences(r.y, r.groups, z, notion)).max())
        for r, z in zip(split, scores, strict=True)
    ]
    return {
        "train_error": errors[0],
        "test_error": errors[1],
        "train_violation": gaps[0],
        "test_violation": gaps[1],
        "test_deviation": _deviation(test, scores[1], notion, seed),
        **told,
        "feasible": None if math.isnan(slack) else gaps[0] <= slack + TOLERANCE,
    }


def differences(y: Any, groups: Any, scores: Any, notion: str) -> NDArray[np.float64]:
    """Signed differences of true AUCs, one for each comparison of the notion."""
    n_groups = int(groups.max()) + 1
    comparisons = COMPARISONS[notion](n_groups)
    cell = y * n_groups + groups
    table = win_table(scores, cell, np.ones(len(y)), 2 * n_groups)
    counts = np.bincount(cell, minlength=2 * n_groups).astype(float)
    return auc_differences(table, counts, comparisons.reshape(len(comparisons), 4, -1))


def _deviation(test: Rows, scores: Any, notion: str, seed: int) -> float:
    """Standard deviation of the differences over resampled test rows: what chance does to a gap."""
    rng = np.random.default_rng(seed)
    drawn = [
        differences(test.y[rows], test.groups[rows], scores[rows], notion)
        for rows in rng.integers(len(test.y), size=(BOOTSTRAPS, len(test.y)))
    ]
    return float(np.std(drawn, axis=0).max())


def report(results: pd.DataFrame, output: Path) -> str:
    """Tables as markdown, and one picture for each data set and notion in `output`."""
    frontier.pictures(results, output)
    with_groups = results["method"].isin([OURS_WITH_GROUPS, RESCALED])
    return "\n\n".join(
        [
            f"## Training gap of {OURS} against its slack",
            frontier.violation_table(results, OURS, TOLERANCE),
            f"## Test gap of {OURS}, without and with a margin",
            _test_gaps(results[results["method"].isin([OURS, WITH_MARGIN])]),
            f"## 1 - AUC of {OURS} minus that of a peer at equal gap",
            frontier.comparison_table(results[~with_groups], OURS, FREE),
            "## The same of the methods that need the group to predict",
            frontier.comparison_table(results[with_groups], OURS_WITH_GROUPS),
            "## All runs (error is 1 - AUC, violation the gap)",
            frontier.summary_table(results),
        ]
    )


def _test_gaps(ours: pd.DataFrame) -> str:
    """How many seeds keep the slack on test rows, beside the chance error of the gap there.

    The excess of a seed is what its test gap has over the slack, or nothing.
    """
    within = ours["test_violation"] <= ours["slack"] + TEST_TOLERANCE
    chance = ours["test_violation"] <= ours["slack"] + TEST_TOLERANCE + 2 * ours["test_deviation"]
    excess = (ours["test_violation"] - ours["slack"]).clip(lower=0.0)
    marked = ours.assign(within=within, chance=chance, excess=excess)
    rows = [
        {
            "data set": dataset,
            "notion": notion,
            "method": method,
            "slack": slack,
            "mean test gap": f"{runs['test_violation'].mean():.4f}",
            "mean excess": f"{runs['excess'].mean():.4f}",
            "test error": f"{runs['test_error'].mean():.4f}",
            f"within slack + {TEST_TOLERANCE}": f"{runs['within'].sum()} of {len(runs)}",
            "and two of its deviations": f"{runs['chance'].sum()} of {len(runs)}",
            "deviation": f"{runs['test_deviation'].mean():.4f}",
        }
        for (dataset, notion, method, slack), runs in marked.groupby(
            ["dataset", "notion", "method", "slack"]
        )
    ]
    return frontier.markdown(pd.DataFrame(rows))
