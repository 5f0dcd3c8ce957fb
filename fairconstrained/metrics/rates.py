r"""Metrics of predicted labels: a rate of each group, compared between the groups.

``<rate>_difference`` and ``<rate>_ratio`` compare the groups. ``<rate>_group_min`` and
``<rate>_group_max`` are the rate of the extreme group. Values equal fairlearn's, with one
exception: a group without rows of a label that the metric needs makes the result nan. fairlearn
counts its rate as zero, which can look fair. For more than two classes, which fairlearn does not
take, the worst class counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, ParamSpec

from numpy.typing import ArrayLike

from fairconstrained.metrics import _notions as notions
from fairconstrained.metrics._metric import composed, docstring
from fairconstrained.metrics._tables import Counts, Rates, count_table, gap, largest, least, ratio

__all__ = [
    "accuracy_score_difference",
    "accuracy_score_group_min",
    "accuracy_score_ratio",
    "balanced_accuracy_score_group_min",
    "demographic_parity_difference",
    "demographic_parity_ratio",
    "equal_opportunity_difference",
    "equal_opportunity_ratio",
    "equalized_odds_difference",
    "equalized_odds_ratio",
    "error_rate_difference",
    "f1_score_group_min",
    "false_negative_rate",
    "false_negative_rate_difference",
    "false_negative_rate_ratio",
    "false_positive_rate",
    "false_positive_rate_difference",
    "false_positive_rate_ratio",
    "precision_score_group_min",
    "recall_score_group_min",
    "selection_rate_difference",
    "selection_rate_ratio",
    "true_negative_rate_difference",
    "true_negative_rate_ratio",
    "true_positive_rate_difference",
    "true_positive_rate_ratio",
    "zero_one_loss_difference",
    "zero_one_loss_group_max",
    "zero_one_loss_ratio",
]


P = ParamSpec("P")


class Rate(NamedTuple):
    """A rate of each group, and how docstrings speak of it."""

    of: Callable[[Counts], Rates]
    words: str
    formula: str  # of group g
    over: str = ""  # the events, of which the worst counts
    undefined: str = "a group has no weight"
    source: str = ""


_HARDT = '(Hardt, Price and Srebro, "Equality of Opportunity in Supervised Learning", 2016.)'
_NO_LABEL = "a group has no rows with label c"
_ONLY_LABEL = "a group has only rows with label c"

SELECTION = Rate(notions.selections, "rate of positive predictions", r"P(\hat y = k \mid g)", "k")
TRUE_POSITIVE = Rate(
    notions.true_positives,
    "true positive rate",
    r"P(\hat y = c \mid y = c, g)",
    "c",
    _NO_LABEL,
    _HARDT,
)
FALSE_NEGATIVE = Rate(
    notions.false_negatives,
    "false negative rate",
    r"P(\hat y \neq c \mid y = c, g)",
    "c",
    _NO_LABEL,
)
FALSE_POSITIVE = Rate(
    notions.false_positives,
    "false positive rate",
    r"P(\hat y = c \mid y \neq c, g)",
    "c",
    _ONLY_LABEL,
)
TRUE_NEGATIVE = Rate(
    notions.true_negatives,
    "true negative rate",
    r"P(\hat y \neq c \mid y \neq c, g)",
    "c",
    _ONLY_LABEL,
)
_OVERALL = "Without `sensitive_features` all rows are one group."
ODDS = Rate(
    notions.odds,
    "rates of predictions given the true label",
    r"P(\hat y = k \mid y = v, g)",
    "v, k",
    "a group has no rows with some label",
    "With two classes: the worse of true and false positive rates.\n" + _HARDT,
)
ERROR = Rate(notions.error_rates, "error rate", r"P(\hat y \neq y \mid g)")
ACCURACY = Rate(notions.accuracies, "accuracy", r"P(\hat y = y \mid g)")
BALANCED_ACCURACY = Rate(
    notions.balanced_accuracies,
    "balanced accuracy",
    r"\frac1K \sum_v P(\hat y = v \mid y = v, g)",
    undefined="a group has no rows with some label",
)
PRECISION = Rate(
    notions.precisions,
    "precision",
    r"P(y = c \mid \hat y = c, g)",
    "c",
    "c is never predicted for a group",
)
F1 = Rate(
    notions.f1_scores,
    "F1 score",
    r"\frac{2 P(\hat y = y = c \mid g)}{P(\hat y = c \mid g) + P(y = c \mid g)}",
    "c",
    "c is neither label nor prediction in a group",
)


# --- ways to compare -----------------------------------------------------------------------------


class Way(NamedTuple):
    """How rates are compared, and how docstrings speak of it."""

    compare: Callable[..., float]  # of rates, and of options
    extreme: str
    summary: str
    formula: str
    returns: str


_ZERO = """Rates that are
    zero in every group are left out (with scikit-learn's ``UndefinedMetricWarning``)."""

DIFFERENCE = Way(
    gap,
    r"\max",
    "Largest difference between groups in the {words}.",
    r"\max_{{g, h}} \; {of_g} - {of_h}",
    "Between 0 (parity) and 1; nan where {undefined}.",
)
RATIO = Way(
    ratio,
    r"\min",
    "Smallest ratio between groups of the {words}.",
    r"\min_{{g, h}} \; {of_g} \,/\, {of_h}",
    "Between 0 and 1 (parity); nan where {undefined}. " + _ZERO,
)
GROUP_MIN = Way(
    least,
    r"\min",
    "Smallest {words} of any group.",
    r"\min_g \; {of_g}",
    "Between 0 and 1; nan where {undefined}.",
)
GROUP_MAX = Way(
    largest,
    r"\max",
    "Largest {words} of any group.",
    r"\max_g \; {of_g}",
    "Between 0 and 1; nan where {undefined}.",
)


class _Asked(NamedTuple):
    """Arguments of a metric of rates: counts, and options of the way to compare."""

    counts: Counts
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Comparison:
    """A rate and a way to compare it."""

    rate: Rate
    way: Way

    def __call__(self, asked: _Asked) -> float:
        """The metric."""
        counts, options = asked
        if self.way is RATIO and self.rate.over:
            counts = counts.decided()  # a gap is the same for either of two classes
        return self.way.compare(self.rate.of(counts), *options)


def _between(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: Any,
    method: str = "between_groups",
    sample_weight: ArrayLike | None = None,
    pos_label: Any = None,
) -> _Asked:
    counts = count_table(y_true, y_pred, sensitive_features, sample_weight, pos_label)
    return _Asked(counts, (method,))


def _between_of_several(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: Any,
    method: str = "between_groups",
    agg: str = "worst_case",
    sample_weight: ArrayLike | None = None,
    pos_label: Any = None,
) -> _Asked:
    counts = count_table(y_true, y_pred, sensitive_features, sample_weight, pos_label)
    return _Asked(counts, (method, agg))


def _between_of_all_labels(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: Any,
    method: str = "between_groups",
    sample_weight: ArrayLike | None = None,
) -> _Asked:
    return _Asked(count_table(y_true, y_pred, sensitive_features, sample_weight), (method,))


def _extreme(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: Any,
    sample_weight: ArrayLike | None = None,
    pos_label: Any = None,
) -> _Asked:
    return _Asked(count_table(y_true, y_pred, sensitive_features, sample_weight, pos_label))


def _extreme_of_all_labels(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: Any,
    sample_weight: ArrayLike | None = None,
) -> _Asked:
    return _Asked(count_table(y_true, y_pred, sensitive_features, sample_weight))


def _extreme_or_overall(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: Any = None,
    sample_weight: ArrayLike | None = None,
    pos_label: Any = None,
) -> _Asked:
    groups = ["all"] * len(y_true) if sensitive_features is None else sensitive_features  # type: ignore[arg-type]
    return _Asked(count_table(y_true, y_pred, groups, sample_weight, pos_label))


# Groups a and b have four and eight rows.
_EXAMPLE = """\
y_true = [0, 0, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1]
y_pred = [0, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1, 1]
round({name}(y_true, y_pred, sensitive_features=list("aaaabbbbbbbb")), 4)"""


def _made(
    read: Callable[P, _Asked],
    name: str,
    rate: Rate,
    way: Way,
    example: float,
    note: str = "",
) -> Callable[P, float]:
    return composed(read, Comparison(rate, way), name, _doc(name, rate, way, example, note))


def _doc(name: str, rate: Rate, way: Way, example: float, note: str) -> str:
    formula = way.formula.format(of_g=rate.formula, of_h=rate.formula.replace("g)", "h)"))
    over = rf"{way.extreme}_{{{rate.over}}} \; " if rate.over else ""
    return docstring(
        way.summary.format(words=rate.words),
        over + formula,
        way.returns.format(undefined=rate.undefined),
        _EXAMPLE.format(name=name),
        example,
        note=note or rate.source,
    )


# --- the metrics ---------------------------------------------------------------------------------

# The numbers are the values of the example.
demographic_parity_difference = _made(
    _between, "demographic_parity_difference", SELECTION, DIFFERENCE, 0.375
)
demographic_parity_ratio = _made(
    _between, "demographic_parity_ratio", SELECTION, RATIO, 0.5, 'The "p% rule".'
)
selection_rate_difference = _made(
    _between, "selection_rate_difference", SELECTION, DIFFERENCE, 0.375
)
selection_rate_ratio = _made(_between, "selection_rate_ratio", SELECTION, RATIO, 0.5)
equal_opportunity_difference = _made(
    _between, "equal_opportunity_difference", TRUE_POSITIVE, DIFFERENCE, 0.5
)
equal_opportunity_ratio = _made(_between, "equal_opportunity_ratio", TRUE_POSITIVE, RATIO, 0.5)
true_positive_rate_difference = _made(
    _between, "true_positive_rate_difference", TRUE_POSITIVE, DIFFERENCE, 0.5
)
true_positive_rate_ratio = _made(_between, "true_positive_rate_ratio", TRUE_POSITIVE, RATIO, 0.5)
true_negative_rate_difference = _made(
    _between, "true_negative_rate_difference", TRUE_NEGATIVE, DIFFERENCE, 0.25
)
true_negative_rate_ratio = _made(_between, "true_negative_rate_ratio", TRUE_NEGATIVE, RATIO, 0.6667)
false_positive_rate_difference = _made(
    _between, "false_positive_rate_difference", FALSE_POSITIVE, DIFFERENCE, 0.25
)
false_positive_rate_ratio = _made(_between, "false_positive_rate_ratio", FALSE_POSITIVE, RATIO, 0.5)
false_negative_rate_difference = _made(
    _between, "false_negative_rate_difference", FALSE_NEGATIVE, DIFFERENCE, 0.5
)
false_negative_rate_ratio = _made(_between, "false_negative_rate_ratio", FALSE_NEGATIVE, RATIO, 0.0)
equalized_odds_difference = _made(
    _between_of_several, "equalized_odds_difference", ODDS, DIFFERENCE, 0.5
)
equalized_odds_ratio = _made(_between_of_several, "equalized_odds_ratio", ODDS, RATIO, 0.5)
error_rate_difference = _made(
    _between_of_all_labels, "error_rate_difference", ERROR, DIFFERENCE, 0.125
)
zero_one_loss_difference = _made(
    _between_of_all_labels, "zero_one_loss_difference", ERROR, DIFFERENCE, 0.125
)
zero_one_loss_ratio = _made(_between_of_all_labels, "zero_one_loss_ratio", ERROR, RATIO, 0.6667)
accuracy_score_difference = _made(
    _between_of_all_labels, "accuracy_score_difference", ACCURACY, DIFFERENCE, 0.125
)
accuracy_score_ratio = _made(
    _between_of_all_labels, "accuracy_score_ratio", ACCURACY, RATIO, 0.8333
)
accuracy_score_group_min = _made(
    _extreme_of_all_labels, "accuracy_score_group_min", ACCURACY, GROUP_MIN, 0.625
)
zero_one_loss_group_max = _made(
    _extreme_of_all_labels, "zero_one_loss_group_max", ERROR, GROUP_MAX, 0.375
)
balanced_accuracy_score_group_min = _made(
    _extreme_of_all_labels,
    "balanced_accuracy_score_group_min",
    BALANCED_ACCURACY,
    GROUP_MIN,
    0.625,
)
precision_score_group_min = _made(
    _extreme, "precision_score_group_min", PRECISION, GROUP_MIN, 0.6667
)
recall_score_group_min = _made(_extreme, "recall_score_group_min", TRUE_POSITIVE, GROUP_MIN, 0.5)
f1_score_group_min = _made(_extreme, "f1_score_group_min", F1, GROUP_MIN, 0.5714)
false_negative_rate = _made(
    _extreme_or_overall, "false_negative_rate", FALSE_NEGATIVE, GROUP_MAX, 0.5, _OVERALL
)
false_positive_rate = _made(
    _extreme_or_overall, "false_positive_rate", FALSE_POSITIVE, GROUP_MAX, 0.5, _OVERALL
)

__test__ = {name: globals()[name] for name in __all__}
