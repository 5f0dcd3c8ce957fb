"""What a model is: the map between flat parameters and scores, both ways."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from fairconstrained.models.features import Features

__all__ = [
    "ClippedPullback",
    "Model",
    "Penalty",
    "Pullback",
    "attribute",
    "clip_factors",
    "column_variances",
]

Pullback = Callable[[Tensor], Tensor]
ClippedPullback = Callable[[Tensor, float | Tensor], Tensor]

# Variance of a constant column, relative to its squared mean: what rounding can leave of zero.
_ROUNDING = 1e-12


class Penalty(NamedTuple):
    """Half the squared norm of the penalised coefficients, and its gradient."""

    value: Tensor
    gradient: Tensor


class Model(Protocol):
    """The map from parameters w of shape (n_params,) to scores of shape (n, K)."""

    linear: bool  # whether scores are linear in the parameters
    n_params: int
    offsets: Tensor  # positions of the parameters that shift all rows' scores alike

    def init(self) -> Tensor:
        """Give the starting parameters."""

    def scores(self, w: Tensor, X: Features) -> Tensor:
        """Scores as in prediction, without a graph."""

    def linearize(self, w: Tensor, X: Features) -> tuple[Tensor, Pullback]:
        """Scores as in training, and the map from cotangents (n, K) to gradients (n_params,).

        Of linear models also from several, (n, K, k), to (n_params, k).
        """

    def linearize_rows(self, w: Tensor, X: Features) -> tuple[Tensor, ClippedPullback]:
        """Scores as in training, and the map from cotangents c (n, K) and a norm C to

        sum_i clip(J_i' c_i, C): each row's gradient is scaled down to norm C before the sum. Rows
        may each have a C, (n,), infinite for those that are public.
        """

    def prepared(self, X: Features) -> tuple[Model, Features]:
        """A model and features for many batches of X: the same parameters give the same scores,

        and what no step changes is worked out once.
        """

    def penalty(self, w: Tensor) -> Penalty:
        """Half the squared norm of the coefficients (never of intercepts and biases)."""

    def attributes(self, w: Tensor) -> dict[str, Any]:
        """What a fitted estimator keeps of the model, on the CPU."""

    def restore(self, attributes: Mapping[str, Any]) -> Tensor:
        """Give the parameters of a fitted estimator's attributes: for warm starts."""

    def settle(self, w: Tensor, X: Features) -> None:
        """Make state that depends on parameters and data (batch statistics) fit these."""


def column_variances(X: Features, weight: Tensor, center: Tensor) -> Tensor:
    """Column variances, zero where no more than rounding errors make a column vary.

    Raises
    ------
    ValueError
        If a column is so large that its square overflows.
    """
    variance = X.variance(weight, center)
    if not variance.isfinite().all():
        column = int((~variance.isfinite()).nonzero()[0])
        raise ValueError(f"Column {column} of X is too large for its squares: scale the features.")
    return torch.where(variance > _ROUNDING * center**2, variance, torch.zeros_like(variance))


def attribute(attributes: Mapping[str, Any], name: str) -> Any:
    """Look up what the last fit left, for a warm start."""
    if name not in attributes:
        raise ValueError(f"warm_start=True needs a last fit with the same model ({name}).")
    return attributes[name]


def clip_factors(norms: Tensor, max_norm: float | Tensor) -> Tensor:
    """What rows of these norms are multiplied with, so that none is longer than `max_norm`.

    Zero for rows whose norm is not finite: one row must not decide about all.
    """
    return (max_norm / norms).clamp_max(1.0).nan_to_num(nan=0.0)
