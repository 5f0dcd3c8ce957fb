r"""Measures of how much predicted labels depend on the groups.

The summed gaps are of the benchmark tables of Kliachkin, Lepsova, Bareilles and Marecek,
"Benchmarking Stochastic Approximation Algorithms for Fairness-Constrained Training of Deep Neural
Networks", Section 2 and Table 3. For more than two groups they are the largest gap between any two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fairconstrained.arrays import Floats
from fairconstrained.metrics.inputs import Counts, count_table
from fairconstrained.metrics.metric import (
    choose,
    gap,
    metric,
    summed_gap,
    warn_absent,
    warn_single_group,
)
from fairconstrained.rate_definitions import odds, predictive_values, selection_rates


@metric
def independence_gap(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: Any,
    sample_weight: ArrayLike | None = None,
    pos_label: Any = None,
    control_features: Any = None,
    attributes: str = "crossed",
) -> float:
    r"""Return the largest difference between groups in the rate of positive predictions.

    .. math:: \max_{k, g, h} \; P(\hat y = k \mid g) - P(\hat y = k \mid h)

    "Ind" in Table 3 of the benchmark of Kliachkin et al.: another name for
    :func:`~fairconstrained.metrics.demographic_parity_difference`.

    Returns
    -------
    float
        Between 0 (parity) and 1; nan where a group has no weight.

    Examples
    --------
    >>> from fairconstrained.metrics import independence_gap
    >>> y, y_pred, groups = [0, 0, 1, 1, 1] * 2, [0, 1, 1, 1, 1, 0, 0, 0, 0, 1], list("aaaaabbbbb")
    >>> round(independence_gap(y, y_pred, sensitive_features=groups), 4)
    0.6
    """
    counts = count_table(y_true, y_pred, sensitive_features, sample_weight, pos_label)
    return gap(counts.rates(selection_rates))


@metric
def separation_gap(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: Any,
    sample_weight: ArrayLike | None = None,
    pos_label: Any = None,
    control_features: Any = None,
    attributes: str = "crossed",
) -> float:
    r"""Return the sum of gaps between groups in the predictions given the true label.

    .. math:: \sum_v | P(\hat y = + \mid y = v, g) - P(\hat y = + \mid y = v, h) |

    "Sp" in Table 3 of the benchmark of Kliachkin et al.

    Returns
    -------
    float
        Between 0 and the number of labels; nan where a group has no rows with some label.

    Examples
    --------
    >>> from fairconstrained.metrics import separation_gap
    >>> y, y_pred, groups = [0, 0, 1, 1, 1] * 2, [0, 1, 1, 1, 1, 0, 0, 0, 0, 1], list("aaaaabbbbb")
    >>> round(separation_gap(y, y_pred, sensitive_features=groups), 4)
    1.1667
    """
    counts = count_table(y_true, y_pred, sensitive_features, sample_weight, pos_label)
    return summed_gap(counts.rates(odds))


@metric
def sufficiency_gap(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: Any,
    sample_weight: ArrayLike | None = None,
    pos_label: Any = None,
    control_features: Any = None,
    attributes: str = "crossed",
) -> float:
    r"""Return the sum of gaps between groups in the labels given the prediction.

    .. math:: \sum_v | P(y = + \mid \hat y = v, g) - P(y = + \mid \hat y = v, h) |

    "Sf" in Table 3 of the benchmark of Kliachkin et al.

    Returns
    -------
    float
        Between 0 and the number of labels; nan where some label is never predicted for a group.

    Examples
    --------
    >>> from fairconstrained.metrics import sufficiency_gap
    >>> y, y_pred, groups = [0, 0, 1, 1, 1] * 2, [0, 1, 1, 1, 1, 0, 0, 0, 0, 1], list("aaaaabbbbb")
    >>> round(sufficiency_gap(y, y_pred, sensitive_features=groups), 4)
    0.75
    """
    counts = count_table(y_true, y_pred, sensitive_features, sample_weight, pos_label)
    return summed_gap(counts.rates(predictive_values))


@metric
def exponential_renyi_mutual_information(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: Any,
    sample_weight: ArrayLike | None = None,
    pos_label: Any = None,
    constraint: str = "demographic_parity",
    control_features: Any = None,
    attributes: str = "crossed",
) -> float:
    r"""Return the chi-square mutual information of predicted labels and groups (ERMI).

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
    """Return weights (n_conditions, n_groups, n_classes); `pos_label` leaves two classes."""
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
