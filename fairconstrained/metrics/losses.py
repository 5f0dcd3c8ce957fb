"""Losses of each group: of predicted probabilities, and of predicted numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fairconstrained.arrays import Array, Ints, check_array
from fairconstrained.metrics.comparisons import GroupRates, choose, gap, largest, least
from fairconstrained.metrics.inputs import (
    GroupedRows,
    check_labels,
    classes_of,
    encode_labels,
    grouped_rows,
)
from fairconstrained.metrics.metric import examples, metric_of


def _log_loss(y: Array, proba: Array) -> Array:
    of_label = proba[np.arange(len(y)), y]
    return np.asarray(-np.log(np.maximum(of_label, np.finfo(proba.dtype).eps)))


def _brier_loss(y: Array, proba: Array) -> Array:
    return np.asarray(0.5 * np.square(np.eye(proba.shape[1])[y] - proba).sum(axis=1))


LOSSES: dict[str, Callable[[Array, Array], Array]] = {"log": _log_loss, "brier": _brier_loss}


class RowLosses(NamedTuple):
    """The loss of each row, and how groups are compared."""

    losses: Array
    rows: GroupedRows
    method: str = "between_groups"


def read_losses(
    y_true: ArrayLike,
    y_proba: ArrayLike,
    *,
    sensitive_features: Any,
    loss: str = "log",
    method: str = "between_groups",
    sample_weight: ArrayLike | None = None,
    pos_label: Any = None,
    labels: Sequence[Any] | None = None,
) -> RowLosses:
    """Compute the loss of each row."""
    row_loss = choose(LOSSES, "loss", loss)
    true = check_labels(y_true, "y_true")
    rows = grouped_rows(
        len(true), sensitive_features, sample_weight, y_true=y_true, y_proba=y_proba
    )
    proba = _probabilities(y_proba, len(true))
    y = _column_of_label(true, proba.shape[1], pos_label, labels)
    return RowLosses(row_loss(y, proba), rows, method)


@metric_of(read_losses)
def loss_gap(found: RowLosses) -> float:
    r"""Largest minus smallest mean loss of the groups.

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
    return gap(_means(found.losses, found.rows), found.method)


@metric_of(read_losses, "loss", "method")
def log_loss_group_max(found: RowLosses) -> float:
    r"""Largest mean log loss of any group.

    .. math:: \max_g \; E[-\log \hat p_y \mid g]

    Returns
    -------
    float
        In nats, at least 0; nan where a group has no weight.

    Examples
    --------
    >>> from fairconstrained.metrics import log_loss_group_max
    >>> y_true, groups = [0, 1, 0, 1], list("aabb")
    >>> round(log_loss_group_max(y_true, [0.5, 0.5, 0.1, 0.9], sensitive_features=groups), 4)
    0.6931
    """
    return largest(_means(found.losses, found.rows))


def _means(values: Array, rows: GroupedRows) -> GroupRates:
    """Return the mean over the rows of each group."""
    return GroupRates(rows.sums(values)[:, None], rows.sums(np.ones(1))[:, None], [""], rows.names)


def _probabilities(y_proba: ArrayLike, n_samples: int) -> Array:
    """One column per class; a single column is the probability of the positive one."""
    proba = check_array(
        y_proba, ensure_2d=False, dtype=[np.float64, np.float32], input_name="y_proba"
    )
    if proba.ndim > 2 or len(proba) != n_samples:
        raise ValueError(
            f"y_proba must have shape ({n_samples},) or ({n_samples}, n_classes); "
            f"got {proba.shape}."
        )
    if proba.ndim == 1 or proba.shape[1] == 1:
        proba = np.column_stack((1 - proba.reshape(-1), proba.reshape(-1)))
    if proba.min() < 0 or proba.max() > 1 or np.abs(proba.sum(axis=1) - 1).max() > 1e-3:
        raise ValueError(
            "y_proba must hold probabilities: between 0 and 1, rows of n_classes columns summing "
            f"to 1; got values from {proba.min():.3g} to {proba.max():.3g}."
        )
    return np.asarray(proba)


