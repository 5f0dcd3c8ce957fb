r"""Metrics of predicted labels: a rate of each group, compared between the groups.

Values equal fairlearn's, with one exception: a group without rows of a label that the metric needs
makes the result nan. fairlearn counts its rate as zero, which can look fair. For more than two
classes, which fairlearn does not take, the worst class counts.

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
from fairconstrained.arrays import Floats
from fairconstrained.inputs.labels import UNSEEN
from fairconstrained.metrics.inputs import Counts, count_table
from fairconstrained.metrics.metric import (
    GroupRates,
    choose,
    examples,
    gap,
    metric_of,
    ratio,
    summed_gap,
    warn_absent,
    warn_single_group,
)
from fairconstrained.rates import Rate, Rates

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


SELECTION = Notion(
    rates.selection_rates, "rate of positive predictions", r"P(\hat y = k \mid g)", "k"
)
TRUE_POSITIVE = Notion(
    rates.true_positive_rates,
    "true positive rate",
    r"P(\hat y = c \mid y = c, g)",
    "c",
    "a group has no rows with label c",
)
FALSE_NEGATIVE = TRUE_POSITIVE._replace(
    rates=rates.false_negative_rates,
    words="false negative rate",
    formula=r"P(\hat y \neq c \mid y = c, g)",
)
FALSE_POSITIVE = Notion(
    rates.false_positive_rates,
    "false positive rate",
    r"P(\hat y = c \mid y \neq c, g)",
    "c",
    "a group has only rows with label c",
)
REJECTION = Notion(rates.rejection_rates, "rejection rate", r"P(\hat y \neq c \mid g)", "c")
ODDS = Notion(
    rates.odds,
    "rates of predictions given the true label",
    r"P(\hat y = k \mid y = v, g)",
    "v, k",
    "a group has no rows with some label",
)
SEPARATION = Notion(
    rates.odds,
    "predictions given the true label",
    r"P(\hat y = + \mid y = v, g)",
    "v",
    "a group has no rows with some label",
)
SUFFICIENCY = Notion(
    rates.predictive_values,
    "labels given the prediction",
    r"P(y = + \mid \hat y = v, g)",
    "v",
    "some label is never predicted for a group",
)
PRECISION = Notion(
    rates.precisions,
    "precision",
    r"P(y = c \mid \hat y = c, g)",
    "c",
    "label c is never predicted for a group",
)
FALSE_OMISSION = Notion(
    rates.false_omission_rates,
    "false omission rate",
    r"P(y = c \mid \hat y \neq c, g)",
    "c",
    "label c is predicted for all of a group",
)
ERROR = Notion(rates.error_rates, "error rate", r"P(\hat y \neq y \mid g)")


class Way(NamedTuple):
    """A way to compare rates, and its description in docstrings."""

    compare: Callable[[Asked, Rates], float]
    summary: str
    formula: str
    returns: str


def _gap(asked: Asked, notion: Rates) -> float:
    return gap(asked.counts.rates(notion), asked.method, asked.agg)


def _ratio(asked: Asked, notion: Rates) -> float:
    asked.counts.definitions(notion, by_ratio=True)
    return ratio(asked.counts.rates(notion), asked.method, asked.agg)


DIFFERENCE = Way(
    _gap,
    "Largest difference between groups in the {words}.",
    r"\max_{{{over}g, h}} \; {of_g} - {of_h}",
    "Between 0 (parity) and 1; nan where {undefined}.",
)
RATIO = Way(
    _ratio,
    "Smallest ratio between groups of the {words}.",
    r"\min_{{{over}g, h}} \; {of_g} \,/\, {of_h}",
    "Between 0 and 1 (parity); nan where {undefined}. Rates that are\n"
    "    zero in every group are left out (with scikit-learn's ``UndefinedMetricWarning``).",
)
SUM = Way(
    lambda asked, notion: summed_gap(asked.counts.rates(notion)),
    "Gaps between groups in the {words}, summed.",
    r"\sum_v | {of_g} - {of_h} |",
    "Between 0 and the number of labels; nan where {undefined}.",
)
CAP = Way(
    lambda asked, notion: float(asked.counts.rates(notion).values().max()),
    "Largest {words} of any group.",
    r"\max_{{{over}g}} \; {of_g}",
    "Between 0 and 1; nan where {undefined}.",
)

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
    summed = DIFFERENCE if notion is SELECTION else SUM
    ways = {"difference": DIFFERENCE, "ratio": RATIO, "gap": summed, "rate": CAP}
    suffix = name.rpartition("_")[2]
    way = ways[suffix]

    def measure(asked: Asked) -> float:
        return way.compare(asked, notion.rates)

    of_g, over = notion.formula, f"{notion.over}, " if notion.over else ""
    measure.__name__ = measure.__qualname__ = name
    measure.__doc__ = _DOC.format(
        summary=way.summary.format(words=notion.words),
        formula=way.formula.format(over=over, of_g=of_g, of_h=of_g.replace("g)", "h)")),
        note=f"{note}\n\n" if note else "",
        returns=way.returns.format(undefined=notion.undefined),
        name=name,
        example=example,
    )
    without = [] if notion is ODDS or way is CAP else ["agg"]
    without += ["method"] if suffix == "gap" else []
    without += [] if notion.over else ["pos_label"]
    metric = metric_of(reader, *without)(measure)
    DERIVED[metric] = reader, notion.rates, way
    return metric


_HARDT = '(Hardt, Price and Srebro, "Equality of Opportunity in Supervised Learning", 2016.)'
_ODDS = "With two classes: the worse of true and false positive rates.\n" + _HARDT
_ALL = "Without `sensitive_features` all rows are one group."
_FLOOR = f"One minus the smallest rate of the outcome c. {_ALL}"
_INDEPENDENCE = """"Ind" in the tables of paper 5: another name for
:func:`~fairconstrained.metrics.demographic_parity_difference`."""
_PREDICTIVE = """"Predictive parity" (Chouldechova 2017). Where nobody of a group is predicted c
precision is not defined; scikit-learn's ``precision_score`` takes 0, also in fairlearn."""
_OMISSION = "Of two labels: of those predicted negative, how many are positive."
_RULE = 'The "p% rule".'
# The numbers are the values of the example.
demographic_parity_difference = _metric(read, "demographic_parity_difference", SELECTION, 0.375)
demographic_parity_ratio = _metric(read, "demographic_parity_ratio", SELECTION, 0.5, _RULE)
equal_opportunity_difference = _metric(
    read, "equal_opportunity_difference", TRUE_POSITIVE, 0.5, _HARDT
)
equal_opportunity_ratio = _metric(read, "equal_opportunity_ratio", TRUE_POSITIVE, 0.5, _HARDT)
equalized_odds_difference = _metric(read, "equalized_odds_difference", ODDS, 0.5, _ODDS)
equalized_odds_ratio = _metric(read, "equalized_odds_ratio", ODDS, 0.5, _ODDS)
false_positive_rate_difference = _metric(
    read, "false_positive_rate_difference", FALSE_POSITIVE, 0.25
)
predictive_parity_difference = _metric(
    read, "predictive_parity_difference", PRECISION, 0.0, _PREDICTIVE
)
predictive_parity_ratio = _metric(read, "predictive_parity_ratio", PRECISION, 1.0, _PREDICTIVE)
false_omission_rate_difference = _metric(
    read, "false_omission_rate_difference", FALSE_OMISSION, 0.4, _OMISSION
)
false_omission_rate_ratio = _metric(
    read, "false_omission_rate_ratio", FALSE_OMISSION, 0.0, _OMISSION
)
error_rate_difference = _metric(read, "error_rate_difference", ERROR, 0.125)
independence_gap = _metric(read, "independence_gap", SELECTION, 0.375, _INDEPENDENCE)
separation_gap = _metric(read, "separation_gap", SEPARATION, 0.75, '"Sp" in the tables of paper 5.')
sufficiency_gap = _metric(
    read, "sufficiency_gap", SUFFICIENCY, 0.4, '"Sf" in the tables of paper 5.'
)
false_negative_rate = _metric(read_cap, "false_negative_rate", FALSE_NEGATIVE, 0.5, _ALL)
false_positive_rate = _metric(read_cap, "false_positive_rate", FALSE_POSITIVE, 0.5, _ALL)
rejection_rate = _metric(read_cap, "rejection_rate", REJECTION, 0.625, _FLOOR)


