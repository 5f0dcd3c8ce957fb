r"""Metrics of predicted labels: a rate of each group, compared between the groups.

``<rate>_difference`` and ``<rate>_ratio`` compare the groups. ``<rate>_group_min`` and
``<rate>_group_max`` are the rate of the extreme group. Values equal fairlearn's, with one
exception: a group without rows of a label that the metric needs makes the result nan. fairlearn
counts its rate as zero, which can look fair. For more than two classes, which fairlearn does not
take, the worst class counts.

The summed gaps are of the benchmark tables of paper 5: Kliachkin, Lepsova, Bareilles and Marecek,
"Benchmarking Stochastic Approximation Algorithms for Fairness-Constrained Training of Deep Neural
Networks", Section 2 and Table 3. For more than two groups they are the largest gap between any two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, ParamSpec

import numpy as np
from numpy.typing import ArrayLike

from fairconstrained import rates
from fairconstrained.metrics.comparisons import gap, largest, least, ratio, summed_gap
from fairconstrained.metrics.inputs import Counts, count_table
from fairconstrained.metrics.metric import examples, metric_of
from fairconstrained.rates import Rates

P = ParamSpec("P")


class Asked(NamedTuple):
    """Counts, and how their rates are compared."""

    counts: Counts
    method: str = "between_groups"
    agg: str = "worst_case"


def read(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: Any,
    method: str = "between_groups",
    agg: str = "worst_case",
    sample_weight: ArrayLike | None = None,
    pos_label: Any = None,
) -> Asked:
    """Count rows."""
    counts = count_table(y_true, y_pred, sensitive_features, sample_weight, pos_label)
    return Asked(counts, method, agg)


def read_cap(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: Any = None,
    sample_weight: ArrayLike | None = None,
    pos_label: Any = None,
) -> Asked:
    """Count rows; without groups all are one."""
    groups = np.zeros(len(y_pred)) if sensitive_features is None else sensitive_features  # type: ignore[arg-type]
    return Asked(count_table(y_true, y_pred, groups, sample_weight, pos_label))


class Notion(NamedTuple):
    """Rates of groups, and their description in docstrings."""

    rates: Rates
    words: str
    formula: str  # of group g
    over: str = ""  # the events, of which the worst counts
    undefined: str = "a group has no weight"
    source: str = ""


_HARDT = '(Hardt, Price and Srebro, "Equality of Opportunity in Supervised Learning", 2016.)'
_NO_LABEL = "a group has no rows with label c"
_ONLY_LABEL = "a group has only rows with label c"
SELECTION = Notion(
    rates.selection_rates, "rate of positive predictions", r"P(\hat y = k \mid g)", "k"
)
TRUE_POSITIVE = Notion(
    rates.true_positive_rates,
    "true positive rate",
    r"P(\hat y = c \mid y = c, g)",
    "c",
    _NO_LABEL,
    _HARDT,
)
FALSE_NEGATIVE = Notion(
    rates.false_negative_rates,
    "false negative rate",
    r"P(\hat y \neq c \mid y = c, g)",
    "c",
    _NO_LABEL,
)
FALSE_POSITIVE = Notion(
    rates.false_positive_rates,
    "false positive rate",
    r"P(\hat y = c \mid y \neq c, g)",
    "c",
    _ONLY_LABEL,
)
TRUE_NEGATIVE = Notion(
    rates.true_negative_rates,
    "true negative rate",
    r"P(\hat y \neq c \mid y \neq c, g)",
    "c",
    _ONLY_LABEL,
)
ODDS = Notion(
    rates.odds,
    "rates of predictions given the true label",
    r"P(\hat y = k \mid y = v, g)",
    "v, k",
    "a group has no rows with some label",
    "With two classes: the worse of true and false positive rates.\n" + _HARDT,
)
ERROR = Notion(rates.error_rates, "error rate", r"P(\hat y \neq y \mid g)")
ACCURACY = Notion(rates.accuracies, "accuracy", r"P(\hat y = y \mid g)")
PRECISION = Notion(
    rates.precisions,
    "precision",
    r"P(y = c \mid \hat y = c, g)",
    "c",
    "c is never predicted for a group",
)
F1 = Notion(
    rates.f1_scores,
    "F1 score",
    r"\frac{2 P(\hat y = y = c \mid g)}{P(\hat y = c \mid g) + P(y = c \mid g)}",
    "c",
    "c is neither label nor prediction in a group",
)


# --- ways to compare -----------------------------------------------------------------------------


class Way(NamedTuple):
    """A way to compare rates, and its description in docstrings."""

    compare: Callable[[Asked, Rates], float]
    extreme: str
    summary: str
    formula: str
    returns: str


def _gap(asked: Asked, notion: Rates) -> float:
    return gap(asked.counts.rates(notion), asked.method, asked.agg)


def _ratio(asked: Asked, notion: Rates) -> float:
    if notion not in (rates.error_rates, rates.accuracies):
        asked.counts.decided()  # a gap is the same for either of two classes
    return ratio(asked.counts.rates(notion), asked.method, asked.agg)


_ZERO = """Rates that are
    zero in every group are left out (with scikit-learn's ``UndefinedMetricWarning``)."""

DIFFERENCE = Way(
    _gap,
    r"\max",
    "Largest difference between groups in the {words}.",
    r"\max_{{g, h}} \; {of_g} - {of_h}",
    "Between 0 (parity) and 1; nan where {undefined}.",
)
RATIO = Way(
    _ratio,
    r"\min",
    "Smallest ratio between groups of the {words}.",
    r"\min_{{g, h}} \; {of_g} \,/\, {of_h}",
    "Between 0 and 1 (parity); nan where {undefined}. " + _ZERO,
)
GROUP_MIN = Way(
    lambda asked, notion: least(asked.counts.rates(notion)),
    r"\min",
    "Smallest {words} of any group.",
    r"\min_g \; {of_g}",
    "Between 0 and 1; nan where {undefined}.",
)
GROUP_MAX = Way(
    lambda asked, notion: largest(asked.counts.rates(notion)),
    r"\max",
    "Largest {words} of any group.",
    r"\max_g \; {of_g}",
    "Between 0 and 1; nan where {undefined}.",
)

_WAYS = {
    "_difference": DIFFERENCE,
    "_ratio": RATIO,
    "_group_min": GROUP_MIN,
    "_group_max": GROUP_MAX,
}

# Groups a and b have four and eight rows.
_DOC = """{summary}

.. math:: {formula}

{note}Returns
-------
float
    {returns}

Examples
--------
>>> from fairconstrained.metrics import {name}
>>> y_true = [0, 0, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1]
>>> y_pred = [0, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1, 1]
>>> round({name}(y_true, y_pred, sensitive_features=list("aaaabbbbbbbb")), 4)
{example}
"""

# The reader, the rates and the comparison of each metric below.
DERIVED: dict[Callable[..., float], tuple[Callable[..., Asked], Rates, Way]] = {}


def _metric(
    reader: Callable[P, Asked], name: str, notion: Notion, example: float, note: str = ""
) -> Callable[P, float]:
    """Return the metric of this name, which has the value `example` in its docstring."""
    way = next((way for suffix, way in _WAYS.items() if name.endswith(suffix)), GROUP_MAX)

    def measure(asked: Asked) -> float:
        return way.compare(asked, notion.rates)

    formula = way.formula.format(of_g=notion.formula, of_h=notion.formula.replace("g)", "h)"))
    note = note or notion.source
    measure.__name__ = measure.__qualname__ = name
    measure.__doc__ = _DOC.format(
        summary=way.summary.format(words=notion.words),
        formula=(rf"{way.extreme}_{{{notion.over}}} \; " if notion.over else "") + formula,
        note=f"{note}\n\n" if note else "",
        returns=way.returns.format(undefined=notion.undefined),
        name=name,
        example=example,
    )
    without = [] if notion is ODDS else ["agg"]
    without += [] if way in (DIFFERENCE, RATIO) else ["method"]
    without += [] if notion.over else ["pos_label"]
    metric = metric_of(reader, *without)(measure)
    DERIVED[metric] = reader, notion.rates, way
    return metric


# The numbers are the values of the example.
demographic_parity_difference = _metric(read, "demographic_parity_difference", SELECTION, 0.375)
demographic_parity_ratio = _metric(
    read, "demographic_parity_ratio", SELECTION, 0.5, 'The "p% rule".'
)
selection_rate_difference = _metric(read, "selection_rate_difference", SELECTION, 0.375)
selection_rate_ratio = _metric(read, "selection_rate_ratio", SELECTION, 0.5)
equal_opportunity_difference = _metric(read, "equal_opportunity_difference", TRUE_POSITIVE, 0.5)
equal_opportunity_ratio = _metric(read, "equal_opportunity_ratio", TRUE_POSITIVE, 0.5)
true_positive_rate_difference = _metric(read, "true_positive_rate_difference", TRUE_POSITIVE, 0.5)
true_positive_rate_ratio = _metric(read, "true_positive_rate_ratio", TRUE_POSITIVE, 0.5)
true_negative_rate_difference = _metric(read, "true_negative_rate_difference", TRUE_NEGATIVE, 0.25)
true_negative_rate_ratio = _metric(read, "true_negative_rate_ratio", TRUE_NEGATIVE, 0.6667)
false_positive_rate_difference = _metric(
    read, "false_positive_rate_difference", FALSE_POSITIVE, 0.25
)
false_positive_rate_ratio = _metric(read, "false_positive_rate_ratio", FALSE_POSITIVE, 0.5)
false_negative_rate_difference = _metric(
    read, "false_negative_rate_difference", FALSE_NEGATIVE, 0.5
)
false_negative_rate_ratio = _metric(read, "false_negative_rate_ratio", FALSE_NEGATIVE, 0.0)
equalized_odds_difference = _metric(read, "equalized_odds_difference", ODDS, 0.5)
equalized_odds_ratio = _metric(read, "equalized_odds_ratio", ODDS, 0.5)
error_rate_difference = _metric(read, "error_rate_difference", ERROR, 0.125)
zero_one_loss_difference = _metric(read, "zero_one_loss_difference", ERROR, 0.125)
zero_one_loss_ratio = _metric(read, "zero_one_loss_ratio", ERROR, 0.6667)
zero_one_loss_group_max = _metric(read, "zero_one_loss_group_max", ERROR, 0.375)
accuracy_score_difference = _metric(read, "accuracy_score_difference", ACCURACY, 0.125)
accuracy_score_ratio = _metric(read, "accuracy_score_ratio", ACCURACY, 0.8333)
accuracy_score_group_min = _metric(read, "accuracy_score_group_min", ACCURACY, 0.625)
precision_score_group_min = _metric(read, "precision_score_group_min", PRECISION, 0.6667)
recall_score_group_min = _metric(read, "recall_score_group_min", TRUE_POSITIVE, 0.5)
f1_score_group_min = _metric(read, "f1_score_group_min", F1, 0.5714)
_OVERALL = "Without `sensitive_features` all rows are one group."
false_negative_rate = _metric(read_cap, "false_negative_rate", FALSE_NEGATIVE, 0.5, _OVERALL)
false_positive_rate = _metric(read_cap, "false_positive_rate", FALSE_POSITIVE, 0.5, _OVERALL)


# --- other metrics of counts ---------------------------------------------------------------------


@metric_of(read, "method", "agg", "pos_label")
def balanced_accuracy_score_group_min(asked: Asked) -> float:
    r"""Smallest balanced accuracy of any group.

    .. math:: \min_g \; \frac1K \sum_v P(\hat y = v \mid y = v, g)

    Returns
    -------
    float
        Between 0 and 1; nan where a group has no rows with some label.

    Examples
    --------
    >>> from fairconstrained.metrics import balanced_accuracy_score_group_min
    >>> y_true, y_pred = [0, 0, 1, 0, 0, 1], [0, 1, 1, 0, 0, 0]
    >>> balanced_accuracy_score_group_min(y_true, y_pred, sensitive_features=list("aaabbb"))
    0.5
    """
    classes = asked.counts.classes
    every = asked.counts.measured(rates.true_positive_rates(classes, range(len(classes))))
    mean = every.values().mean(axis=1, keepdims=True)
    return least(every._replace(hits=mean, rows=np.ones_like(mean)))


@metric_of(read, "method", "agg")
def independence_gap(asked: Asked) -> float:
    r"""Gap between groups in the rate of positive predictions: "Ind" in the tables.

    .. math:: | P(\hat y = + \mid g) - P(\hat y = + \mid h) |

    Another name for :func:`~fairconstrained.metrics.demographic_parity_difference`.

    Returns
    -------
    float
        Between 0 and 1; nan where a group has no weight.

    Examples
    --------
    >>> from fairconstrained.metrics import independence_gap
    >>> independence_gap([0, 1, 0, 1], [0, 1, 1, 1], sensitive_features=list("aabb"))
    0.5
    """
    return summed_gap(asked.counts.rates(rates.selection_rates))


@metric_of(read, "method", "agg")
def separation_gap(asked: Asked) -> float:
    r"""Gaps between groups in the predictions given the true label, summed: "Sp" in the tables.

    .. math:: \sum_v | P(\hat y = + \mid y = v, g) - P(\hat y = + \mid y = v, h) |

    Returns
    -------
    float
        Between 0 and the number of labels; nan where a group has no rows with some label.

    Examples
    --------
    >>> from fairconstrained.metrics import separation_gap
    >>> y_true, y_pred = [0, 0, 1, 0, 0, 1], [0, 1, 1, 0, 0, 0]
    >>> separation_gap(y_true, y_pred, sensitive_features=list("aaabbb"))  # 1/2 and 1
    1.5
    """
    return summed_gap(asked.counts.rates(rates.odds))


@metric_of(read, "method", "agg")
def sufficiency_gap(asked: Asked) -> float:
    r"""Gaps between groups in the labels given the prediction, summed: "Sf" in the tables.

    .. math:: \sum_v | P(y = + \mid \hat y = v, g) - P(y = + \mid \hat y = v, h) |

    Returns
    -------
    float
        Between 0 and the number of labels; nan where some label is never predicted for a group.

    Examples
    --------
    >>> from fairconstrained.metrics import sufficiency_gap
    >>> y_true, y_pred = [0, 1, 1, 0, 0, 1], [0, 0, 1, 0, 0, 1]
    >>> sufficiency_gap(y_true, y_pred, sensitive_features=list("aaabbb"))  # 1/2 and 0
    0.5
    """
    return summed_gap(asked.counts.rates(rates.predictive_values))


__test__ = examples(globals())
