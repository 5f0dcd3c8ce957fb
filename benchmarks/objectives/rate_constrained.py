"""Classification under a rate constraint: error against violation, and the time it takes.

A solver has

* ``METHOD``, the name in tables, and ``OBJECTIVES``, the names of objectives that it is for;
* ``fit(train, *, constraint, slack, seed) -> Fitted`` of :class:`Rows`; the call is timed, in
  processor seconds;
* optionally ``cells(asked)``: the parameters of its runs, if these are not all that are asked for.

With ``private_rates`` its ``fit`` also gets a budget ``epsilon`` of the record (delta is 1e-5; nan
for none), with ``dp_fermi`` in place of the slack a ``penalty`` on mutual information and the
``unit`` of privacy. The published curves of DP-FERMI are in ``benchmarks/published/dp_fermi.csv``.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.utils import Bunch

from fairconstrained import metrics
from fairconstrained.exceptions import ConstraintNotSatisfiedWarning
from fairconstrained.inputs.groups import encode_groups

# Errors and violations are expectations over the method's own randomness.
COLUMNS = [
    *("train_error", "test_error", "train_violation", "test_violation", "cpu_time"),
    *("n_rows", "n_features", "n_groups"),
    *("converged", "feasible", "warned", "n_warnings", "warnings"),
]
TOLERANCE = 1e-3  # excess of a feasible training violation over the slack
TEST_SIZE = 0.25
ALPHA = 1e-4  # l2 penalty of every logistic model here, ours and the peers' bases
DELTA = 1e-5  # of private training


def _overall_fnr(*args: Any, sensitive_features: Any, **kwargs: Any) -> float:
    return metrics.false_negative_rate(*args, **kwargs)


VIOLATIONS: dict[str, Callable[..., float]] = {
    "demographic_parity": metrics.demographic_parity_difference,
    "equalized_odds": metrics.equalized_odds_difference,
    "equal_opportunity": metrics.equal_opportunity_difference,
    "false_negative_rate": _overall_fnr,
}


class Fitted(NamedTuple):
    """A trained method.

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
    """Return the peers' base: our unconstrained problem, since ALPHA = 1 / (n C)."""
    return LogisticRegression(C=1 / (n_rows * ALPHA), max_iter=1_000)


def dense(X: Any) -> NDArray[np.float64]:
    """Return X as an array: fairlearn takes no sparse matrices."""
    return X.toarray() if sparse.issparse(X) else X


class Rows(NamedTuple):
    """One part of a split."""

    X: Any
    y: NDArray[np.int64]
    groups: NDArray[np.int64]


def prepare(data: Bunch, seed: int) -> tuple[Rows, Rows]:
    """Split into training and test rows, with the same fractions of each label in each group."""
    y, groups = np.asarray(data.target), encode_groups(data.sensitive_features).codes
    strata = y * (groups.max() + 1) + groups
    parts = train_test_split(
        np.arange(len(y)), test_size=TEST_SIZE, stratify=strata, random_state=seed
    )
    train, test = (Rows(data.data[rows], y[rows], groups[rows]) for rows in parts)
    return train, test


def measure(solver: Any, split: tuple[Rows, Rows], seed: int, **asked: Any) -> dict[str, Any]:
    """Train and test once."""
    train, constraint, slack = split[0], asked["constraint"], asked.get("slack", math.nan)
    fitted, told = timed_fit(solver, train, seed=seed, **asked)
    accepted = [fitted.acceptance(rows.X, rows.groups) for rows in split]
    (train_error, train_violation), (test_error, test_violation) = (
        quality(rows.y, rows.groups, accept, constraint)
        for rows, accept in zip(split, accepted, strict=True)
    )
    return {
        "train_error": train_error,
        "test_error": test_error,
        "train_violation": train_violation,
        "test_violation": test_violation,
        **told,
        "n_groups": len(np.unique(train.groups)),
        "converged": fitted.converged,
        "feasible": None if math.isnan(slack) else train_violation <= slack + TOLERANCE,
    }


def timed_fit(solver: Any, train: Rows, **asked: Any) -> tuple[Any, dict[str, Any]]:
    """Train, and return the columns that describe the fit itself."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        start = time.process_time()
        fitted = solver.fit(train, **asked)
        cpu_time = time.process_time() - start
    return fitted, {
        "cpu_time": cpu_time,
        "n_rows": len(train.y),
        "n_features": train.X.shape[1],
        "warned": any(issubclass(w.category, ConstraintNotSatisfiedWarning) for w in caught),
        "n_warnings": len(caught),
        "warnings": " ".join(sorted({w.category.__name__ for w in caught})),
    }


def quality(
    y: NDArray[Any], groups: NDArray[Any], accepted: NDArray[np.float64], constraint: str
) -> tuple[float, float]:
    """Return the expected error, and the violation of the expected rates.

    Each row counts as predicted 1 with weight `accepted` and as predicted 0 with the rest.
    """
    twice, predicted = np.tile(y, 2), np.repeat([1, 0], len(y))
    weight = np.concatenate((accepted, 1 - accepted))
    violation = VIOLATIONS[constraint](
        twice, predicted, sensitive_features=np.tile(groups, 2), sample_weight=weight
    )
    return float(np.average(twice != predicted, weights=weight)), violation


PARAMETERS: dict[str, dict[str, list[Any]]] = {
    "rate_constrained": {
        "constraint": ["demographic_parity", "equalized_odds", "false_negative_rate"],
        "slack": [0.01, 0.02, 0.05, 0.1],
    },
    "private_rates": {
        "constraint": ["demographic_parity"],
        "epsilon": [0.1, 0.5, 1.0, 2.0, 9.0],
        "slack": [0.02, 0.05, 0.1],
    },
    "dp_fermi": {
        "constraint": ["demographic_parity", "equalized_odds"],
        "unit": ["sensitive_features", "record"],
        "epsilon": [0.5, 1.0, 3.0, 9.0],
        "penalty": [0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0],
    },
}
OBJECTIVES = {
    name: SimpleNamespace(PARAMETERS=asked, COLUMNS=COLUMNS, prepare=prepare, measure=measure)
    for name, asked in PARAMETERS.items()
}
