"""Metrics of predicted labels: gaps and ratios of rates between groups, and worst rates.

Where fairlearn has the metric, the values are fairlearn's, but for a group without rows of a label
that the metric needs: it makes the result nan (there its rate counts as zero, which can look
fair). More than two classes, which fairlearn does not take, give the result of the worst class.
Each function reads the data once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from numpy.typing import ArrayLike

from fairconstrained.metrics import _notions as notions
from fairconstrained.metrics._docs import documented
from fairconstrained.metrics._tables import count_table, gap, ratio, worst

__all__ = [
    "demographic_parity_difference",
    "demographic_parity_ratio",
    "equal_opportunity_difference",
    "equalized_odds_difference",
    "equalized_odds_ratio",
    "error_rate_difference",
    "false_negative_rate",
    "false_positive_rate",
    "false_positive_rate_difference",
    "greater_is_better",
]

Metric = TypeVar("Metric", bound=Callable[..., float])


@documented
def demographic_parity_difference(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: Any,
    method: str = "between_groups",
    sample_weight: ArrayLike | None = None,
    pos_label: Any = None,
) -> float:
    r"""Gap between groups in the rate of positive predictions.

    .. math:: \max_k \; \max_{g, h} \; P(\hat y = k \mid g) - P(\hat y = k \mid h)

    Returns
    -------
    float
        Between 0 (parity) and 1; nan where a group has no weight.

    Examples
    --------
    >>> from fairconstrained.metrics import demographic_parity_difference
    >>> demographic_parity_difference([0, 1, 0, 1], [0, 1, 1, 1], sensitive_features=list("aabb"))
    0.5
    """
    counts = count_table(y_true, y_pred, sensitive_features, sample_weight, pos_label)
    return gap(notions.selections(counts), method)


@documented
def equal_opportunity_difference(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: Any,
    method: str = "between_groups",
    sample_weight: ArrayLike | None = None,
    pos_label: Any = None,
) -> float:
    r"""Gap between groups in the true positive rate.

    .. math:: \max_c \; \max_{g, h} \; P(\hat y = c \mid y = c, g) - P(\hat y = c \mid y = c, h)

    (Hardt, Price and Srebro, "Equality of Opportunity in Supervised Learning", 2016.)

    Returns
    -------
    float
        Between 0 and 1; nan where a group has no rows with label c.

    Examples
    --------
    >>> from fairconstrained.metrics import equal_opportunity_difference
    >>> equal_opportunity_difference([1, 1, 1, 0], [1, 0, 1, 1], sensitive_features=list("aabb"))
    0.5
    """
    counts = count_table(y_true, y_pred, sensitive_features, sample_weight, pos_label)
    return gap(notions.true_positives(counts), method)


@documented
def false_positive_rate_difference(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: Any,
    method: str = "between_groups",
    sample_weight: ArrayLike | None = None,
    pos_label: Any = None,
) -> float:
    r"""Gap between groups in the false positive rate.

    .. math::
        \max_c \; \max_{g, h} \; P(\hat y = c \mid y \neq c, g) - P(\hat y = c \mid y \neq c, h)

    Returns
    -------
    float
        Between 0 and 1; nan where a group has only rows with label c.

    Examples
    --------
    >>> from fairconstrained.metrics import false_positive_rate_difference
    >>> false_positive_rate_difference([0, 0, 0, 1], [1, 0, 0, 1], sensitive_features=list("aabb"))
    0.5
    """
    counts = count_table(y_true, y_pred, sensitive_features, sample_weight, pos_label)
    return gap(notions.false_positives(counts), method)


@documented
def equalized_odds_difference(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: Any,
    method: str = "between_groups",
    agg: str = "worst_case",
    sample_weight: ArrayLike | None = None,
    pos_label: Any = None,
) -> float:
    r"""Gap between groups in the rates of predictions given the true label.

    .. math:: \max_{y, k} \; \max_{g, h} \; P(\hat y = k \mid y, g) - P(\hat y = k \mid y, h)

    With two classes: the larger of the gaps in true and in false positive rate (Hardt, Price and
    Srebro, "Equality of Opportunity in Supervised Learning", 2016).

    Returns
    -------
    float
        Between 0 and 1; nan where a group has no rows with some label.

    Examples
    --------
    >>> from fairconstrained.metrics import equalized_odds_difference
    >>> equalized_odds_difference([0, 1, 0, 1], [0, 1, 1, 1], sensitive_features=list("aabb"))
    1.0
    """
    counts = count_table(y_true, y_pred, sensitive_features, sample_weight, pos_label)
    return gap(notions.odds(counts), method, agg)


@documented
def error_rate_difference(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: Any,
    method: str = "between_groups",
    sample_weight: ArrayLike | None = None,
) -> float:
    r"""Gap between groups in the share of wrong predictions.

    .. math:: \max_{g, h} \; P(\hat y \neq y \mid g) - P(\hat y \neq y \mid h)

    Returns
    -------
    float
        Between 0 and 1; nan where a group has no weight.

    Examples
    --------
    >>> from fairconstrained.metrics import error_rate_difference
    >>> error_rate_difference([0, 1, 0, 1], [0, 1, 1, 1], sensitive_features=list("aabb"))
    0.5
    """
    counts = count_table(y_true, y_pred, sensitive_features, sample_weight)
    return gap(notions.error_rates(counts), method)


def greater_is_better(metric: Metric) -> Metric:
    """Mark a metric that grows with fairness: its scorers keep the sign instead of negating it.

    Parameters
    ----------
    metric : callable
        ``metric(y_true, y_pred, *, sensitive_features, **kwargs) -> float``.

    Returns
    -------
    callable
        The same.

    Examples
    --------
    >>> from fairconstrained.metrics import fairness_scorer, greater_is_better
    >>> @greater_is_better
    ... def share_of_groups_served(y_true, y_pred, *, sensitive_features):
    ...     served = {g for g, p in zip(sensitive_features, y_pred, strict=True) if p}
    ...     return len(served) / len(set(sensitive_features))
    >>> scorer = fairness_scorer(share_of_groups_served)  # its scores are not negated
    """
    metric.greater_is_better = True  # type: ignore[attr-defined]
    return metric


@greater_is_better
@documented
def demographic_parity_ratio(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: Any,
    method: str = "between_groups",
    sample_weight: ArrayLike | None = None,
    pos_label: Any = None,
) -> float:
    r"""Ratio between groups of the rate of positive predictions (the "p% rule").

    .. math:: \min_k \; \min_{g, h} \; P(\hat y = k \mid g) \,/\, P(\hat y = k \mid h)

    Returns
    -------
    float
        Between 0 and 1 (parity); nan where a group has no weight, or where the rate is zero in
        every group (with scikit-learn's ``UndefinedMetricWarning``).

    Examples
    --------
    >>> from fairconstrained.metrics import demographic_parity_ratio
    >>> demographic_parity_ratio([0, 1, 0, 1], [0, 1, 1, 1], sensitive_features=list("aabb"))
    0.5
    """
    counts = count_table(y_true, y_pred, sensitive_features, sample_weight, pos_label)
    return ratio(notions.selections(counts), method)


@greater_is_better
@documented
def equalized_odds_ratio(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: Any,
    method: str = "between_groups",
    agg: str = "worst_case",
    sample_weight: ArrayLike | None = None,
    pos_label: Any = None,
) -> float:
    r"""Ratio between groups of the rates of predictions given the true label.

    .. math:: \min_{y, k} \; \min_{g, h} \; P(\hat y = k \mid y, g) \,/\, P(\hat y = k \mid y, h)

    With two classes: the smaller of the ratios of true and of false positive rates.

    Returns
    -------
    float
        Between 0 and 1 (parity); nan where a group has no rows with some label. Rates that are
        zero in every group are left out (with scikit-learn's ``UndefinedMetricWarning``).

    Examples
    --------
    >>> from fairconstrained.metrics import equalized_odds_ratio
    >>> equalized_odds_ratio([0, 1, 0, 1], [1, 1, 0, 1], sensitive_features=list("aabb"))
    0.0
    """
    counts = count_table(y_true, y_pred, sensitive_features, sample_weight, pos_label)
    return ratio(notions.odds(counts), method, agg)


@documented
def false_negative_rate(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: Any = None,
    sample_weight: ArrayLike | None = None,
    pos_label: Any = None,
) -> float:
    r"""Share of the positives that are predicted negative, in the worst group.

    .. math:: \max_c \; \max_g \; P(\hat y \neq c \mid y = c, g)

    Without `sensitive_features` all rows are one group.

    Returns
    -------
    float
        Between 0 and 1; nan where a group has no rows with label c.

    Examples
    --------
    >>> from fairconstrained.metrics import false_negative_rate
    >>> false_negative_rate([0, 1, 1, 1, 1], [1, 0, 1, 1, 1])
    0.25
    >>> false_negative_rate([0, 1, 1, 1, 1], [1, 0, 1, 1, 1], sensitive_features=list("aaabb"))
    0.5
    """
    groups = _everybody(y_true) if sensitive_features is None else sensitive_features
    counts = count_table(y_true, y_pred, groups, sample_weight, pos_label)
    return worst(notions.false_negatives(counts))


@documented
def false_positive_rate(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: Any = None,
    sample_weight: ArrayLike | None = None,
    pos_label: Any = None,
) -> float:
    r"""Share of the negatives that are predicted positive, in the worst group.

    .. math:: \max_c \; \max_g \; P(\hat y = c \mid y \neq c, g)

    Without `sensitive_features` all rows are one group.

    Returns
    -------
    float
        Between 0 and 1; nan where a group has only rows with label c.

    Examples
    --------
    >>> from fairconstrained.metrics import false_positive_rate
    >>> false_positive_rate([0, 0, 0, 0, 1], [1, 0, 0, 0, 1])
    0.25
    >>> false_positive_rate([0, 0, 0, 0, 1], [1, 0, 0, 0, 1], sensitive_features=list("aabbb"))
    0.5
    """
    groups = _everybody(y_true) if sensitive_features is None else sensitive_features
    counts = count_table(y_true, y_pred, groups, sample_weight, pos_label)
    return worst(notions.false_positives(counts))


def _everybody(y_true: ArrayLike) -> list[str]:
    return ["everybody"] * len(y_true)  # type: ignore[arg-type]
