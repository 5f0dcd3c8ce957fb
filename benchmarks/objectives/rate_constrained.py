"""Classification under a rate constraint: error against violation, and the time to get there.

A solver's file gives

* ``METHOD``, the name in tables, and ``OBJECTIVES``, which must list this file's name;
* ``slacks(notion, asked)``: the slacks to run for a notion. ``asked`` for most methods,
  ``[nan]`` for one that has no slack, ``[]`` where the method does not apply;
* ``fit(X, y, sensitive_features, *, notion, slack, seed) -> Fitted``; the call is timed.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.utils import Bunch

from benchmarks import frontier
from fairconstrained import metrics
from fairconstrained.exceptions import ConstraintNotSatisfiedWarning
from fairconstrained.groups import encode_groups

PARAMETERS: dict[str, list[Any]] = {
    "notion": ["demographic_parity", "equalized_odds", "false_negative_rate"],
    "slack": [0.01, 0.02, 0.05, 0.1],
}
# Two for each of train and test: the expectation over the method's own randomness, which is the
# value itself for a deterministic one, and (of the test rows) one draw of its predictions.
COLUMNS = [
    *("train_error", "test_error", "train_violation", "test_violation"),
    *("draw_error", "draw_violation", "fit_time"),
    *("n_rows", "n_features", "n_groups"),
    *("converged", "feasible", "warned", "n_warnings", "warnings"),
]
TOLERANCE = 1e-3  # what a feasible training violation may exceed the slack by
TEST_SIZE = 0.25
ALPHA = 1e-4  # l2 penalty of every logistic model here, ours and the peers' bases


def _overall_fnr(*args: Any, sensitive_features: Any, **kwargs: Any) -> float:
    return metrics.false_negative_rate(*args, **kwargs)


VIOLATIONS: dict[str, Callable[..., float]] = {
    "demographic_parity": metrics.demographic_parity_difference,
    "equalized_odds": metrics.equalized_odds_difference,
    "equal_opportunity": metrics.equal_opportunity_difference,
    "false_positive_rate_parity": metrics.false_positive_rate_difference,
    "error_rate_parity": metrics.error_rate_difference,
    "false_negative_rate": _overall_fnr,
}


class Fitted(NamedTuple):
    """What a solver gives back.

    Attributes
    ----------
    acceptance : callable
        ``acceptance(X, sensitive_features) -> (n,)``: probability that the method predicts 1;
        zeros and ones if its predictions are deterministic.
    converged : bool or None
        None if the method does not say.
    """

    acceptance: Callable[[Any, Any], NDArray[np.float64]]
    converged: bool | None = None


def base_model(n_rows: int) -> LogisticRegression:
    """Give the peers' base: our unconstrained problem, since ALPHA = 1 / (n C)."""
    return LogisticRegression(C=1 / (n_rows * ALPHA), max_iter=1_000)


def dense(X: Any) -> NDArray[np.float64]:
    """Give X as an array: fairlearn takes no sparse matrices."""
    return X.toarray() if sparse.issparse(X) else X


class Rows(NamedTuple):
    """One part of a split."""

    X: Any
    y: NDArray[np.int64]
    groups: NDArray[np.int64]


def prepare(data: Bunch, seed: int) -> tuple[Rows, Rows]:
    """Training and test rows, each with the same shares of every label in every group."""
    y, groups = np.asarray(data.target), encode_groups(data.sensitive_features).codes
    strata = y * (groups.max() + 1) + groups
    parts = train_test_split(
        np.arange(len(y)), test_size=TEST_SIZE, stratify=strata, random_state=seed
    )
    train, test = (Rows(data.data[rows], y[rows], groups[rows]) for rows in parts)
    return train, test


def cells(solver: ModuleType, asked: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """Parameters of the runs of one solver."""
    return [
        {"notion": notion, "slack": slack}
        for notion in asked["notion"]
        for slack in solver.slacks(notion, asked["slack"])
    ]


def measure(
    solver: ModuleType, split: tuple[Rows, Rows], seed: int, *, notion: str, slack: float
) -> dict[str, Any]:
    """Train and test once."""
    train, test = split
    fitted, told = timed_fit(solver, train, notion=notion, slack=slack, seed=seed)
    accepted = [fitted.acceptance(rows.X, rows.groups) for rows in split]
    (train_error, train_violation), (test_error, test_violation) = (
        _quality(rows, accept, notion) for rows, accept in zip(split, accepted, strict=True)
    )
    # fairlearn's randomised methods draw in the same way from the same seed.
    draw = (accepted[1] >= np.random.RandomState(seed).rand(len(test.y))).astype(float)
    draw_error, draw_violation = _quality(test, draw, notion)
    return {
        "train_error": train_error,
        "test_error": test_error,
        "train_violation": train_violation,
        "test_violation": test_violation,
        "draw_error": draw_error,
        "draw_violation": draw_violation,
        **told,
        "n_groups": len(np.unique(train.groups)),
        "converged": fitted.converged,
        "feasible": None if math.isnan(slack) else train_violation <= slack + TOLERANCE,
    }


def timed_fit(solver: ModuleType, train: Rows, **asked: Any) -> tuple[Any, dict[str, Any]]:
    """What a solver gives back, and the columns that tell of the fit itself."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        start = time.perf_counter()
        fitted = solver.fit(*train, **asked)
        fit_time = time.perf_counter() - start
    return fitted, {
        "fit_time": fit_time,
        "n_rows": len(train.y),
        "n_features": train.X.shape[1],
        "warned": any(issubclass(w.category, ConstraintNotSatisfiedWarning) for w in caught),
        "n_warnings": len(caught),
        "warnings": " ".join(sorted({w.category.__name__ for w in caught})),
    }


def _quality(rows: Rows, acceptance: NDArray[np.float64], notion: str) -> tuple[float, float]:
    """Expected error, and violation of the expected rates.

    Each row counts as predicted 1 with weight `acceptance` and as predicted 0 with the rest.
    """
    twice = np.tile(rows.y, 2)
    predicted = np.repeat([1, 0], len(rows.y))
    weight = np.concatenate((acceptance, 1 - acceptance))
    violation = VIOLATIONS[notion](
        twice, predicted, sensitive_features=np.tile(rows.groups, 2), sample_weight=weight
    )
    return float(np.average(twice != predicted, weights=weight)), violation


def report(results: pd.DataFrame, output: Path) -> str:
    """Tables as markdown, and one picture for each data set and notion in `output`."""
    frontier.pictures(results, output)
    return "\n\n".join(
        [
            "## Training violation of fairconstrained against its slack",
            frontier.violation_table(results, "fairconstrained", TOLERANCE),
            "## Error of fairconstrained minus that of a peer at equal violation",
            frontier.comparison_table(results, "fairconstrained"),
            "## All runs",
            frontier.summary_table(results),
        ]
    )
