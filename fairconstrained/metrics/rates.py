r"""Differences and ratios between groups of the rates of predicted labels, and largest rates.

Values equal fairlearn's, with one exception: a group without rows of a label that the metric needs
makes the result nan. fairlearn counts its rate as zero, which can look fair. For more than two
classes, which fairlearn does not take, the worst class counts. The independence, separation and
sufficiency gaps are of the benchmark tables of Kliachkin, Lepsova, Bareilles and Marecek,
"Benchmarking Stochastic Approximation Algorithms for Fairness-Constrained Training of Deep Neural
Networks", Section 2 and Table 3; for more than two groups they are the largest gap between any two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fairconstrained import rate_definitions as notions
from fairconstrained.inputs.labels import UNSEEN
from fairconstrained.metrics.inputs import Counts, count_table
from fairconstrained.metrics.metric import gap, highest, metric, ratio, summed_gap


class Rated(NamedTuple):
    """Rates of groups, and how a metric compares them."""

    compare: Callable[..., float]
    notion: notions.Rates
    counts: Counts
    how: tuple[str, ...] = ()  # options of the comparison

    def __float__(self) -> float:
        rates = self.counts.rates(self.notion, by_ratio=self.compare is ratio)
        return self.compare(rates, *self.how)


def groups_or_one(sensitive_features: Any, y_pred: Any) -> Any:
    """Return the groups, or one group of all rows."""
    return np.zeros(len(y_pred)) if sensitive_features is None else sensitive_features


@metric
def demographic_parity_difference(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: Any,
    method: str = "between_groups",
    sample_weight: ArrayLike | None = None,
    pos_label: Any = None,
    control_features: Any = None,
    attributes: str = "crossed",
) -> Rated:
    r"""Return the largest difference between groups in the rate of positive predictions.

    .. math:: \max_{k, g, h} \; P(\hat y = k \mid g) - P(\hat y = k \mid h)

    Returns
    -------
    float
        Between 0 (parity) and 1; nan where a group has no weight.

    Examples
    --------
    >>> from fairconstrained.metrics import demographic_parity_difference
    >>> y, y_pred, groups = [0, 0, 1, 1, 1] * 2, [0, 1, 1, 1, 1, 0, 0, 0, 0, 1], list("aaaaabbbbb")
    >>> round(demographic_parity_difference(y, y_pred, sensitive_features=groups), 4)
    0.6
    """
    counts = count_table(y_true, y_pred, sensitive_features, sample_weight, pos_label)
    return Rated(gap, notions.selection_rates, counts, (method,))


@metric
def demographic_parity_ratio(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: Any,
    method: str = "between_groups",
    sample_weight: ArrayLike | None = None,
    pos_label: Any = None,
    control_features: Any = None,
    attributes: str = "crossed",
) -> Rated:
    r"""Return the smallest ratio between groups of the rate of positive predictions.

    .. math:: \min_{k, g, h} \; P(\hat y = k \mid g) \,/\, P(\hat y = k \mid h)

    The "p% rule".

    Returns
    -------
    float
        Between 0 and 1 (parity); nan where a group has no weight.

    Examples
    --------
    >>> from fairconstrained.metrics import demographic_parity_ratio
    >>> y, y_pred, groups = [0, 0, 1, 1, 1] * 2, [0, 1, 1, 1, 1, 0, 0, 0, 0, 1], list("aaaaabbbbb")
    >>> round(demographic_parity_ratio(y, y_pred, sensitive_features=groups), 4)
    0.25
    """
    counts = count_table(y_true, y_pred, sensitive_features, sample_weight, pos_label)
    return Rated(ratio, notions.selection_rates, counts, (method,))


@metric
def equal_opportunity_difference(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: Any,
    method: str = "between_groups",
    sample_weight: ArrayLike | None = None,
    pos_label: Any = None,
    control_features: Any = None,
    attributes: str = "crossed",
) -> Rated:
    r"""Return the largest difference between groups in the true positive rate.

    .. math:: \max_{c, g, h} \; P(\hat y = c \mid y = c, g) - P(\hat y = c \mid y = c, h)

    (Hardt, Price and Srebro, "Equality of Opportunity in Supervised Learning", 2016.)

    Returns
    -------
    float
        Between 0 (parity) and 1; nan where a group has no rows with label c.

    Examples
    --------
    >>> from fairconstrained.metrics import equal_opportunity_difference
    >>> y, y_pred, groups = [0, 0, 1, 1, 1] * 2, [0, 1, 1, 1, 1, 0, 0, 0, 0, 1], list("aaaaabbbbb")
    >>> round(equal_opportunity_difference(y, y_pred, sensitive_features=groups), 4)
    0.6667
    """
    counts = count_table(y_true, y_pred, sensitive_features, sample_weight, pos_label)
    return Rated(gap, notions.true_positive_rates, counts, (method,))


@metric
def equal_opportunity_ratio(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: Any,
    method: str = "between_groups",
    sample_weight: ArrayLike | None = None,
    pos_label: Any = None,
    control_features: Any = None,
    attributes: str = "crossed",
) -> Rated:
    r"""Return the smallest ratio between groups of the true positive rate.

    .. math:: \min_{c, g, h} \; P(\hat y = c \mid y = c, g) \,/\, P(\hat y = c \mid y = c, h)

    (Hardt, Price and Srebro, "Equality of Opportunity in Supervised Learning", 2016.)

    Returns
    -------
    float
        Between 0 and 1 (parity); nan where a group has no rows with label c.

    Examples
    --------
    >>> from fairconstrained.metrics import equal_opportunity_ratio
    >>> y, y_pred, groups = [0, 0, 1, 1, 1] * 2, [0, 1, 1, 1, 1, 0, 0, 0, 0, 1], list("aaaaabbbbb")
    >>> round(equal_opportunity_ratio(y, y_pred, sensitive_features=groups), 4)
    0.3333
    """
    counts = count_table(y_true, y_pred, sensitive_features, sample_weight, pos_label)
    return Rated(ratio, notions.true_positive_rates, counts, (method,))


@metric
def equalized_odds_difference(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: Any,
    method: str = "between_groups",
    agg: str = "worst_case",
    sample_weight: ArrayLike | None = None,
    pos_label: Any = None,
    control_features: Any = None,
    attributes: str = "crossed",
) -> Rated:
    r"""Return the largest difference between groups in the rates given the true label.

    .. math:: \max_{v, k, g, h} \; P(\hat y = k \mid y = v, g) - P(\hat y = k \mid y = v, h)

    With two classes: the worse of true and false positive rates.
    (Hardt, Price and Srebro, "Equality of Opportunity in Supervised Learning", 2016.)

    Returns
    -------
    float
        Between 0 (parity) and 1; nan where a group has no rows with some label.

    Examples
    --------
    >>> from fairconstrained.metrics import equalized_odds_difference
    >>> y, y_pred, groups = [0, 0, 1, 1, 1] * 2, [0, 1, 1, 1, 1, 0, 0, 0, 0, 1], list("aaaaabbbbb")
    >>> round(equalized_odds_difference(y, y_pred, sensitive_features=groups), 4)
    0.6667
    """
    counts = count_table(y_true, y_pred, sensitive_features, sample_weight, pos_label)
    return Rated(gap, notions.odds, counts, (method, agg))


@metric
def equalized_odds_ratio(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: Any,
    method: str = "between_groups",
    agg: str = "worst_case",
    sample_weight: ArrayLike | None = None,
    pos_label: Any = None,
    control_features: Any = None,
    attributes: str = "crossed",
) -> Rated:
    r"""Return the smallest ratio between groups of the rates given the true label.

    .. math:: \min_{v, k, g, h} \; P(\hat y = k \mid y = v, g) \,/\, P(\hat y = k \mid y = v, h)

    With two classes: the worse of true and false positive rates.
    (Hardt, Price and Srebro, "Equality of Opportunity in Supervised Learning", 2016.)

    Returns
    -------
    float
        Between 0 and 1 (parity); nan where a group has no rows with some label.

    Examples
    --------
    >>> from fairconstrained.metrics import equalized_odds_ratio
    >>> y, y_pred, groups = [0, 0, 1, 1, 1] * 2, [0, 1, 1, 1, 1, 0, 0, 0, 0, 1], list("aaaaabbbbb")
    >>> round(equalized_odds_ratio(y, y_pred, sensitive_features=groups), 4)
    0.0
    """
    counts = count_table(y_true, y_pred, sensitive_features, sample_weight, pos_label)
    return Rated(ratio, notions.odds, counts, (method, agg))


@metric
def false_positive_rate_difference(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: Any,
    method: str = "between_groups",
    sample_weight: ArrayLike | None = None,
    pos_label: Any = None,
    control_features: Any = None,
    attributes: str = "crossed",
) -> Rated:
    r"""Return the largest difference between groups in the false positive rate.

    .. math:: \max_{c, g, h} \; P(\hat y = c \mid y \neq c, g) - P(\hat y = c \mid y \neq c, h)

    Returns
    -------
    float
        Between 0 (parity) and 1; nan where a group has only rows with label c.

    Examples
    --------
    >>> from fairconstrained.metrics import false_positive_rate_difference
    >>> y, y_pred, groups = [0, 0, 1, 1, 1] * 2, [0, 1, 1, 1, 1, 0, 0, 0, 0, 1], list("aaaaabbbbb")
    >>> round(false_positive_rate_difference(y, y_pred, sensitive_features=groups), 4)
    0.5
    """
    counts = count_table(y_true, y_pred, sensitive_features, sample_weight, pos_label)
    return Rated(gap, notions.false_positive_rates, counts, (method,))


@metric
def predictive_parity_difference(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: Any,
    method: str = "between_groups",
    sample_weight: ArrayLike | None = None,
    pos_label: Any = None,
    control_features: Any = None,
    attributes: str = "crossed",
) -> Rated:
    r"""Return the largest difference between groups in the precision.

    .. math:: \max_{c, g, h} \; P(y = c \mid \hat y = c, g) - P(y = c \mid \hat y = c, h)

    "Predictive parity" (Chouldechova 2017). Where nobody of a group is predicted c
    precision is not defined; scikit-learn's ``precision_score`` takes 0, also in fairlearn.

    Returns
    -------
    float
        Between 0 (parity) and 1; nan where label c is never predicted for a group.

    Examples
    --------
    >>> from fairconstrained.metrics import predictive_parity_difference
    >>> y, y_pred, groups = [0, 0, 1, 1, 1] * 2, [0, 1, 1, 1, 1, 0, 0, 0, 0, 1], list("aaaaabbbbb")
    >>> round(predictive_parity_difference(y, y_pred, sensitive_features=groups), 4)
    0.25
    """
    counts = count_table(y_true, y_pred, sensitive_features, sample_weight, pos_label)
    return Rated(gap, notions.precisions, counts, (method,))


@metric
def predictive_parity_ratio(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: Any,
    method: str = "between_groups",
    sample_weight: ArrayLike | None = None,
    pos_label: Any = None,
    control_features: Any = None,
    attributes: str = "crossed",
) -> Rated:
    r"""Return the smallest ratio between groups of the precision.

    .. math:: \min_{c, g, h} \; P(y = c \mid \hat y = c, g) \,/\, P(y = c \mid \hat y = c, h)

    "Predictive parity" (Chouldechova 2017). Where nobody of a group is predicted c
    precision is not defined; scikit-learn's ``precision_score`` takes 0, also in fairlearn.

    Returns
    -------
    float
        Between 0 and 1 (parity); nan where label c is never predicted for a group.

    Examples
    --------
    >>> from fairconstrained.metrics import predictive_parity_ratio
    >>> y, y_pred, groups = [0, 0, 1, 1, 1] * 2, [0, 1, 1, 1, 1, 0, 0, 0, 0, 1], list("aaaaabbbbb")
    >>> round(predictive_parity_ratio(y, y_pred, sensitive_features=groups), 4)
    0.75
    """
    counts = count_table(y_true, y_pred, sensitive_features, sample_weight, pos_label)
    return Rated(ratio, notions.precisions, counts, (method,))


@metric
def false_omission_rate_difference(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: Any,
    method: str = "between_groups",
    sample_weight: ArrayLike | None = None,
    pos_label: Any = None,
    control_features: Any = None,
    attributes: str = "crossed",
) -> Rated:
    r"""Return the largest difference between groups in the false omission rate.

    .. math:: \max_{c, g, h} \; P(y = c \mid \hat y \neq c, g) - P(y = c \mid \hat y \neq c, h)

    Of two labels: of those predicted negative, how many are positive.

    Returns
    -------
    float
        Between 0 (parity) and 1; nan where label c is predicted for all of a group.

    Examples
    --------
    >>> from fairconstrained.metrics import false_omission_rate_difference
    >>> y, y_pred, groups = [0, 0, 1, 1, 1] * 2, [0, 1, 1, 1, 1, 0, 0, 0, 0, 1], list("aaaaabbbbb")
    >>> round(false_omission_rate_difference(y, y_pred, sensitive_features=groups), 4)
    0.5
    """
    counts = count_table(y_true, y_pred, sensitive_features, sample_weight, pos_label)
    return Rated(gap, notions.false_omission_rates, counts, (method,))


@metric
def false_omission_rate_ratio(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: Any,
    method: str = "between_groups",
    sample_weight: ArrayLike | None = None,
    pos_label: Any = None,
    control_features: Any = None,
    attributes: str = "crossed",
) -> Rated:
    r"""Return the smallest ratio between groups of the false omission rate.

    .. math:: \min_{c, g, h} \; P(y = c \mid \hat y \neq c, g) \,/\, P(y = c \mid \hat y \neq c, h)

    Of two labels: of those predicted negative, how many are positive.

    Returns
    -------
    float
        Between 0 and 1 (parity); nan where label c is predicted for all of a group.

    Examples
    --------
    >>> from fairconstrained.metrics import false_omission_rate_ratio
    >>> y, y_pred, groups = [0, 0, 1, 1, 1] * 2, [0, 1, 1, 1, 1, 0, 0, 0, 0, 1], list("aaaaabbbbb")
    >>> round(false_omission_rate_ratio(y, y_pred, sensitive_features=groups), 4)
    0.0
    """
    counts = count_table(y_true, y_pred, sensitive_features, sample_weight, pos_label)
    return Rated(ratio, notions.false_omission_rates, counts, (method,))


@metric
def error_rate_difference(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: Any,
    method: str = "between_groups",
    sample_weight: ArrayLike | None = None,
    control_features: Any = None,
    attributes: str = "crossed",
) -> Rated:
    r"""Return the largest difference between groups in the error rate.

    .. math:: \max_{g, h} \; P(\hat y \neq y \mid g) - P(\hat y \neq y \mid h)

    Returns
    -------
    float
        Between 0 (parity) and 1; nan where a group has no weight.

    Examples
    --------
    >>> from fairconstrained.metrics import error_rate_difference
    >>> y, y_pred, groups = [0, 0, 1, 1, 1] * 2, [0, 1, 1, 1, 1, 0, 0, 0, 0, 1], list("aaaaabbbbb")
    >>> round(error_rate_difference(y, y_pred, sensitive_features=groups), 4)
    0.2
    """
    counts = count_table(y_true, y_pred, sensitive_features, sample_weight)
    return Rated(gap, notions.error_rates, counts, (method,))


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
) -> Rated:
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
    return Rated(gap, notions.selection_rates, counts)


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
) -> Rated:
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
    return Rated(summed_gap, notions.odds, counts)


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
) -> Rated:
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
    return Rated(summed_gap, notions.predictive_values, counts)


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
) -> Rated:
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
    return Rated(highest, notions.false_negative_rates, counts)


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
) -> Rated:
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
    return Rated(highest, notions.false_positive_rates, counts)


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
) -> Rated:
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
    return Rated(highest, notions.rejection_rates, counts)


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
    groups = groups_or_one(sensitive_features, y_pred)
    counts = count_table(y_true, y_pred, groups, sample_weight)
    labels = counts.classes.labels
    if labels[-1] == UNSEEN and counts.classes.targets == [0]:  # the negative label is unseen
        counts, labels = counts._replace(table=counts.table[:, ::-1, ::-1]), labels[::-1]
    rates = notions.expected_costs(costs, len(labels))
    if len(rates) > 1:  # each balanced rate is about a label
        pairs = zip(rates, labels, strict=True)
        rates = [rate._replace(condition=f" with label {label!r}") for rate, label in pairs]
    return float(counts.measured(rates).values().mean(axis=1).max())
