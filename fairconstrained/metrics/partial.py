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

from fairconstrained.arrays import Array, check_array
from fairconstrained.groups import encode_groups, group_name
from fairconstrained.metrics._metric import documented, metric_of
from fairconstrained.metrics._tables import (
    Rates,
    check_labels,
    check_weights,
    classes_of,
    encode_labels,
    gap,
)
from fairconstrained.percentiles import (
    Intervals,
    Ranks,
    auc_inside,
    inside_intervals,
    rank_of_scores,
    read_intervals,
)
from fairconstrained.samples import check_samples


def checked_scores(y_score: ArrayLike) -> Array:
    """One score per row: the only column, or that of the positive class of two."""
    scores = check_array(y_score, ensure_2d=False, dtype=np.float64, input_name="y_score")
    if scores.ndim == 2 and scores.shape[1] <= 2:
        scores = scores[:, -1]
    if scores.ndim != 1:
        raise ValueError(
            f"y_score must hold one score per row, for two classes; got shape {scores.shape}."
        )
    return np.asarray(scores)


class Scored:
    """Checked input: scores, groups and their intervals, weights."""

    def __init__(
        self,
        y_score: ArrayLike,
        sensitive_features: Any,
        interval: Any,
        sample_weight: Any,
        y_true: Any = None,  # may say that the samples are in another order
    ):
        check_samples(
            y_true=y_true,
            y_score=y_score,
            sensitive_features=sensitive_features,
            sample_weight=sample_weight,
        )
        scores = checked_scores(y_score)
        if sensitive_features is None:
            raise ValueError("sensitive_features must hold one group per row; got None.")
        self.scores = scores
        self.group, labels = encode_groups(sensitive_features, len(scores))
        self.weight = check_weights(sample_weight, len(scores))
        self.groups = [group_name(label) for label in labels]
        self.intervals: Intervals = read_intervals(interval, labels.tolist())

    def ranks(self) -> Ranks:
        """Ranks of all thresholds in each group."""
        return rank_of_scores(self.scores, self.group, self.weight, len(self.groups))

    def rank_at(self, threshold: float, weight: Array) -> Array:
        """Weighted fraction of each group above it, (n_groups, 1); nan without weight."""
        above, total = (
            np.bincount(self.group, weights=w, minlength=len(self.groups))
            for w in (weight * (self.scores > threshold), weight)
        )
        return np.asarray(above / np.where(total > 0, total, np.nan))[:, None]


def _scored(
    y_true: ArrayLike,
    y_score: ArrayLike,
    *,
    sensitive_features: Any,
    interval: Any,
    sample_weight: ArrayLike | None = None,
) -> Scored:
    return Scored(y_score, sensitive_features, interval, sample_weight, y_true)


class _Decided(NamedTuple):
    """Scores, and the ranks of a threshold among the rows of each label."""

    data: Scored
    ranks: dict[Any, Array]  # (n_groups, 1)
    positive: Any  # the positive label


def _decided(
    y_true: ArrayLike,
    y_score: ArrayLike,
    *,
    sensitive_features: Any,
    interval: Any,
    threshold: float = 0.0,
    sample_weight: ArrayLike | None = None,
    pos_label: Any = None,
) -> _Decided:
    data = Scored(y_score, sensitive_features, interval, sample_weight, y_true)
    labels, (positive,) = two_labels(y_true, len(data.scores), pos_label)
    ranks = {y: data.rank_at(threshold, data.weight * rows) for y, rows in labels.items()}
    return _Decided(data, ranks, positive)


