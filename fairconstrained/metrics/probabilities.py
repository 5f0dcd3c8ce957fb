"""Metrics of probabilities: losses by group, and distances between the groups' distributions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fairconstrained.arrays import Array, Floats, check_array, check_number
from fairconstrained.groups import refuse_negative
from fairconstrained.inputs.labels import check_labels, classes_of, encode_labels, is_known
from fairconstrained.metrics.inputs import GroupedRows, grouped_rows
from fairconstrained.metrics.metric import GroupRates, choose, documented, gap, metric, zero_or_nan


class RowLosses(NamedTuple):
    """The loss of each row, and its group."""

    losses: Array
    rows: GroupedRows
    method: str

    def __float__(self) -> float:
        total, weight = (self.rows.sums(values)[:, None] for values in (self.losses, np.ones(1)))
        return gap(GroupRates(total, weight, [""], self.rows.names), self.method)


@metric
def loss_gap(
    y_true: ArrayLike,
    y_proba: ArrayLike,
    *,
    sensitive_features: Any,
    loss: str = "log",
    labels: Sequence[Any] | None = None,
    method: str = "between_groups",
    sample_weight: ArrayLike | None = None,
    pos_label: Any = None,
    control_features: Any = None,
    attributes: str = "crossed",
) -> RowLosses:
    r"""Return the largest minus the smallest mean loss of the groups.

    .. math:: \max_{g, h} \; E[\ell(\hat p, y) \mid g] - E[\ell(\hat p, y) \mid h]

    Returns
    -------
    float
        In the units of the loss, at least 0; nan where a group has no weight.

    Examples
    --------
    >>> from fairconstrained.metrics import loss_gap
    >>> gap = loss_gap([0, 1, 0, 1], [0.5, 0.5, 0.1, 0.9], sensitive_features=list("aabb"))
    >>> round(gap, 4)  # log(2) - log(1 / 0.9)
    0.5878
    """
    is_log = choose({"log": True, "brier": False}, "loss", loss)
    true = check_labels(y_true, "y_true")
    (codes,), seen = encode_labels(true)
    samples = {"y_true": y_true, "y_proba": y_proba}
    rows = grouped_rows(codes, sensitive_features, sample_weight, **samples)
    proba = _columns(y_proba, "y_proba", [np.float64, np.float32])
    is_single = proba.shape[1] == 1  # of the positive class
    proba = np.hstack((1 - proba, proba)) if is_single else proba
    if proba.min() < 0 or proba.max() > 1 or np.abs(proba.sum(axis=1) - 1).max() > 1e-3:
        raise ValueError(
            "y_proba must hold probabilities: between 0 and 1, rows of n_classes columns summing "
            f"to 1; got values from {proba.min():.3g} to {proba.max():.3g}."
        )
    columns = seen if labels is None else list(labels)
    if len(columns) <= 2 and (is_single or (len(columns) == 1 and is_known(columns))):
        classes = classes_of(columns, pos_label if is_single else None)
        classes.require_top()
        columns = [classes.labels[1 - classes.targets[0]], classes.labels[classes.targets[0]]]
    if len(columns) != proba.shape[1] or not set(seen) <= set(columns):
        raise ValueError(
            f"labels must name the {proba.shape[1]} columns of y_proba in their order and contain "
            f"the labels of y_true, {seen}; got {columns if labels is not None else None}."
        )
    y = np.array([columns.index(label) for label in seen])[codes]
    if is_log:
        likelihood = proba[np.arange(len(y)), y]
        losses = -np.log(np.maximum(likelihood, np.finfo(proba.dtype).eps))
    else:
        losses = 0.5 * np.square(np.eye(proba.shape[1])[y] - proba).sum(axis=1)
    return RowLosses(np.asarray(losses)[rows.row], rows, method)


def _columns(values: ArrayLike, name: str, dtype: Any = np.float64) -> Floats:
    """Check numbers and return them in columns, one for each class or a single one."""
    array = check_array(values, ensure_2d=False, dtype=dtype, input_name=name)
    if array.ndim > 2:
        raise ValueError(
            f"{name} must have shape (n_samples,) or (n_samples, n_classes); got {array.shape}."
        )
    return np.asarray(array.reshape(len(array), -1))


@documented
def wasserstein_distance_between_groups(
    y_true: ArrayLike,
    y_score: ArrayLike,
    *,
    sensitive_features: Any,
    order: float = 1.0,
    sample_weight: ArrayLike | None = None,
) -> float:
    r"""Return the largest Wasserstein distance of order p between two groups' score distributions.

    .. math:: \Big( \int_0^1 | F_g^{-1}(u) - F_h^{-1}(u) |^p \, du \Big)^{1/p}

    For order 1 it is the area between the distribution functions, as in
    :func:`scipy.stats.wasserstein_distance`. No bins are needed. "Wd" in Table 3 of the benchmark
    of Kliachkin et al. is the square of the distance of order 2 between histograms of 50
    bins, according to its code.

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
    samples = {"y_true": y_true, "y_score": y_score}
    rows = grouped_rows(encode_labels(true)[0][0], sensitive_features, sample_weight, **samples)
    refuse_negative(rows.weight, "wasserstein_distance_between_groups")
    scores = _columns(y_score, "y_score")[rows.row]
    if scores.shape[1] == 2:  # of two probabilities the second suffices
        scores = scores[:, 1:]
    check_number("order", order, "a finite number >= 1", lambda p: 1 <= p < np.inf)
    if np.isnan(zero_or_nan(rows.sums(np.ones(1)), rows.names)):
        return float("nan")
    members, distances = [rows.group == g for g in range(len(rows.names))], []
    for column in scores.T:
        quantiles = [_quantiles(column[inside], rows.weight[inside]) for inside in members]
        distances += [_distance(*a, *b, float(order)) for a, b in combinations(quantiles, 2)]
    return max(distances, default=0.0)


def _distance(a: Floats, level_a: Floats, b: Floats, level_b: Floats, order: float) -> float:
    """Return the distance of two samples from their quantiles, each valid up to a level."""
    level = np.sort(np.concatenate(([0.0], level_a, level_b)))
    middle, width = 0.5 * (level[1:] + level[:-1]), np.diff(level)
    difference = a[np.searchsorted(level_a, middle)] - b[np.searchsorted(level_b, middle)]
    return float((width @ np.abs(difference) ** order) ** (1.0 / order))


def _quantiles(values: Floats, weight: Floats) -> tuple[Floats, Floats]:
    """Return sorted values, and the level up to which each is the quantile; the last level is 1."""
    order = np.argsort(values, kind="stable")
    level = np.cumsum(weight[order])
    return values[order], level / level[-1]
