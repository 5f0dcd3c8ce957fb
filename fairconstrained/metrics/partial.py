r"""Partial fairness: gaps between groups within an interval of percentiles of their scores.

The rank r of a threshold in a group is the fraction of the group's rows above it, 0 at the top.
G(r) is the fraction of the rows inside the interval that score above it
(:mod:`fairconstrained.percentiles`). All values are exact: one sort, ties and weights included.

Sources: the partial-parity paper, Definitions 4.2, 4.3, A.1, A.2 and A.3.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fairconstrained import rate_definitions as notions
from fairconstrained.arrays import Array, Ints
from fairconstrained.groups import refuse_negative
from fairconstrained.inputs.labels import Classes, check_labels, encode_labels, two_labels
from fairconstrained.metrics.inputs import GroupedRows, Labels, check_scores, counted, grouped_rows
from fairconstrained.metrics.metric import gap, metric, zero_or_nan
from fairconstrained.numerics import without_rounding
from fairconstrained.percentiles import Intervals, Ranks, auc_inside, rank_of_scores, read_intervals


class Scored(NamedTuple):
    """Scores, groups and their intervals, weights."""

    scores: Array
    rows: GroupedRows
    intervals: Intervals

    def ranks(self) -> Ranks:
        """Return ranks of all thresholds in each group."""
        return rank_of_scores(self.scores, self.rows.group, self.rows.weight, len(self.rows.labels))

    def worst(self, values: Array) -> float:
        """Return the largest of the values, or nan if a group has no weight."""
        undefined = zero_or_nan(self.rows.sums(np.ones(1)), self.rows.names)
        return undefined + without_rounding(float(values.max()))

    def above(self, threshold: float) -> Ints:
        """Return one for scores above a threshold, zero for others."""
        return (self.scores > threshold).astype(np.int64)

    def select(self, chosen: Array) -> Scored:
        """Select the rows of the groups in a mask."""
        row, share, group, labels, weight = self.rows
        inside, codes = chosen[group], np.cumsum(chosen) - 1
        remaining = [label for label, stays in zip(labels, chosen, strict=True) if stays]
        places = np.arange(len(group)) if isinstance(row, slice) else row
        share = share[inside] if np.ndim(share) else share
        rows = GroupedRows(places[inside], share, codes[group[inside]], remaining, weight[inside])
        return Scored(self.scores[inside], rows, self.intervals.take(chosen))


def read_scored(
    y_true: ArrayLike | None,
    y_score: ArrayLike,
    sensitive_features: Any,
    interval: Any,
    sample_weight: ArrayLike | None = None,
) -> Scored:
    """Check the arguments of a metric of score distributions."""
    scores = check_scores(y_score)
    label = len(scores) if y_true is None else encode_labels(check_labels(y_true, "y_true"))[0][0]
    rows = grouped_rows(label, sensitive_features, sample_weight, y_true=y_true, y_score=y_score)
    refuse_negative(rows.weight, "a metric of ranks")
    return Scored(scores[rows.row], rows, read_intervals(interval, rows.labels))


def gap_inside(
    notion: notions.Rates, data: Scored, threshold: float, y_true: Any = None, pos_label: Any = None
) -> float:
    """Return the largest difference between groups in a rate inside the interval."""
    decided = data.above(threshold)
    labels = Labels(decided, decided, Classes([False, True], [1], True))
    if notions.needs_labels(notion):
        codes, classes = two_labels(y_true, "y_true", pos_label)
        classes.require_top()
        (positive,) = classes.targets
        true = (codes[data.rows.row] == positive).astype(np.int64)
        two = [classes.labels[1 - positive], classes.labels[positive]]
        labels = labels._replace(true=true, classes=Classes(two, [1], True))
    rates = counted(data.rows, labels).rates(notion)
    inside = data.intervals.fraction(rates.values())
    return gap(rates._replace(hits=inside, rows=np.ones_like(inside)))


@metric
def partial_statistical_parity(
    y_true: ArrayLike | None,
    y_score: ArrayLike,
    *,
    sensitive_features: Any,
    interval: Any,
    sample_weight: ArrayLike | None = None,
    control_features: Any = None,
    attributes: str = "crossed",
) -> float:
    r"""Return the largest distance between the groups' distributions of scores inside the interval.

    .. math:: \max_{g, h} \; \max_\theta \; | G_g(r_g(\theta)) - G_h(r_h(\theta)) |

    (Definition 4.2; see :func:`ccdf_gap` for what the paper's tables report.)

    Returns
    -------
    float
        Between 0 and 1; nan where a group has no weight.

    Examples
    --------
    The best of group a score like the best of group b, the others do not:

    >>> from fairconstrained.metrics import partial_statistical_parity
    >>> scores, groups = [9, 8, 5, 4, 9, 8, 2, 1], list("aaaabbbb")
    >>> partial_statistical_parity(None, scores, sensitive_features=groups, interval=(0, 0.5))
    0.0
    >>> partial_statistical_parity(None, scores, sensitive_features=groups, interval=(0.5, 1))
    1.0
    """
    data = read_scored(y_true, y_score, sensitive_features, interval, sample_weight)
    return data.worst(np.ptp(data.intervals.fraction(data.ranks().rank), axis=0))


@metric
def ccdf_gap(
    y_true: ArrayLike | None,
    y_score: ArrayLike,
    *,
    sensitive_features: Any,
    interval: Any,
    sample_weight: ArrayLike | None = None,
    control_features: Any = None,
    attributes: str = "crossed",
) -> float:
    r"""Return the largest difference of ranks where at least one of them lies in the interval.

    .. math:: \max_{g, h} \; \max \{ | r_g(\theta) - r_h(\theta) | :
              r_g(\theta) \in I \text{ or } r_h(\theta) \in I \}

    The tables of the partial-parity paper report one minus this as "pSP fairness": not its
    Definition 4.2 (:func:`partial_statistical_parity`), but the gap of the unconditional
    distributions. Ties whose ranks reach over the whole interval count as inside it.

    Returns
    -------
    float
        Between 0 and 1; nan where a group has no weight.

    Examples
    --------
    The best of group a score like the best of group b, the others do not:

    >>> from fairconstrained.metrics import ccdf_gap
    >>> scores, groups = [9, 8, 5, 4, 9, 8, 2, 1], list("aaaabbbb")
    >>> ccdf_gap(None, scores, sensitive_features=groups, interval=(0, 0.5))
    0.0
    >>> ccdf_gap(None, scores, sensitive_features=groups, interval=(0.5, 1))
    0.5
    """
    data = read_scored(y_true, y_score, sensitive_features, interval, sample_weight)
    rank = data.ranks().rank
    inside = data.intervals.may_contain(rank, rank)
    # Against the highest and the lowest of all groups, the group itself included: that adds zeros.
    to_others = np.maximum(rank.max(axis=0) - rank, rank - rank.min(axis=0))
    return data.worst(np.where(inside, to_others, 0.0))


@metric
def partial_demographic_parity(
    y_true: ArrayLike | None,
    y_score: ArrayLike,
    *,
    sensitive_features: Any,
    interval: Any,
    threshold: float = 0.0,
    sample_weight: ArrayLike | None = None,
    control_features: Any = None,
    attributes: str = "crossed",
) -> float:
    r"""Return the gap between groups in the rate of positive decisions inside the interval.

    .. math:: \max_{g, h} \; | G_g(r_g(\theta)) - G_h(r_h(\theta)) |

    at the decision threshold :math:`\theta` (Definition 4.3).

    Returns
    -------
    float
        Between 0 and 1; nan where a group has no weight.

    Examples
    --------
    >>> from fairconstrained.metrics import partial_demographic_parity
    >>> y, scores, groups = [1, 1, 0, 0] * 2, [9, 8, 7, 4, 9, 2, 1, 0], list("aaaabbbb")
    >>> inside = {"interval": (0.5, 1), "threshold": 6}
    >>> partial_demographic_parity(y, scores, sensitive_features=groups, **inside)
    0.5
    """
    data = read_scored(y_true, y_score, sensitive_features, interval, sample_weight)
    return gap_inside(notions.selection_rates, data, threshold)


@metric
def partial_equal_opportunity(
    y_true: ArrayLike | None,
    y_score: ArrayLike,
    *,
    sensitive_features: Any,
    interval: Any,
    threshold: float = 0.0,
    sample_weight: ArrayLike | None = None,
    pos_label: Any = None,
    control_features: Any = None,
    attributes: str = "crossed",
) -> float:
    r"""Return partial demographic parity among the rows of the positive label (Definition A.2).

    Ranks are taken among the rows of the label, as in the paper's optimisation model (50); its
    Definition A.2 takes them among all rows of the group.

    Returns
    -------
    float
        Between 0 and 1; nan where a group has no rows with the positive label.

    Examples
    --------
    >>> from fairconstrained.metrics import partial_equal_opportunity
    >>> y, scores, groups = [1, 1, 0, 0] * 2, [9, 8, 7, 4, 9, 2, 1, 0], list("aaaabbbb")
    >>> inside = {"interval": (0.5, 1), "threshold": 6}
    >>> partial_equal_opportunity(y, scores, sensitive_features=groups, **inside)
    1.0
    """
    data = read_scored(y_true, y_score, sensitive_features, interval, sample_weight)
    return gap_inside(notions.true_positive_rates, data, threshold, y_true, pos_label)


@metric
def partial_equalized_odds(
    y_true: ArrayLike | None,
    y_score: ArrayLike,
    *,
    sensitive_features: Any,
    interval: Any,
    threshold: float = 0.0,
    sample_weight: ArrayLike | None = None,
    pos_label: Any = None,
    control_features: Any = None,
    attributes: str = "crossed",
) -> float:
    r"""Return partial demographic parity within each label, the worse of the two (Definition A.3).

    Ranks are taken among the rows of a label, as in :func:`partial_equal_opportunity`.

    Returns
    -------
    float
        Between 0 and 1; nan where a group has no rows with some label.

    Examples
    --------
    >>> from fairconstrained.metrics import partial_equalized_odds
    >>> y, scores, groups = [1, 1, 0, 0] * 2, [9, 8, 7, 4, 9, 2, 1, 0], list("aaaabbbb")
    >>> inside = {"interval": (0.5, 1), "threshold": 6}
    >>> partial_equalized_odds(y, scores, sensitive_features=groups, **inside)
    1.0
    """
    data = read_scored(y_true, y_score, sensitive_features, interval, sample_weight)
    return gap_inside(notions.odds, data, threshold, y_true, pos_label)


@metric
def partial_group_auc(
    y_true: ArrayLike | None,
    y_score: ArrayLike,
    *,
    sensitive_features: Any,
    interval: Any,
    sample_weight: ArrayLike | None = None,
    control_features: Any = None,
    attributes: str = "crossed",
) -> float:
    r"""Return the largest distance from 1/2 of the AUC between two groups inside the interval.

    .. math:: \max_{g, h} \; | P(z > z') + \tfrac12 P(z = z') - \tfrac12 | ,

    for z from group g and z' from group h, both of ranks in the interval (Definition A.1, which
    counts ties for one side).

    Returns
    -------
    float
        Between 0 and 1/2; nan where a group has no weight.

    Examples
    --------
    The best of group a score like the best of group b, the others do not:

    >>> from fairconstrained.metrics import partial_group_auc
    >>> scores, groups = [9, 8, 5, 4, 9, 8, 2, 1], list("aaaabbbb")
    >>> partial_group_auc(None, scores, sensitive_features=groups, interval=(0, 0.5))
    0.0
    >>> partial_group_auc(None, scores, sensitive_features=groups, interval=(0.5, 1))
    0.5
    """
    data = read_scored(y_true, y_score, sensitive_features, interval, sample_weight)
    aucs = auc_inside(data.intervals.fraction(data.ranks().rank))
    return data.worst(np.abs(aucs - 0.5))
