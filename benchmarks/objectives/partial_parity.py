"""Scores that are fair on an interval of percentiles: accuracy against fairness on test rows.

A data set has, beside the data, ``task``, one of :mod:`benchmarks.partial_tasks`. A solver has
``METHOD``, ``OBJECTIVES`` and ``cells`` as for ``rate_constrained``, and
``fit(train, task, *, constraint, level, seed)``, which is timed and returns ``scores(X, groups)``;
`level` is a position in its own list of slacks, from 1, and `interval` one in those of the task.

All models are linear in the features, the groups and their products, as in the paper. Fairness of
distributions is measured twice: Definition 4.2, and what the paper's tables report, which is one
minus the gap of the unconditional distributions (:func:`fairconstrained.metrics.ccdf_gap`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split
from sklearn.utils import Bunch

from benchmarks.objectives.rate_constrained import Rows, timed_fit
from benchmarks.partial_tasks import Task
from fairconstrained import metrics
from fairconstrained.inputs.groups import encode_groups

PARAMETERS: dict[str, list[Any]] = {
    "constraint": ["statistical_parity", "demographic_parity"],
    "level": [1, 2, 3, 4, 5],
    "interval": [0],
}
COLUMNS = [
    f"{part}_{name}"
    for part in ("train", "test")
    for name in ("loss", "accuracy", "table", "definition", "rates")
] + ["cpu_time", "warnings"]
Scores = Callable[[Any, Any], NDArray[np.float64]]


class Split(NamedTuple):
    """The data of a run."""

    task: Task
    parts: tuple[Rows, Rows]  # training, test


def prepare(data: Bunch, seed: int) -> Split:
    """Draw random parts as in G.1 of the paper."""
    y, groups = np.asarray(data.target), encode_groups(data.sensitive_features).codes
    task, rows = data.task, np.arange(len(y))
    _, validation, test = task.shares
    given = data.get("split")
    if given is None:
        train, last = train_test_split(rows, test_size=test, random_state=seed)
        validation /= 1.0 - test
    else:
        train, last = rows[given == "train"], rows[given == "test"]
    train, _ = train_test_split(train, test_size=validation, random_state=seed)
    first, second = (Rows(data.data[index], y[index], groups[index]) for index in (train, last))
    return Split(task, (first, second))


def measure(solver: Any, split: Split, seed: int, *, interval: int, **asked: Any) -> dict[str, Any]:
    """Train and test once, on one of the intervals of the task."""
    task = replace(split.task, chosen=interval)
    scores, row = timed_fit(solver, split.parts[0], task=task, seed=seed, **asked)
    for part, rows in zip(("train", "test"), split.parts, strict=True):
        row |= {f"{part}_{name}": value for name, value in _quality(scores, rows, task).items()}
    return {name: row[name] for name in COLUMNS}


def _quality(scores: Scores, rows: Rows, task: Task) -> dict[str, float]:
    found = scores(rows.X, rows.groups)
    options = {"sensitive_features": rows.groups, "interval": task.interval}
    return {
        "loss": float(np.logaddexp(0.0, np.where(rows.y, -found, found)).mean()),
        "accuracy": float(np.mean((found > 0) == rows.y)),
        "table": 1.0 - metrics.ccdf_gap(None, found, **options),
        "definition": 1.0 - metrics.partial_statistical_parity(None, found, **options),
        "rates": 1.0 - metrics.partial_demographic_parity(None, found, **options),
    }
