"""The mutual information of predicted labels and groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fairconstrained.arrays import Floats
from fairconstrained.metrics.inputs import Counts, count_table
from fairconstrained.metrics.metric import choose, metric, warn_absent, warn_single_group


@metric
def exponential_renyi_mutual_information(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: Any,
    constraint: str = "demographic_parity",
    sample_weight: ArrayLike | None = None,
    pos_label: Any = None,
    control_features: Any = None,
    attributes: str = "crossed",
) -> float:
    r"""Return the chi-square mutual information of predicted labels and groups (ERMI).

    .. math:: \sum_{j, r} \frac{P(\hat y = j, s = r)^2}{P(\hat y = j)\, P(s = r)} - 1

    Equalized odds takes the mean, weighted by frequency, of the information among the rows of each
    true label; equal opportunity takes the information among the rows of the positive label (with
    more than two labels it is as for equalized odds).

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
    counts = count_table(y_true, y_pred, sensitive_features, sample_weight, pos_label)
    tables, groups = _conditioned(counts, constraint, pos_label), counts.groups
    occurs = tables.sum(axis=(1, 2)) > 0  # other labels have no weight
    tables = tables[occurs] if occurs.any() else tables
    empty = tables.sum(axis=2).min(axis=0) <= 0
    if empty.any():
        named = [groups[g] for g in np.flatnonzero(empty)]
        warn_absent([f"group {name} has no rows to compare" for name in named])
        return float("nan")
    if len(groups) == 1:
        warn_single_group(groups[0])
        return float("nan")
    information = []
    for table in tables:
        joint = table[:, table.sum(axis=0) > 0] / table.sum()
        independent = np.outer(joint.sum(axis=1), joint.sum(axis=0))
        information.append((joint**2 / independent).sum() - 1.0)
    return float(np.average(information, weights=tables.sum(axis=(1, 2))))


def _conditioned(counts: Counts, constraint: str, pos_label: Any) -> Floats:
    """Return weights (n_conditions, n_groups, n_classes); `pos_label` merges the other classes."""
    classes = counts.classes
    if constraint == "equal_opportunity":
        classes.require_known()
    if pos_label is not None:
        positive = np.eye(len(classes.labels))[classes.targets[0]]
        two, classes = np.stack((1.0 - positive, positive)), classes._replace(targets=[1])
        counts = counts._replace(table=two @ counts.table @ two.T)
    by_label = counts.table.swapaxes(0, 1)
    tables: dict[str, Callable[[], Floats]] = {
        "demographic_parity": lambda: by_label.sum(axis=0)[None],
        "equalized_odds": lambda: by_label,
        "equal_opportunity": lambda: by_label[classes.targets],
    }
    return choose(tables, "constraint", constraint)()
