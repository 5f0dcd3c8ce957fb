"""The measures of the benchmark tables of paper 5: summed gaps, and a distance between scores.

Kliachkin, Lepsova, Bareilles and Marecek, "Benchmarking Stochastic Approximation Algorithms for
Fairness-Constrained Training of Deep Neural Networks", Section 2 and Table 3. For
more than two groups they are the largest gap between any two, for more than two classes that of
the worst class.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import combinations
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fairconstrained.arrays import Floats, check_array
from fairconstrained.metrics import _notions as notions
from fairconstrained.metrics._metric import composed, docstring, documented
from fairconstrained.metrics._tables import (
    Counts,
    Rates,
    check_labels,
    count_table,
    grouped_rows,
    summed_gap,
    warn_absent,
    warn_single_group,
)

__all__ = [
    "independence_gap",
    "separation_gap",
    "sufficiency_gap",
    "wasserstein_distance_between_groups",
]


def _counts(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: Any,
    sample_weight: ArrayLike | None = None,
    pos_label: Any = None,
) -> Counts:
    return count_table(y_true, y_pred, sensitive_features, sample_weight, pos_label)


def _summed(notion: Callable[[Counts], Rates], counts: Counts) -> float:
    return summed_gap(notion(counts))


independence_gap = composed(
    _counts,
    partial(_summed, notions.selections),
    "independence_gap",
    docstring(
        'Gap between groups in the rate of positive predictions: "Ind" in the tables.',
        r"| P(\hat y = + \mid g) - P(\hat y = + \mid h) |",
        "Between 0 and 1; nan where a group has no weight.",
        'independence_gap([0, 1, 0, 1], [0, 1, 1, 1], sensitive_features=list("aabb"))',
        0.5,
        note="Another name for :func:`~fairconstrained.metrics.demographic_parity_difference`.",
    ),
)

separation_gap = composed(
    _counts,
    partial(_summed, notions.odds),
    "separation_gap",
    docstring(
        'Gaps between groups in the predictions given the true label, summed: "Sp" in the tables.',
        r"\sum_v | P(\hat y = + \mid y = v, g) - P(\hat y = + \mid y = v, h) |",
        "Between 0 and the number of labels; nan where a group has no rows with some label.",
        "y_true, y_pred = [0, 0, 1, 0, 0, 1], [0, 1, 1, 0, 0, 0]\n"
        'separation_gap(y_true, y_pred, sensitive_features=list("aaabbb"))  # 1/2 and 1',
        1.5,
    ),
)

sufficiency_gap = composed(
    _counts,
    partial(_summed, notions.predictive_values),
    "sufficiency_gap",
    docstring(
        'Gaps between groups in the labels given the prediction, summed: "Sf" in the tables.',
        r"\sum_v | P(y = + \mid \hat y = v, g) - P(y = + \mid \hat y = v, h) |",
        "Between 0 and the number of labels; nan where some label is never predicted for a group.",
        "y_true, y_pred = [0, 1, 1, 0, 0, 1], [0, 0, 1, 0, 0, 1]\n"
        'sufficiency_gap(y_true, y_pred, sensitive_features=list("aaabbb"))  # 1/2 and 0',
        0.5,
    ),
)


@documented
def wasserstein_distance_between_groups(
    y_true: ArrayLike,
    y_score: ArrayLike,
    *,
    sensitive_features: Any,
    order: float = 1.0,
    sample_weight: ArrayLike | None = None,
) -> float:
    r"""Wasserstein distance of order p between the groups' distributions of scores.

    .. math:: \Big( \int_0^1 | F_g^{-1}(u) - F_h^{-1}(u) |^p \, du \Big)^{1/p}

    For order 1 it is the area between the distribution functions, as in
    :func:`scipy.stats.wasserstein_distance`. No bins are needed. "Wd" in the tables of paper 5 is
    the square of the distance of order 2 between histograms of 50 bins, according to its code.

    Returns
    -------
    float
        In units of the scores, at least 0; nan where a group has no weight.

    Examples
    --------
    >>> from fairconstrained.metrics import wasserstein_distance_between_groups
    >>> y_score, groups = [0.25, 0.5, 0.5, 1.0], list("aabb")
    >>> wasserstein_distance_between_groups([0, 1, 0, 1], y_score, sensitive_features=groups)
    0.375
    """
    true = check_labels(y_true, "y_true")
    group, groups, weight = grouped_rows(
        len(true), sensitive_features, sample_weight, y_true=y_true, y_score=y_score
    )
    scores = _scores(y_score, len(true))
    order = _checked_order(order)
    if len(groups) == 1:
        warn_single_group(groups[0])
        return 0.0
    rows = np.bincount(group, weights=weight, minlength=len(groups))
    absent = [f"group {groups[g]} has no rows" for g in np.flatnonzero(rows <= 0)]
    if absent:
        warn_absent(absent)
        return float("nan")
    return max(
        _distance(
            scores[group == g, k],
            weight[group == g],
            scores[group == h, k],
            weight[group == h],
            order,
        )
        for g, h in combinations(range(len(groups)), 2)
        for k in range(scores.shape[1])
    )


def _checked_order(order: Any) -> float:
    if isinstance(order, bool) or not isinstance(order, Real) or not 1 <= float(order) < np.inf:
        raise ValueError(f"order must be a finite number >= 1; got {order!r}.")
    return float(order)


def _scores(y_score: ArrayLike, n_samples: int) -> Floats:
    """One column per class; of two columns the second, which says it all for probabilities."""
    scores = check_array(y_score, ensure_2d=False, dtype=np.float64, input_name="y_score")
    if scores.ndim > 2 or len(scores) != n_samples:
        raise ValueError(
            f"y_score must have shape ({n_samples},) or ({n_samples}, n_classes); "
            f"got {scores.shape}."
        )
    scores = scores.reshape(n_samples, -1)
    return np.asarray(scores[:, 1:] if scores.shape[1] == 2 else scores)


def _distance(a: Floats, weight_a: Floats, b: Floats, weight_b: Floats, order: float) -> float:
    """Between two weighted samples: quantiles are constant between the levels of either."""
    (a, level_a), (b, level_b) = _quantiles(a, weight_a), _quantiles(b, weight_b)
    level = np.sort(np.concatenate(([0.0], level_a, level_b)))
    middle, width = 0.5 * (level[1:] + level[:-1]), np.diff(level)
    difference = a[np.searchsorted(level_a, middle)] - b[np.searchsorted(level_b, middle)]
    return float((width @ np.abs(difference) ** order) ** (1.0 / order))


def _quantiles(values: Floats, weight: Floats) -> tuple[Floats, Floats]:
    """Sorted values, and the level up to which each is the quantile; the last one is 1."""
    order = np.argsort(values, kind="stable")
    level = np.cumsum(weight[order])
    return values[order], level / level[-1]


__test__ = {name: globals()[name] for name in __all__}
