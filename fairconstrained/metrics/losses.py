"""Gaps between groups in the mean loss of predicted probabilities."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_array

from fairconstrained.metrics._docs import documented
from fairconstrained.metrics._tables import (
    Rates,
    check_labels,
    check_weights,
    choose,
    classes_of,
    encode_labels,
    gap,
    named_groups,
)

__all__ = ["loss_gap"]

Array = NDArray[Any]


def _log_loss(y: Array, proba: Array) -> Array:
    of_label = proba[np.arange(len(y)), y]
    return np.asarray(-np.log(np.maximum(of_label, np.finfo(proba.dtype).eps)))


def _brier_loss(y: Array, proba: Array) -> Array:
    return np.asarray(0.5 * np.square(np.eye(proba.shape[1])[y] - proba).sum(axis=1))


LOSSES: dict[str, Callable[[Array, Array], Array]] = {"log": _log_loss, "brier": _brier_loss}


@documented
def loss_gap(
    y_true: ArrayLike,
    y_proba: ArrayLike,
    *,
    sensitive_features: Any,
    loss: str = "log",
    method: str = "between_groups",
    sample_weight: ArrayLike | None = None,
    pos_label: Any = None,
    labels: Sequence[Any] | None = None,
) -> float:
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
    row_loss = choose(LOSSES, "loss", loss)
    true = check_labels(y_true, "y_true")
    weight = check_weights(sample_weight, len(true))
    group, groups = named_groups(sensitive_features, len(true))
    proba = _probabilities(y_proba, len(true))
    y = _column_of_label(true, proba.shape[1], pos_label, labels)
    sums = [weight * row_loss(y, proba), weight]
    hits, rows = (np.bincount(group, weights=w, minlength=len(groups))[:, None] for w in sums)
    return gap(Rates(hits, rows, [""], groups), method)


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
) -> NDArray[np.int64]:
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
