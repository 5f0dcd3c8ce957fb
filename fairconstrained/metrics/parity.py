r"""Differences and ratios between groups of the rates of predicted labels.

Values equal fairlearn's, with one exception: a group without rows of a label that the metric needs
makes the result nan. fairlearn counts its rate as zero, which can look fair. For more than two
classes, which fairlearn does not take, the worst class counts.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike

from fairconstrained.metrics.inputs import count_table
from fairconstrained.metrics.metric import gap, metric, ratio
from fairconstrained.rate_definitions import (
    error_rates,
    false_omission_rates,
    false_positive_rates,
    odds,
    precisions,
    selection_rates,
    true_positive_rates,
)


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
) -> float:
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
    return gap(counts.rates(selection_rates), method)


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
) -> float:
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
    return ratio(counts.rates(selection_rates, by_ratio=True), method)


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
) -> float:
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
    return gap(counts.rates(true_positive_rates), method)


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
) -> float:
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
    return ratio(counts.rates(true_positive_rates, by_ratio=True), method)


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
) -> float:
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
    return gap(counts.rates(odds), method, agg)


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
) -> float:
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
    return ratio(counts.rates(odds, by_ratio=True), method, agg)


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
) -> float:
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
    return gap(counts.rates(false_positive_rates), method)


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
) -> float:
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
    return gap(counts.rates(precisions), method)


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
) -> float:
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
    return ratio(counts.rates(precisions, by_ratio=True), method)


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
) -> float:
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
    return gap(counts.rates(false_omission_rates), method)


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
) -> float:
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
    return ratio(counts.rates(false_omission_rates, by_ratio=True), method)


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
) -> float:
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
    return gap(counts.rates(error_rates), method)
