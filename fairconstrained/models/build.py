"""From the ``model`` parameter of an estimator to a model for its data."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fairconstrained.models.base import column_variances
from fairconstrained.models.features import Features
from fairconstrained.models.linear import Linear, ScaledLinear
from fairconstrained.models.module import Module
from fairconstrained.models.per_row import check_rows_independent
from fairconstrained.models.perceptron import Perceptron

__all__ = ["Standardize", "as_model", "as_private_model", "multilayer_perceptron"]


class Standardize(nn.Module):
    """Shift and scale the columns by fixed amounts: the first layer of a perceptron."""

    center: Tensor
    scale: Tensor

    def __init__(self, center: Tensor, scale: Tensor):
        super().__init__()
        self.register_buffer("center", center)
        self.register_buffer("scale", scale)

    def forward(self, X: Tensor) -> Tensor:
        """Standardised columns."""
        return (X - self.center) / self.scale


def multilayer_perceptron(
    center: Tensor, scale: Tensor, hidden: Sequence[int], n_outputs: int
) -> nn.Module:
    """Rectified layers of the given sizes, on ``(x - center) / scale``."""
    layers: list[nn.Module] = [Standardize(center, scale)]
    sizes = [len(center), *hidden]
    for n_in, n_out in pairwise(sizes):
        layers += [nn.Linear(n_in, n_out), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(sizes[-1], n_outputs))


def as_model(
    spec: Any, X: Features, weight: Tensor, n_outputs: int, alpha: float, fit_intercept: bool
) -> Linear | Module:
    """Build the model that an estimator's ``model`` parameter names, for these data.

    Parameters
    ----------
    spec : "linear", sequence of int, or callable
        Sizes of hidden layers, or ``(n_features, n_outputs) -> nn.Module``.
    X : Features
    weight : Tensor of shape (n,)
    n_outputs : int
        Columns that the scores must have.
    alpha : float
        The l2 penalty, for the coordinates of a linear model.
    fit_intercept : bool
        For a linear model; networks have their own biases.

    Raises
    ------
    ValueError
        If `spec` is none of these, or the network does not give scores of shape (n, n_outputs).
    """
    if _is_linear(spec):
        return Linear.preconditioned(X, weight, n_outputs, alpha, fit_intercept)
    center = X.mean(weight)
    deviation = column_variances(X, weight, center).sqrt()
    scale = torch.where(deviation > 0, deviation, torch.ones_like(deviation))
    return _module(spec, center, scale, n_outputs)


def as_private_model(
    spec: Any, center: Tensor, scale: Tensor, n_outputs: int, fit_intercept: bool
) -> Linear | Module:
    """Build a model without a look at the data, for private training.

    Parameters
    ----------
    spec, n_outputs, fit_intercept
        As in :func:`as_model`.
    center, scale : Tensor of shape (n_features,)
        Public: linear models and perceptrons see ``(x - center) / scale``.

    Raises
    ------
    ValueError
        As :func:`as_model`, and if the network mixes the rows of a batch.
    """
    if _is_linear(spec):
        # Without an intercept the origin matters: scores are zero there.
        origin = center if fit_intercept else torch.zeros_like(center)
        return ScaledLinear(n_outputs, origin, 1.0 / scale, fit_intercept)
    model = _module(spec, center, scale, n_outputs)
    check_rows_independent(model.network, len(center))
    return model


def _is_linear(spec: Any) -> bool:
    return isinstance(spec, str) and spec == "linear"


def _module(spec: Any, center: Tensor, scale: Tensor, n_outputs: int) -> Module:
    kind: type[Module] = Module
    if callable(spec):
        network = spec(len(center), n_outputs)
    elif isinstance(spec, Sequence) and spec and all(map(_is_size, spec)):
        network = multilayer_perceptron(center, scale, [int(n) for n in spec], n_outputs)
        kind = Perceptron
    else:
        raise ValueError(
            "model must be 'linear', a tuple of hidden sizes such as (64, 32), or a callable "
            f"(n_features, n_outputs) -> nn.Module; got {spec!r}."
        )
    if not isinstance(network, nn.Module) or not any(
        parameter.requires_grad for parameter in network.parameters()
    ):
        raise ValueError(
            f"model must return an nn.Module with parameters to train; got {network!r}."
        )
    # A copy: a factory may give the same module twice, and a former fit keeps its own.
    network = copy.deepcopy(network).to(device=center.device, dtype=center.dtype).eval()
    for training in (False, True):
        _check_scores(copy.deepcopy(network).train(training), center, n_outputs)
    return kind(network)


def _check_scores(trial: nn.Module, like: Tensor, n_outputs: int) -> None:
    """Try on two rows: the copy, and the global random numbers, are not those of training."""
    with torch.no_grad(), torch.random.fork_rng():
        given = trial(like.new_zeros((2, len(like))))
    if not (isinstance(given, Tensor) and given.is_floating_point()):
        raise ValueError(
            f"model must give scores as one tensor of real numbers; got {type(given).__name__}"
            f"{f' of {given.dtype}' if isinstance(given, Tensor) else ''}."
        )
    shape = tuple(given.shape)
    if shape != (2, n_outputs) and (shape, n_outputs) != ((2,), 1):
        raise ValueError(
            f"model must give scores of shape (n, {n_outputs}); for 2 rows it gave {shape}. Two "
            "classes take one column, more take one each."
        )


def _is_size(n: Any) -> bool:
    return isinstance(n, (int, np.integer)) and not isinstance(n, bool) and bool(n > 0)
