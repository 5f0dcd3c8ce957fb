r"""Differences and ratios between groups of the rates of predicted labels.

Values equal fairlearn's, with one exception: a group without rows of a label that the metric needs
makes the result nan. fairlearn counts its rate as zero, which can look fair. For more than two
classes, which fairlearn does not take, the worst class counts.
"""

from __future__ import annotations

from fairconstrained.metrics.measures import Comparison, between, between_errors, between_several
from fairconstrained.metrics.metric import examples, gap, measuring, ratio
from fairconstrained.rate_definitions import (
    error_rates,
    false_omission_rates,
    false_positive_rates,
    odds,
    precisions,
    selection_rates,
    true_positive_rates,
)


@measuring(between, Comparison(gap, selection_rates), 0.375)
def demographic_parity_difference() -> None:
    r"""Return the largest difference between groups in the rate of positive predictions.

    .. math:: \max_{k, g, h} \; P(\hat y = k \mid g) - P(\hat y = k \mid h)

    Returns
    -------
    float
        Between 0 (parity) and 1; nan where a group has no weight.
    """


@measuring(between, Comparison(ratio, selection_rates), 0.5)
def demographic_parity_ratio() -> None:
    r"""Return the smallest ratio between groups of the rate of positive predictions.

    .. math:: \min_{k, g, h} \; P(\hat y = k \mid g) \,/\, P(\hat y = k \mid h)

    The "p% rule".

    Returns
    -------
    float
        Between 0 and 1 (parity); nan where a group has no weight. Rates that are zero in
        every group are left out (with scikit-learn's ``UndefinedMetricWarning``).
    """


@measuring(between, Comparison(gap, true_positive_rates), 0.5)
def equal_opportunity_difference() -> None:
    r"""Return the largest difference between groups in the true positive rate.

    .. math:: \max_{c, g, h} \; P(\hat y = c \mid y = c, g) - P(\hat y = c \mid y = c, h)

    (Hardt, Price and Srebro, "Equality of Opportunity in Supervised Learning", 2016.)

    Returns
    -------
    float
        Between 0 (parity) and 1; nan where a group has no rows with label c.
    """


@measuring(between, Comparison(ratio, true_positive_rates), 0.5)
def equal_opportunity_ratio() -> None:
    r"""Return the smallest ratio between groups of the true positive rate.

    .. math:: \min_{c, g, h} \; P(\hat y = c \mid y = c, g) \,/\, P(\hat y = c \mid y = c, h)

    (Hardt, Price and Srebro, "Equality of Opportunity in Supervised Learning", 2016.)

    Returns
    -------
    float
        Between 0 and 1 (parity); nan where a group has no rows with label c. Rates that are
        zero in every group are left out (with scikit-learn's ``UndefinedMetricWarning``).
    """


@measuring(between_several, Comparison(gap, odds), 0.5)
def equalized_odds_difference() -> None:
    r"""Return the largest difference between groups in the rates given the true label.

    .. math:: \max_{v, k, g, h} \; P(\hat y = k \mid y = v, g) - P(\hat y = k \mid y = v, h)

    With two classes: the worse of true and false positive rates.
    (Hardt, Price and Srebro, "Equality of Opportunity in Supervised Learning", 2016.)

    Returns
    -------
    float
        Between 0 (parity) and 1; nan where a group has no rows with some label.
    """


@measuring(between_several, Comparison(ratio, odds), 0.5)
def equalized_odds_ratio() -> None:
    r"""Return the smallest ratio between groups of the rates given the true label.

    .. math:: \min_{v, k, g, h} \; P(\hat y = k \mid y = v, g) \,/\, P(\hat y = k \mid y = v, h)

    With two classes: the worse of true and false positive rates.
    (Hardt, Price and Srebro, "Equality of Opportunity in Supervised Learning", 2016.)

    Returns
    -------
    float
        Between 0 and 1 (parity); nan where a group has no rows with some label. Rates that are
        zero in every group are left out (with scikit-learn's ``UndefinedMetricWarning``).
    """


@measuring(between, Comparison(gap, false_positive_rates), 0.25)
def false_positive_rate_difference() -> None:
    r"""Return the largest difference between groups in the false positive rate.

    .. math:: \max_{c, g, h} \; P(\hat y = c \mid y \neq c, g) - P(\hat y = c \mid y \neq c, h)

    Returns
    -------
    float
        Between 0 (parity) and 1; nan where a group has only rows with label c.
    """


@measuring(between, Comparison(gap, precisions), 0.0)
def predictive_parity_difference() -> None:
    r"""Return the largest difference between groups in the precision.

    .. math:: \max_{c, g, h} \; P(y = c \mid \hat y = c, g) - P(y = c \mid \hat y = c, h)

    "Predictive parity" (Chouldechova 2017). Where nobody of a group is predicted c
    precision is not defined; scikit-learn's ``precision_score`` takes 0, also in fairlearn.

    Returns
    -------
    float
        Between 0 (parity) and 1; nan where label c is never predicted for a group.
    """


@measuring(between, Comparison(ratio, precisions), 1.0)
def predictive_parity_ratio() -> None:
    r"""Return the smallest ratio between groups of the precision.

    .. math:: \min_{c, g, h} \; P(y = c \mid \hat y = c, g) \,/\, P(y = c \mid \hat y = c, h)

    "Predictive parity" (Chouldechova 2017). Where nobody of a group is predicted c
    precision is not defined; scikit-learn's ``precision_score`` takes 0, also in fairlearn.

    Returns
    -------
    float
        Between 0 and 1 (parity); nan where label c is never predicted for a group. Rates that are
        zero in every group are left out (with scikit-learn's ``UndefinedMetricWarning``).
    """


@measuring(between, Comparison(gap, false_omission_rates), 0.4)
def false_omission_rate_difference() -> None:
    r"""Return the largest difference between groups in the false omission rate.

    .. math:: \max_{c, g, h} \; P(y = c \mid \hat y \neq c, g) - P(y = c \mid \hat y \neq c, h)

    Of two labels: of those predicted negative, how many are positive.

    Returns
    -------
    float
        Between 0 (parity) and 1; nan where label c is predicted for all of a group.
    """


@measuring(between, Comparison(ratio, false_omission_rates), 0.0)
def false_omission_rate_ratio() -> None:
    r"""Return the smallest ratio between groups of the false omission rate.

    .. math:: \min_{c, g, h} \; P(y = c \mid \hat y \neq c, g) \,/\, P(y = c \mid \hat y \neq c, h)

    Of two labels: of those predicted negative, how many are positive.

    Returns
    -------
    float
        Between 0 and 1 (parity); nan where label c is predicted for all of a group. Rates that are
        zero in every group are left out (with scikit-learn's ``UndefinedMetricWarning``).
    """


@measuring(between_errors, Comparison(gap, error_rates), 0.125)
def error_rate_difference() -> None:
    r"""Return the largest difference between groups in the error rate.

    .. math:: \max_{g, h} \; P(\hat y \neq y \mid g) - P(\hat y \neq y \mid h)

    Returns
    -------
    float
        Between 0 (parity) and 1; nan where a group has no weight.
    """


__test__ = examples(globals())
