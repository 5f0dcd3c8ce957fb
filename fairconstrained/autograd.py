"""Derivatives by autograd, as values and a pullback."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def linearized(
    function: Callable[..., Tensor], *at: Tensor
) -> tuple[Tensor, Callable[[Tensor], tuple[Tensor, ...]]]:
    """Values of a function, and the map from weights on them to gradients of the weighted sum.

    Parameters
    ----------
    function : callable
        A function of one tensor for each of `at`.
    *at : Tensor
        The point at which to linearize. It is not changed.

    Returns
    -------
    value : Tensor
    pullback : callable
        Takes weights of the value's shape and returns one gradient for each of `at`. It may be
        called more than once.

    Examples
    --------
    >>> import torch
    >>> from fairconstrained.autograd import linearized
    >>> at = torch.tensor([2.0, 3.0]), torch.tensor(5.0)
    >>> value, pullback = linearized(lambda x, y: x * y, *at)
    >>> value, pullback(torch.tensor([1.0, 0.0]))
    (tensor([10., 15.]), (tensor([5., 0.]), tensor(2.)))
    """
    leaves = [tensor.detach().requires_grad_() for tensor in at]
    with torch.enable_grad():
        value = function(*leaves)

    def pullback(weights: Tensor) -> tuple[Tensor, ...]:
        if not value.requires_grad:  # there are no values, or they are constant
            return tuple(torch.zeros_like(leaf) for leaf in leaves)
        with torch.enable_grad():
            total = _inner(value, weights)
        return torch.autograd.grad(total, leaves, retain_graph=True, materialize_grads=True)

    return value.detach(), pullback


def _inner(x: Tensor, weights: Tensor) -> Tensor:
    """The sum of x * weights, (), for its derivative only: its value is 0.

    With weights as `grad_outputs` torch would import sympy, which takes a second in a new process.
    """
    result: Tensor = _Inner.apply(x, weights)  # type: ignore[no-untyped-call]
    return result


class _Inner(torch.autograd.Function):
    """The inner product of `_inner`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weights: Tensor) -> Tensor:
        """Return zero, since no caller reads the value."""
        ctx.save_for_backward(weights)
        return x.new_zeros(())

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """Return the weights as the derivative by x."""
        (weights,) = ctx.saved_tensors
        return gradient * weights, None
