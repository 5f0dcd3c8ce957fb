"""Ranking under AUC-based fairness: 1 - AUC against the gap of true AUCs, and the time it takes.

A solver has ``METHOD``, ``OBJECTIVES`` and ``cells`` as for ``rate_constrained``, and
``fit(train, *, constraint, slack, seed)``, which is timed and gives ``scores(X, groups) -> (n,)``.
The slacks of a method that does not bound true gaps are values of its own parameter (the
surrogate's slack, the weight of a penalty), enough of them to draw its frontier. All are linear
models with the same l2 penalty.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.utils import Bunch

from benchmarks.objectives import rate_constrained
from benchmarks.objectives.rate_constrained import Rows, timed_fit
from fairconstrained.exact_auc import COMPARISONS, auc_differences, win_table
from fairconstrained.inputs.groups import encode_groups

PARAMETERS: dict[str, list[Any]] = {
    "constraint": list(COMPARISONS),
    "slack": [0.01, 0.02, 0.05, 0.1],
}
COLUMNS = [
    *("train_error", "test_error", "train_violation", "test_violation", "test_deviation"),
    *("cpu_time", "n_rows", "n_features", "feasible", "warned", "n_warnings", "warnings"),
]
OURS, FREE = "fairconstrained, AUC", "unconstrained, AUC"
WITH_MARGIN = "fairconstrained, AUC, margin 1"
NETWORK = "fairconstrained, AUC, ten hidden units"
PROXY, ONLINE = "proxy-Lagrangian", "level sets, one row at a time"
# These need everybody's group to predict, and are compared with each other.
OURS_WITH_GROUPS, RESCALED = "fairconstrained, AUC, with groups", "rescaled group"
TOLERANCE = 2e-3  # excess of a feasible training gap over the slack
TEST_TOLERANCE = 0.015
# Of the training rows, where a data set has its own test rows (the paper's).
TRAINING_FRACTION = 0.9
BOOTSTRAPS = 25


def prepare(data: Bunch, seed: int) -> tuple[Rows, Rows]:
    """Split into training and test rows; a data set's own test rows are kept."""
    if "test" not in data:
        return rate_constrained.prepare(data, seed)
    y, groups = np.asarray(data.target), encode_groups(data.sensitive_features).codes
    strata = y * (groups.max() + 1) + groups
    others = np.flatnonzero(~data.test)
    train, _ = train_test_split(
        others, train_size=TRAINING_FRACTION, stratify=strata[others], random_state=seed
    )
    parts = (
        Rows(data.data[rows], y[rows], groups[rows]) for rows in (train, np.flatnonzero(data.test))
    )
    return next(parts), next(parts)


def measure(
    solver: Any, split: tuple[Rows, Rows], seed: int, *, constraint: str, slack: float
) -> dict[str, Any]:
    """Train and test once."""
    train, test = split
    scored, told = timed_fit(solver, train, constraint=constraint, slack=slack, seed=seed)
    scores = [scored(rows.X, rows.groups) for rows in split]
    errors = [1 - roc_auc_score(r.y, z) for r, z in zip(split, scores, strict=True)]
    gaps = [
        float(np.abs(differences(r.y, r.groups, z, constraint)).max())
        for r, z in zip(split, scores, strict=True)
    ]
    return {
        "train_error": errors[0],
        "test_error": errors[1],
        "train_violation": gaps[0],
        "test_violation": gaps[1],
        "test_deviation": _deviation(test, scores[1], constraint, seed),
        **told,
        "feasible": None if math.isnan(slack) else gaps[0] <= slack + TOLERANCE,
    }


def differences(y: Any, groups: Any, scores: Any, constraint: str) -> NDArray[np.float64]:
    """Return signed differences of true AUCs, one for each comparison of the constraint."""
    n_groups = int(groups.max()) + 1
    comparisons = COMPARISONS[constraint](n_groups)
    cell = y * n_groups + groups
    table = win_table(scores, cell, np.ones(len(y)), 2 * n_groups)
    counts = np.bincount(cell, minlength=2 * n_groups).astype(float)
    return auc_differences(table, counts, comparisons.reshape(len(comparisons), 4, -1))


def _deviation(test: Rows, scores: Any, constraint: str, seed: int) -> float:
    """Return the standard deviation of the differences over resampled test rows."""
    rng = np.random.default_rng(seed)
    drawn = [
        differences(test.y[rows], test.groups[rows], scores[rows], constraint)
        for rows in rng.integers(len(test.y), size=(BOOTSTRAPS, len(test.y)))
    ]
    return float(np.std(drawn, axis=0).max())
