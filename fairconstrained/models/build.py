"""From the ``model`` parameter of an estimator to a model for its data."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fairconstrained.features import Features
from fairconstrained.models.base import column_variances
from fairconstrained.models.linear import Linear
from fairconstrained.models.module import Module

__all__ = ["Standardize", "as_model", "multilayer_perceptron"]


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
    X: Features, weight: Tensor, hidden: Sequence[int], n_outputs: int
) -> nn.Module:
    """Rectified layers of the given sizes, on columns standardised as in `X`."""
    center = X.mean(weight)
    deviation = column_variances(X, weight, center).sqrt()
    layers: list[nn.Module] = [
        Standardize(center, torch.where(deviation > 0, deviation, torch.ones_like(deviation)))
    ]
    sizes = [X.shape[1], *hidden]
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
    if isinstance(spec, str) and spec == "linear":
        return Linear.preconditioned(X, weight, n_outputs, alpha, fit_intercept)
    if callable(spec):
        network = spec(X.shape[1], n_outputs)
    elif isinstance(spec, Sequence) and spec and all(map(_is_size, spec)):
        network = multilayer_perceptron(X, weight, [int(n) for n in spec], n_outputs)
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
    network = network.to(device=weight.device, dtype=weight.dtype).eval()
    n = min(2, X.shape[0])
    with torch.no_grad():
        shape = tuple(network(X.rows(torch.arange(n)).to_dense()).shape)
    if shape != (n, n_outputs) and (shape, n_outputs) != ((n,), 1):
        raise ValueError(
            f"model must give scores of shape (n, {n_outputs}); for {n} rows it gave {shape}. Two "
            "classes take one column, more take one each."
        )
    return Module(network)


def _is_size(n: Any) -> bool:
    return isinstance(n, (int, np.integer)) and not isinstance(n, bool) and bool(n > 0)