# --- expected cost --------------------------------------------------------------------------------


def read_costs(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    costs: Any = None,
    sensitive_features: Any = None,
    sample_weight: ArrayLike | None = None,
) -> tuple[Counts, list[Rate]]:
    """Count rows; without groups all are one."""
    given = {"sensitive_features": sensitive_features, "sample_weight": sample_weight}
    counts = read_cap(y_true, y_pred, **given).counts
    classes = counts.classes
    if classes.labels[-1] == UNSEEN and classes.targets == [0]:  # the negative label is unseen
        classes = classes._replace(labels=classes.labels[::-1])
        counts = counts._replace(table=counts.table[:, ::-1, ::-1], classes=classes)
    return counts, rates.expected_costs(costs, len(classes.labels))


@metric_of(read_costs)
def expected_cost(asked: tuple[Counts, list[Rate]]) -> float:
    r"""Mean cost of predictions, overall or in the worst group.

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
    counts, costs = asked
    hits, rows = (
        np.stack([(counts.table * table).sum(axis=(1, 2)) for table in tables], axis=1)
        for tables in ([rate.hits for rate in costs], [rate.possible for rate in costs])
    )
    given = [f" with label {label!r}" if len(costs) > 1 else "" for label in counts.classes.labels]
    means = GroupRates(hits, rows, given[: len(costs)], counts.groups).values()
    return float(means.mean(axis=1).max())


# --- mutual information ---------------------------------------------------------------------------


def read_conditioned(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: Any,
    sample_weight: ArrayLike | None = None,
    pos_label: Any = None,
    constraint: str = "demographic_parity",
) -> tuple[Floats, list[str]]:
    """Count rows by group and predicted label, (n_conditions, n_groups, n_classes).

    Classes are all of them, or all others as one and that of `pos_label`, last.
    """
    counts = count_table(y_true, y_pred, sensitive_features, sample_weight, pos_label)
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
    return choose(tables, "constraint", constraint)(), counts.groups


@metric_of(read_conditioned)
def exponential_renyi_mutual_information(counted: tuple[Floats, list[str]]) -> float:
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
    tables, groups = counted
    tables = tables[tables.sum(axis=(1, 2)) > 0]  # labels that do not occur have no weight
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


__test__ = examples(globals())