def _column_of_label(
    true: Array, n_classes: int, pos_label: Any, labels: Sequence[Any] | None
) -> Ints:
    """The column of `y_proba` that belongs to each row's label."""
    (codes,), seen = encode_labels(true)
    columns = list(labels) if labels is not None else _columns(seen, pos_label)
    if len(columns) != n_classes or not set(seen) <= set(columns):
        raise ValueError(
            f"labels must name the {n_classes} columns of y_proba in their order and contain the "
            f"labels of y_true, {seen}; got {columns if labels is not None else None}."
        )
    return np.array([columns.index(label) for label in seen])[codes]


def _columns(seen: list[Any], pos_label: Any) -> list[Any]:
    """Sorted labels, as in ``classes_``; the positive one of two comes last."""
    if len(seen) > 2:
        return seen
    classes, (positive,) = classes_of(seen, pos_label)
    return [classes[1 - positive], classes[positive]]


# --- predicted numbers ---------------------------------------------------------------------------


class _Predicted(NamedTuple):
    """Targets and predictions, with the groups and weights of the rows."""

    true: Array
    predicted: Array
    rows: GroupedRows


def _numbers(
    y_true: ArrayLike,
    y_value: ArrayLike,
    *,
    sensitive_features: Any,
    sample_weight: ArrayLike | None = None,
) -> _Predicted:
    true, predicted = (
        check_array(values, ensure_2d=False, dtype=np.float64, input_name=name)
        for values, name in ((y_true, "y_true"), (y_value, "y_value"))
    )
    if true.ndim != 1 or predicted.shape != true.shape:
        raise ValueError(
            "y_true and y_value must hold one number per row; got shapes "
            f"{true.shape} and {predicted.shape}."
        )
    rows = grouped_rows(
        len(true), sensitive_features, sample_weight, y_true=y_true, y_value=y_value
    )
    return _Predicted(true, predicted, rows)


@metric_of(_numbers)
def mean_absolute_error_group_max(data: _Predicted) -> float:
    r"""Largest mean absolute error of any group.

    .. math:: \max_g \; E[| y - \hat y | \mid g]

    Returns
    -------
    float
        In the units of the targets; nan where a group has no weight.

    Examples
    --------
    >>> from fairconstrained.metrics import mean_absolute_error_group_max
    >>> groups = list("aabb")
    >>> mean_absolute_error_group_max([0, 1, 0, 1], [0, 1, 0.5, 1], sensitive_features=groups)
    0.25
    """
    return largest(_means(np.abs(data.true - data.predicted), data.rows))


@metric_of(_numbers)
def mean_squared_error_group_max(data: _Predicted) -> float:
    r"""Largest mean squared error of any group; of probabilities of the label 1 the Brier score.

    .. math:: \max_g \; E[(y - \hat y)^2 \mid g]

    Returns
    -------
    float
        In the squared units of the targets; nan where a group has no weight.

    Examples
    --------
    >>> from fairconstrained.metrics import mean_squared_error_group_max
    >>> groups = list("aabb")
    >>> mean_squared_error_group_max([0, 1, 0, 1], [0, 1, 0.5, 1], sensitive_features=groups)
    0.125
    """
    return largest(_means(np.square(data.true - data.predicted), data.rows))


@metric_of(_numbers)
def r2_score_group_min(data: _Predicted) -> float:
    r"""Smallest coefficient of determination of any group.

    .. math:: \min_g \; 1 - E[(y - \hat y)^2 \mid g] \,/\, \mathrm{Var}(y \mid g)

    Returns
    -------
    float
        At most 1; nan where all targets of a group are equal.

    Examples
    --------
    >>> from fairconstrained.metrics import r2_score_group_min
    >>> r2_score_group_min([0, 1, 0, 1], [0, 1, 0.5, 1], sensitive_features=list("aabb"))
    0.5
    """
    true, predicted, rows = data
    sums = _means(true, rows)
    mean = sums.hits / np.where(sums.rows > 0, sums.rows, 1.0)
    total = _means((true - mean[rows.group, 0]) ** 2, rows).hits
    residual = _means((true - predicted) ** 2, rows).hits
    return least(GroupRates(total - residual, total, [" with different targets"], rows.names))


__test__ = examples(globals())
