"""Largest rates and expected costs of any group; without groups, of all rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fairconstrained.inputs.labels import UNSEEN
from fairconstrained.metrics.inputs import count_table
from fairconstrained.metrics.metric import GroupRates, highest, metric
from fairconstrained.rate_definitions import (
    expected_costs,
    false_negative_rates,
    false_positive_rates,
    rejection_rates,
)


def groups_or_one(sensitive_features: Any, y_pred: Any) -> Any:
    """Return the groups, or one group of all rows."""
    return np.zeros(len(y_pred)) if sensitive_features is None else sensitive_features


@metric
def false_negative_rate(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: Any = None,
    sample_weight: ArrayLike | None = None,
    pos_label: Any = None,
    control_features: Any = None,
    attributes: str = "crossed",
) -> float:
    r"""Return the largest false negative rate of any group.

    .. math:: \max_{c, g} \; P(\hat y \neq c \mid y = c, g)

    Without `sensitive_features` all rows are one group.

    Returns
    -------
    float
        Between 0 and 1; nan where a group has no rows with label c.

    Examples
    --------
    >>> from fairconstrained.metrics import false_negative_rate
    >>> y, y_pred, groups = [0, 0, 1, 1, 1] * 2, [0, 1, 1, 1, 1, 0, 0, 0, 0, 1], list("aaaaabbbbb")
    >>> round(false_negative_rate(y, y_pred, sensitive_features=groups), 4)
    0.6667
    """
    groups = groups_or_one(sensitive_features, y_pred)
    counts = count_table(y_true, y_pred, groups, sample_weight, pos_label)
    return highest(counts.rates(false_negative_rates))


@metric
def false_positive_rate(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: Any = None,
    sample_weight: ArrayLike | None = None,
    pos_label: Any = None,
    control_features: Any = None,
    attributes: str = "crossed",
) -> float:
    r"""Return the largest false positive rate of any group.

    .. math:: \max_{c, g} \; P(\hat y = c \mid y \neq c, g)

    Without `sensitive_features` all rows are one group.

    Returns
    -------
    float
        Between 0 and 1; nan where a group has only rows with label c.

    Examples
    --------
    >>> from fairconstrained.metrics import false_positive_rate
    >>> y, y_pred, groups = [0, 0, 1, 1, 1] * 2, [0, 1, 1, 1, 1, 0, 0, 0, 0, 1], list("aaaaabbbbb")
    >>> round(false_positive_rate(y, y_pred, sensitive_features=groups), 4)
    0.5
    """
    groups = groups_or_one(sensitive_features, y_pred)
    counts = count_table(y_true, y_pred, groups, sample_weight, pos_label)
    return highest(counts.rates(false_positive_rates))


@metric
def rejection_rate(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: Any = None,
    sample_weight: ArrayLike | None = None,
    pos_label: Any = None,
    control_features: Any = None,
    attributes: str = "crossed",
) -> float:
    r"""Return the largest rejection rate of any group.

    .. math:: \max_{c, g} \; P(\hat y \neq c \mid g)

    One minus the smallest rate of the outcome c. Without `sensitive_features` all rows are one
    group.

    Returns
    -------
    float
        Between 0 and 1; nan where a group has no weight.

    Examples
    --------
    >>> from fairconstrained.metrics import rejection_rate
    >>> y, y_pred, groups = [0, 0, 1, 1, 1] * 2, [0, 1, 1, 1, 1, 0, 0, 0, 0, 1], list("aaaaabbbbb")
    >>> round(rejection_rate(y, y_pred, sensitive_features=groups), 4)
    0.8
    """
    groups = groups_or_one(sensitive_features, y_pred)
    counts = count_table(y_true, y_pred, groups, sample_weight, pos_label)
    return highest(counts.rates(rejection_rates))


@metric
def expected_cost(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    costs: Any = None,
    sensitive_features: Any = None,
    sample_weight: ArrayLike | None = None,
    control_features: Any = None,
    attributes: str = "crossed",
) -> float:
    r"""Return the mean cost of predictions, overall or in the worst group.

    .. math:: \max_g \; E[c(y, \hat y) \mid g]

    Without `sensitive_features` all rows are one group. Costs of 1 for each error, the default,
    give the error rate, "balanced" ones 1 less the balanced accuracy.

    Returns
    -------
    float
        nan where a group has no weight, or, balanced, no rows with some label.

    Examples
    --------
    >>> from fairconstrained.metrics import expected_cost
    >>> y_true, y_pred = [0, 0, 0, 1], [0, 0, 1, 0]
    >>> expected_cost(y_true, y_pred, costs=[[0, 1], [5, 0]])  # (1 + 5) / 4
    1.5
    >>> expected_cost(y_true, y_pred), round(expected_cost(y_true, y_pred, costs="balanced"), 3)
    (0.5, 0.667)
    """
    counts = count_table(y_true, y_pred, groups_or_one(sensitive_features, y_pred), sample_weight)
    table, classes = counts.table, counts.classes
    if classes.labels[-1] == UNSEEN and classes.targets == [0]:  # the negative label is unseen
        table, classes = table[:, ::-1, ::-1], classes._replace(labels=classes.labels[::-1])
    rates = expected_costs(costs, len(classes.labels))
    hits, rows = (
        np.stack([(table * weights).sum(axis=(1, 2)) for weights in tables], axis=1)
        for tables in ([rate.hits for rate in rates], [rate.possible for rate in rates])
    )
    labels = classes.labels if len(rates) > 1 else []  # each balanced rate is about a label
    conditions = [f" with label {label!r}" for label in labels] or [""]
    return float(GroupRates(hits, rows, conditions, counts.groups).values().mean(axis=1).max())
