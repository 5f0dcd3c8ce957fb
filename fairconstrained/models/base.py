"""The model protocol: a map from flat parameters to scores, with its derivatives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from fairconstrained.models.features import ColumnStatistics, Features

Pullback = Callable[[Tensor], Tensor]
ClippedPullback = Callable[[Tensor, float | Tensor], Tensor]

# Rounding can leave this much variance in a constant column, relative to its squared mean.
_ROUNDING = 1e-12


class Penalty(NamedTuple):
    """Half the squared norm of the penalised coefficients, and its gradient."""

    value: Tensor
    gradient: Tensor


class Model(Protocol):
    """The map from parameters w of shape (n_params,) to scores of shape (n, K)."""

    n_params: int
    offsets: Tensor  # positions of the parameters that shift the scores of all rows alike

    def init(self) -> Tensor:
        """Return the starting parameters."""

    def scores(self, w: Tensor, X: Features) -> Tensor:
        """Return scores as in prediction, without an autograd graph."""

    def linearize(self, w: Tensor, X: Features) -> tuple[Tensor, Pullback]:
        """Return scores as in training, and the map of cotangents (n, K) to gradients (n_params,).

        Linear models also map several cotangents, (n, K, k), to (n_params, k).
        """

    def linearize_rows(self, w: Tensor, X: Features) -> tuple[Tensor, ClippedPullback]:
        """Return scores as in training, and a pullback that clips the gradient of each row.

        It maps cotangents c (n, K) and a norm C to sum_i clip(J_i' c_i, C), where the gradient of
        each row is scaled down to norm C before the sum. C may also differ between rows, (n,). It
        is infinite for public rows.
        """

    def prepared(self, X: Features) -> tuple[Model, Features]:
        """Return a model and features for many batches of X, with constants precomputed.

        The same parameters give the same scores.
        """

    def penalty(self, w: Tensor) -> Penalty:
        """Return the penalty on coefficients, without intercepts and biases."""

    def attributes(self, w: Tensor) -> dict[str, Any]:
        """Return the attributes of a fitted estimator that hold the model, on the CPU."""

    def restore(self, attributes: Mapping[str, Any]) -> Tensor:
        """Return parameters from the attributes of a fitted estimator, for warm starts."""

    def for_ranking(self) -> Model:
        """Return the model for rankings, whose scores :meth:`rescaled` makes log odds."""

    def rescaled(self, attributes: dict[str, Any], slope: float, offset: float) -> dict[str, Any]:
        """Return attributes of the model whose scores are ``slope * scores + offset``."""

    def update_batch_norm(self, w: Tensor, X: Features) -> None:
        """Compute the statistics of batch normalisations from these rows; without them nothing."""


def column_variances(X: ColumnStatistics, weight: Tensor, centre: Tensor) -> Tensor:
    """Return column variances; zero where a column varies by rounding errors only.

    Raises
    ------
    ValueError
        If the square of a column overflows.
    """
    variance = X.variance(weight, centre)
    if not variance.isfinite().all():
        column = int((~variance.isfinite()).nonzero()[0])
        raise ValueError(f"Column {column} of X is too large for its squares: scale the features.")
    return without_rounding(variance, centre)


def without_rounding(variances: Tensor, means: Tensor) -> Tensor:
    """Return variances of columns, with zeros where they are rounding errors only."""
    return torch.where(variances > _ROUNDING * means**2, variances, torch.zeros_like(variances))


def standard_scale(variances: Tensor) -> Tensor:
    """Return standard deviations of columns; 1 for a constant column."""
    return torch.where(variances > 0, variances, torch.ones_like(variances)).sqrt()


def attribute(attributes: Mapping[str, Any], name: str) -> Any:
    """Look up an attribute of the last fit, for a warm start."""
    if name not in attributes:
        raise ValueError(f"warm_start=True needs a last fit with the same model ({name}).")
    return attributes[name]


def clip_factors(norms: Tensor, max_norm: float | Tensor) -> Tensor:
    """Return factors that scale rows of these norms down to at most `max_norm`.

    The factor is zero where a norm is not finite, so that one row cannot spoil the sum.
    """
    return (max_norm / norms).clamp_max(1.0).nan_to_num(nan=0.0)
