"""Dependence of predictions on groups: mutual information of labels, distances of scores."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fairconstrained.arrays import Floats, check_array
from fairconstrained.metrics.comparisons import choose, warn_absent, warn_single_group
from fairconstrained.metrics.inputs import check_labels, count_table, grouped_rows
from fairconstrained.metrics.metric import documented, examples, metric_of


class Conditioned(NamedTuple):
    """Counts by group and predicted label, (n_conditions, n_groups, n_classes)."""

    tables: Floats
    groups: list[str]


def read_conditioned(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: Any,
    sample_weight: ArrayLike | None = None,
    pos_label: Any = None,
    constraint: str = "demographic_parity",
) -> Conditioned:
    """Count rows of all classes, or of all others as one and that of `pos_label`, last."""
    counts = count_table(y_true, y_pred, sensitive_features, sample_weight, pos_label)
    if pos_label is not None:
        positive = np.eye(len(counts.classes))[counts.targets[0]]
        two = np.stack((1.0 - positive, positive))
        counts = counts._replace(table=two @ counts.table @ two.T, candidates=[1])
    by_label = counts.table.swapaxes(0, 1)
    tables: dict[str, Callable[[], Floats]] = {
        "demographic_parity": lambda: by_label.sum(axis=0)[None],
        "equalized_odds": lambda: by_label,
        "equal_opportunity": lambda: by_label[counts.targets],
    }
    return Conditioned(choose(tables, "constraint", constraint)(), counts.groups)


@metric_of(read_conditioned)
def exponential_renyi_mutual_information(conditioned: Conditioned) -> float:
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
    tables, groups = conditioned
    tables = tables[tables.sum(axis=(1, 2)) > 0]  # labels that do not occur have no weight
    empty = tables.sum(axis=2).min(axis=0) <= 0
    if empty.any():
        named = [groups[g] for g in np.flatnonzero(empty)]
        warn_absent([f"group {name} has no rows to compare" for name in named])
        return float("nan")
    if len(groups) == 1:
        warn_single_group(groups[0])
        return 0.0
    information = []
    for table in tables:
        joint = table[:, table.sum(axis=0) > 0] / table.sum()
        independent = np.outer(joint.sum(axis=1), joint.sum(axis=0))
        information.append((joint**2 / independent).sum() - 1.0)
    return float(np.average(information, weights=tables.sum(axis=(1, 2))))


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
    rows = grouped_rows(
        len(true), sensitive_features, sample_weight, y_true=y_true, y_score=y_score
    )
    scores = _scores(y_score, len(true))
    power: Any = order
    if isinstance(power, bool) or not isinstance(power, Real) or not 1 <= float(power) < np.inf:
        raise ValueError(f"order must be a finite number >= 1; got {order!r}.")
    if len(rows.names) == 1:
        warn_single_group(rows.names[0])
        return 0.0
    if empty := [name for name, w in zip(rows.names, rows.sums(np.ones(1)), strict=True) if w <= 0]:
        warn_absent([f"group {name} has no rows" for name in empty])
        return float("nan")
    parts = [
        (scores[own], rows.weight[own]) for own in (rows.group == g for g in range(len(rows.names)))
    ]
    return max(
        _distance(a[:, k], of_a, b[:, k], of_b, float(order))
        for (a, of_a), (b, of_b) in combinations(parts, 2)
        for k in range(scores.shape[1])
    )


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


__test__ = examples(globals())