@metric_of(_scored)
def partial_statistical_parity(data: Scored) -> float:
    r"""Largest distance between the groups' distributions of scores inside the interval.

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
    return _gap(data, data.intervals.fraction(data.ranks().rank), "")


@metric_of(_scored)
def ccdf_gap(data: Scored) -> float:
    r"""Largest difference of ranks where at least one of them lies in the interval.

    .. math:: \max_{g, h} \; \max \{ | r_g(\theta) - r_h(\theta) | :
              r_g(\theta) \in I \text{ or } r_h(\theta) \in I \}

    One minus this is what the tables of the partial-parity paper report as "pSP fairness": not its
    Definition 4.2 (:func:`partial_statistical_parity`), but the gap of the unconditional
    distributions. Ties whose ranks reach over the whole interval count as inside it.

    Returns
    -------
    float
        Between 0 and 1; nan where a group has no weight.

    Examples
    --------
    >>> from fairconstrained.metrics import ccdf_gap
    >>> scores, groups = [9, 8, 5, 4, 9, 8, 2, 1], list("aaaabbbb")
    >>> ccdf_gap(None, scores, sensitive_features=groups, interval=(0, 0.5))
    0.0
    >>> ccdf_gap(None, scores, sensitive_features=groups, interval=(0.5, 1))
    0.5
    """
    rank = data.ranks().rank
    inside = inside_intervals(rank, data.intervals)
    # Against the highest and the lowest of all groups, the group itself included: that adds zeros.
    to_others = np.maximum(rank.max(axis=0) - rank, rank - rank.min(axis=0))
    largest = np.where(inside, to_others, 0.0).max(axis=1)
    return _worst(data, largest)


@documented
def partial_demographic_parity(
    y_true: ArrayLike,
    y_score: ArrayLike,
    *,
    sensitive_features: Any,
    interval: Any,
    threshold: float = 0.0,
    sample_weight: ArrayLike | None = None,
) -> float:
    r"""Gap between groups in the rate of positive decisions inside the interval.

    .. math:: \max_{g, h} \; | G_g(r_g(\theta)) - G_h(r_h(\theta)) |

    at the decision threshold :math:`\theta` (Definition 4.3).

    Returns
    -------
    float
        Between 0 and 1; nan where a group has no weight.

    Examples
    --------
    >>> from fairconstrained.metrics import partial_demographic_parity
    >>> scores, groups = [9, 8, 5, 4, 9, 2, 1, 0], list("aaaabbbb")
    >>> partial_demographic_parity(
    ...     None, scores, sensitive_features=groups, interval=(0, 0.5), threshold=7)
    0.5
    """
    data = Scored(y_score, sensitive_features, interval, sample_weight, y_true)
    return _gap(data, data.intervals.fraction(data.rank_at(threshold, data.weight)), "")


@metric_of(_decided)
def partial_equal_opportunity(decided: _Decided) -> float:
    r"""Partial demographic parity among the rows of the positive label (Definition A.2).

    Returns
    -------
    float
        Between 0 and 1; nan where a group has no rows with the positive label.

    Notes
    -----
    Ranks are those among the rows of the label, as in the paper's optimisation model (50); its
    Definition A.2 takes them among all rows of the group.

    Examples
    --------
    >>> from fairconstrained.metrics import partial_equal_opportunity
    >>> y, scores, groups = [1, 1, 0, 0] * 2, [9, 8, 5, 4, 9, 2, 8, 0], list("aaaabbbb")
    >>> partial_equal_opportunity(
    ...     y, scores, sensitive_features=groups, interval=(0.5, 1), threshold=7)
    1.0
    """
    data, ranks, positive = decided
    return _gap(data, data.intervals.fraction(ranks[positive]), f" with label {positive!r}")


@metric_of(_decided)
def partial_equalized_odds(decided: _Decided) -> float:
    r"""Partial demographic parity within each label, the worse of the two (Definition A.3).

    Returns
    -------
    float
        Between 0 and 1; nan where a group has no rows with some label.

    Notes
    -----
    Ranks are those among the rows of a label, as in :func:`partial_equal_opportunity`.

    Examples
    --------
    >>> from fairconstrained.metrics import partial_equalized_odds
    >>> y, scores, groups = [1, 1, 0, 0] * 2, [9, 8, 5, 4, 9, 2, 8, 0], list("aaaabbbb")
    >>> partial_equalized_odds(y, scores, sensitive_features=groups, interval=(0, 1), threshold=7)
    0.5
    """
    data, ranks, _positive = decided
    rates = data.intervals.fraction(np.concatenate(list(ranks.values()), axis=1))
    return _gap(data, rates, *(f" with label {label!r}" for label in ranks))


@metric_of(_scored)
def partial_group_auc(data: Scored) -> float:
    r"""How well scores tell two groups apart inside the interval.

    .. math:: \max_{g, h} \; | P(z > z') + \tfrac12 P(z = z') - \tfrac12 | ,

    for z out of group g and z' out of group h, both of ranks in the interval (Definition A.1, which
    counts ties for one side).

    Returns
    -------
    float
        Between 0 and 1/2; nan where a group has no weight.

    Examples
    --------
    >>> from fairconstrained.metrics import partial_group_auc
    >>> scores, groups = [9, 8, 5, 4, 9, 8, 2, 1], list("aaaabbbb")
    >>> partial_group_auc(None, scores, sensitive_features=groups, interval=(0.5, 1))
    0.5
    """
    aucs = auc_inside(data.intervals.fraction(data.ranks().rank))
    return _worst(data, np.abs(aucs - 0.5).max(axis=1))


def two_labels(
    y_true: ArrayLike, n_samples: int, pos_label: Any
) -> tuple[dict[Any, Array], list[Any]]:
    """The rows of each label, and the positive label."""
    true = check_labels(y_true, "y_true")
    if len(true) != n_samples:
        raise ValueError(f"y_true has {len(true)} rows, but y_score has {n_samples}.")
    (codes,), seen = encode_labels(true)
    classes, targets = classes_of(seen, pos_label)
    if len(classes) > 2:
        raise ValueError(f"y_true must have two labels; got {classes}.")
    return {label: codes == i for i, label in enumerate(classes)}, [classes[i] for i in targets]


def _gap(data: Scored, rates: Array, *given: str) -> float:
    """Largest minus smallest of the groups' rates, the worst column; warns where one is nan.

    The columns belong to the conditions `given`, or all to a single one.
    """
    rows = np.isfinite(rates[:, : len(given)]).astype(float)
    return gap(Rates(np.nan_to_num(rates), rows, list(given), data.groups))


def _worst(data: Scored, by_group: Array) -> float:
    """The largest of the groups' values, or nan with a warning if a group has no weight."""
    weight = np.bincount(data.group, weights=data.weight, minlength=len(data.groups))[:, None]
    return gap(Rates(np.zeros_like(weight), weight, [""], data.groups)) + float(by_group.max())
