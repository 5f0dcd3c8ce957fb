"""Losses and class probabilities: plain functions of scores.

Scores have shape (n, K): one column for two classes (the margin of the second class), one column
per class for more. Labels are class indices. Nothing here knows the data or the model.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = [
    "LOSSES",
    "brier_loss",
    "class_probabilities",
    "hard_classes",
    "log_loss",
    "n_outputs",
    "zero_one_loss",
]

Loss = Callable[[Tensor, Tensor], Tensor]


def n_outputs(n_classes: int) -> int:
    """Columns of the scores for `n_classes` classes."""
    return 1 if n_classes == 2 else n_classes


def class_probabilities(scores: Tensor, temperature: float = 1.0) -> Tensor:
    r"""Tempered softmax :math:`\sigma_\tau(z)_k = e^{\tau z_k} / \sum_l e^{\tau z_l}`.

    Paper (RaCO-DP, Section 2) prints :math:`e^{-\tau z}`; here the sign is plus, because only then
    does it tend to the one-hot arg max, (n, n_classes), as :math:`\tau \to \infty`.

    Examples
    --------
    >>> import torch
    >>> from fairconstrained.losses import class_probabilities
    >>> class_probabilities(torch.tensor([[0.0]]))
    tensor([[0.5000, 0.5000]])
    """
    z = temperature * scores
    if scores.shape[1] > 1:
        return torch.softmax(z, dim=1)
    # Columns one after the other in memory: sums and products along rows are twice as fast.
    return torch.sigmoid(torch.cat((-z.T, z.T))).T


def hard_classes(scores: Tensor) -> Tensor:
    """Predicted class indices, (n,): the decision rule of ``predict``."""
    if scores.shape[1] > 1:
        return scores.argmax(dim=1)
    return (scores[:, 0] > 0).long()


def log_loss(scores: Tensor, y: Tensor) -> Tensor:
    """Negative log-likelihood of each row's label, (n,)."""
    if scores.shape[1] > 1:
        return F.cross_entropy(scores, y, reduction="none")
    label = y.to(scores.dtype)
    return F.binary_cross_entropy_with_logits(scores.squeeze(1), label, reduction="none")


def brier_loss(scores: Tensor, y: Tensor) -> Tensor:
    """Squared distance of the class probabilities to the one-hot label, halved, (n,)."""
    p = class_probabilities(scores)
    return 0.5 * ((p - F.one_hot(y, p.shape[1])) ** 2).sum(dim=1)


def zero_one_loss(scores: Tensor, y: Tensor) -> Tensor:
    """1 where the predicted class is wrong, (n,); not differentiable."""
    return (hard_classes(scores) != y).to(scores.dtype)


LOSSES: dict[str, Loss] = {"log": log_loss, "brier": brier_loss}
