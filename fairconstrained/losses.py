"""Losses and class probabilities, plain functions of scores, and derivatives.

Scores have shape (n, K): one column for two classes (the margin of the second class), one column
per class for more. Labels are class indices. Nothing here knows the data or the model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor


class Loss(Protocol):
    """A loss of each row, differentiable by autograd, and its gradient in closed form.

    A step on a mini-batch is mostly the overhead of small operations. Autograd takes three times
    as long as the closed form.
    """

    def __call__(self, scores: Tensor, y: Tensor) -> Tensor:
        """Return the loss of each row, (n,)."""

    def gradient(self, scores: Tensor, y: Tensor) -> Tensor:
        """Return the derivative of each row's loss by its scores, (n, K)."""


def n_outputs(n_classes: int) -> int:
    """Return the number of columns of the scores for `n_classes` classes."""
    return 1 if n_classes == 2 else n_classes


def class_probabilities(scores: Tensor, temperature: float = 1.0) -> Tensor:
    r"""Apply the tempered softmax :math:`\sigma_\tau(z)_k = e^{\tau z_k} / \sum_l e^{\tau z_l}`.

    The paper (RaCO-DP, Section 2) prints :math:`e^{-\tau z}`. Here the sign is plus, because only
    then do the probabilities, (n, n_classes), tend to the one-hot arg max as
    :math:`\tau \to \infty`.
    """
    # With contiguous columns, sums and products along rows are twice as fast, a softmax five times.
    z = (scores if temperature == 1 else temperature * scores).T.contiguous()
    if scores.shape[1] > 1:
        return torch.softmax(z, dim=0).T
    return torch.sigmoid(torch.cat((-z, z))).T


def hard_classes(scores: Tensor) -> Tensor:
    """Return predicted class indices, (n,), by the decision rule of ``predict``."""
    # A score of zero predicts the first class, as scikit-learn's linear classifiers do.
    return scores.argmax(dim=1) if scores.shape[1] > 1 else (scores[:, 0] > 0).long()


@dataclass(frozen=True)
class LogLoss:
    """Negative log-likelihood of each row's label."""

    def __call__(self, scores: Tensor, y: Tensor) -> Tensor:
        if scores.shape[1] > 1:
            return torch.logsumexp(scores.T, dim=0) - scores.gather(1, y[:, None])[:, 0]
        label = y.to(scores.dtype)
        return F.binary_cross_entropy_with_logits(scores.squeeze(1), label, reduction="none")

    def gradient(self, scores: Tensor, y: Tensor) -> Tensor:
        """Return the probabilities minus the one-hot label."""
        if scores.shape[1] > 1:
            return class_probabilities(scores) - F.one_hot(y, scores.shape[1])
        return torch.sigmoid(scores) - y[:, None]


@dataclass(frozen=True)
class BrierLoss:
    """Half the squared distance from the class probabilities to the one-hot label."""

    def __call__(self, scores: Tensor, y: Tensor) -> Tensor:
        p = class_probabilities(scores)
        return 0.5 * ((p - F.one_hot(y, p.shape[1])) ** 2).sum(dim=1)

    def gradient(self, scores: Tensor, y: Tensor) -> Tensor:
        """Return the residuals, pulled back through the class probabilities."""
        p = class_probabilities(scores)
        return through_probabilities(p, p - F.one_hot(y, p.shape[1]))


def through_probabilities(p: Tensor, weights: Tensor, temperature: float = 1.0) -> Tensor:
    r"""Return the derivative of weighted class probabilities by the scores of each row, (n, K).

    It is :math:`\tau\, p_k (w_k - \sum_l w_l p_l)` for probabilities p and weights w, both of shape
    (n, n_classes). Two classes have the scores (0, z), and the gradient is
    :math:`\tau\, p_0 p_1 (w_1 - w_0)`.
    """
    if p.shape[1] == 2:
        (p_0, p_1), (w_0, w_1) = p.unbind(1), weights.unbind(1)
        return (temperature * p_0 * p_1 * (w_1 - w_0))[:, None]
    return temperature * p * (weights - (weights * p).sum(dim=1, keepdim=True))


def zero_one_loss(scores: Tensor, y: Tensor) -> Tensor:
    """Return 1 where the predicted class is wrong and 0 elsewhere, (n,); not differentiable."""
    return (hard_classes(scores) != y).to(scores.dtype)


log_loss, brier_loss = LogLoss(), BrierLoss()
LOSSES: dict[str, Loss] = {"log": log_loss, "brier": brier_loss}


def linearized(
    function: Callable[..., Tensor], *at: Tensor
) -> tuple[Tensor, Callable[[Tensor], tuple[Tensor, ...]]]:
    """Return values of a function, and the map from weights on them to gradients of their sum.

    The function takes one tensor for each of `at`. The map takes weights of the values' shape and
    returns one gradient for each of `at`; it may be called more than once.
    """
    # Detached copies, so that nothing is added to the caller's graph.
    leaves = [tensor.detach().requires_grad_() for tensor in at]
    with torch.enable_grad():
        value = function(*leaves)

    def pullback(weights: Tensor) -> tuple[Tensor, ...]:
        if not value.requires_grad:  # there are no values, or they are constant
            return tuple(torch.zeros_like(leaf) for leaf in leaves)
        with torch.enable_grad():
            total = _Inner.apply(value, weights)  # type: ignore[no-untyped-call]
        return torch.autograd.grad(total, leaves, retain_graph=True, materialize_grads=True)

    return value.detach(), pullback


class _Inner(torch.autograd.Function):
    """The sum of x * weights, (), for its derivative only.

    With weights as `grad_outputs` torch would import sympy, which takes a second in a new process.
    """

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
