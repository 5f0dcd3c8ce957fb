"""Mutual information of predictions and groups, the measure that DP-FERMI penalises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fairconstrained.arrays import Floats
from fairconstrained.metrics._metric import documented
from fairconstrained.metrics._tables import (
    Counts,
    choose,
    count_table,
    warn_absent,
    warn_single_group,
)

# The tables (n_conditions, n_groups, n_classes predicted) of which a notion is the mean.
CONDITIONS: dict[str, Callable[[Counts], Floats]] = {
    "demographic_parity": lambda counts: counts.table.sum(axis=1)[None],
    "equalized_odds": lambda counts: counts.table.swapaxes(0, 1),
    "equal_opportunity": lambda counts: counts.table.swapaxes(0, 1)[counts.targets],
}


@documented
def exponential_renyi_mutual_information(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: Any,
    sample_weight: ArrayLike | None = None,
    pos_label: Any = None,
    constraint: str = "demographic_parity",
) -> float:
    r"""Chi-square mutual information of predicted labels and groups (ERMI).

    .. math:: \sum_{j, r} \frac{P(\hat y = j, s = r)^2}{P(\hat y = j)\, P(s = r)} - 1

    For equalized odds it is the mean over the true labels, weighted by their frequencies, of the
    information among the rows of each; for equal opportunity that among the rows of the positive
    label (with more than two labels as for equalized odds).

    Returns
    -------
    float
        Zero if and only if predictions and groups are independent; at most the smaller number of
        groups or classes, minus 1. nan where a group has no weight.

    Notes
    -----
    For two groups with fractions p and 1 - p of the rows, a rate of positive predictions P and a
    gap d between the groups' rates, it is :math:`d^2 p (1 - p) / (P (1 - P))`. Labels that are
    never predicted add nothing.

    References
    ----------
    Lowy, Gupta and Razaviyayn, "Stochastic Differentially Private and Fair Learning",
    Theorem 3.1.

    Examples
    --------
    >>> from fairconstrained.metrics import exponential_renyi_mutual_information
    >>> y_pred, groups = [0, 1, 0, 1], ["a", "a", "b", "b"]
    >>> exponential_renyi_mutual_information(y_pred, y_pred, sensitive_features=groups)
    0.0
    >>> exponential_renyi_mutual_information(y_pred, y_pred, sensitive_features=["a", "b"] * 2)
    1.0
    """
    counts = counted(y_true, y_pred, sensitive_features, sample_weight, pos_label)
    tables = choose(CONDITIONS, "constraint", constraint)(counts)
    tables = tables[tables.sum(axis=(1, 2)) > 0]  # labels that do not occur have no weight
    empty = tables.sum(axis=2).min(axis=0) <= 0
    if empty.any():
        named = [counts.groups[g] for g in np.flatnonzero(empty)]
        warn_absent([f"group {name} has no rows to compare" for name in named])
        return float("nan")
    if len(counts.groups) == 1:
        warn_single_group(counts.groups[0])
        return 0.0
    return float(np.average([_ermi(table) for table in tables], weights=tables.sum(axis=(1, 2))))


def counted(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    sensitive_features: Any,
    sample_weight: ArrayLike | None,
    pos_label: Any,
) -> Counts:
    """The table of all classes, or of all others as one and that of `pos_label`, last."""
    counts = count_table(y_true, y_pred, sensitive_features, sample_weight, pos_label)
    if pos_label is None:
        return counts
    (target,) = counts.targets
    order = [c for c in range(len(counts.classes)) if c != target] + [target]
    table = np.add.reduceat(counts.table[:, order][:, :, order], [0, len(order) - 1], axis=1)
    table = np.add.reduceat(table, [0, len(order) - 1], axis=2)
    return counts._replace(table=table, candidates=[1])


def _ermi(table: Floats) -> float:
    joint = table[:, table.sum(axis=0) > 0] / table.sum()
    independent = np.outer(joint.sum(axis=1), joint.sum(axis=0))
    return float((joint**2 / independent).sum() - 1.0)
