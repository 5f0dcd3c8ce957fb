"""Derivatives by autograd, in the form of all others here: values, and a pullback."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

__all__ = ["linearized"]


def linearized(
    function: Callable[..., Tensor], *at: Tensor
) -> tuple[Tensor, Callable[[Tensor], tuple[Tensor, ...]]]:
    """Values of a function, and the map from weights on them to the weighted sum's gradients.

    Parameters
    ----------
    function : callable
        Of as many tensors as are given.
    *at : Tensor
        Where; they are not changed.

    Returns
    -------
    value : Tensor
    pullback : callable
        From weights of the value's shape to one gradient for each tensor; it may be called again.

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
        if not value.requires_grad:  # no values at all, or constant ones
            return tuple(torch.zeros_like(leaf) for leaf in leaves)
        with torch.enable_grad():
            total = _inner(value, weights)
        return torch.autograd.grad(total, leaves, retain_graph=True, materialize_grads=True)

    return value.detach(), pullback


def _inner(x: Tensor, weights: Tensor) -> Tensor:
    """The sum of x * weights, (), to be differentiated and not to be read: its value is 0.

    With weights as `grad_outputs` torch would import sympy, a second's work in a new process.
    """
    result: Tensor = _Inner.apply(x, weights)  # type: ignore[no-untyped-call]
    return result


class _Inner(torch.autograd.Function):
    """What `_inner` does."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weights: Tensor) -> Tensor:
        """No product."""
        ctx.save_for_backward(weights)
        return x.new_zeros(())

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """The weights."""
        (weights,) = ctx.saved_tensors
        return gradient * weights, None
