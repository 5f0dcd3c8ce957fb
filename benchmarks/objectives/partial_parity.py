"""Scores that are fair on an interval of percentiles: accuracy against fairness on test rows.

A data set has, beside the data, ``task``, one of :mod:`benchmarks.partial_tasks`. A solver has
``METHOD``, ``OBJECTIVES`` and ``cells`` as for ``rate_constrained``, and
``fit(train, task, *, constraint, level, seed)``, which is timed and returns ``scores(X, groups)``;
`level` is a position in its own list of slacks, from 1.

All models are linear in the features, the groups and their products, as in the paper. Fairness of
distributions is measured twice: Definition 4.2, and what the paper's tables report, which is one
minus the gap of the unconditional distributions (:func:`fairconstrained.metrics.ccdf_gap`).
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split
from sklearn.utils import Bunch

from benchmarks.objectives.rate_constrained import Rows
from benchmarks.partial_tasks import Task
from fairconstrained import metrics
from fairconstrained.inputs.groups import encode_groups

PARAMETERS: dict[str, list[Any]] = {
    "constraint": ["statistical_parity", "demographic_parity"],
    "level": [1, 2, 3, 4, 5],
}
COLUMNS = [
    f"{part}_{name}"
    for part in ("train", "test")
    for name in ("accuracy", "table", "definition", "rates")
] + ["fit_time", "cpu_time", "warnings"]
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


def measure(solver: Any, split: Split, seed: int, *, constraint: str, level: int) -> dict[str, Any]:
    """Train and test once."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        start, cpu = time.perf_counter(), time.process_time()
        scores = solver.fit(
            split.parts[0], split.task, constraint=constraint, level=level, seed=seed
        )
        taken = time.perf_counter() - start, time.process_time() - cpu
    row: dict[str, Any] = {}
    for part, rows in zip(("train", "test"), split.parts, strict=True):
        row |= {f"{part}_{name}": value for name, value in _quality(scores, rows, split).items()}
    return row | {
        "fit_time": taken[0],
        "cpu_time": taken[1],
        "warnings": " ".join(sorted({w.category.__name__ for w in caught})),
    }


def _quality(scores: Scores, rows: Rows, split: Split) -> dict[str, float]:
    found = scores(rows.X, rows.groups)
    options = {"sensitive_features": rows.groups, "interval": split.task.interval}
    return {
        "accuracy": float(np.mean((found > 0) == rows.y)),
        "table": 1.0 - metrics.ccdf_gap(None, found, **options),
        "definition": 1.0 - metrics.partial_statistical_parity(None, found, **options),
        "rates": 1.0 - metrics.partial_demographic_parity(None, found, **options),
    }
