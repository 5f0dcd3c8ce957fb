"""What a fit minimises, and what it is judged by: functions of all scores at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from fairconstrained.constraints.surrogates import Surrogate
from fairconstrained.losses import Loss, log_loss, zero_one_loss
from fairconstrained.ranking import ranks, wins

__all__ = ["LogLossForRanking", "MeanLoss", "Objective", "PairwiseLoss"]


class Objective(Protocol):
    """The first value of a problem, twice: as optimised and as measured."""

    def soft(self, scores: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """Differentiable, ()."""

    def hard(self, scores: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """What solvers select by among feasible points, ()."""


@dataclass(frozen=True)
class MeanLoss:
    """The mean of a row's loss; measured by the error rate, or the mean of another loss."""

    loss: Loss
    error: Callable[[Tensor, Tensor], Tensor] = zero_one_loss

    def soft(self, scores: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """Weighted mean."""
        return weight @ self.loss(scores, y) / weight.sum()

    def hard(self, scores: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """Weighted share of wrong predictions."""
        return weight @ self.error(scores, y) / weight.sum()


@dataclass(frozen=True)
class LogLossForRanking:
    """The log loss; measured by 1 - AUC."""

    def soft(self, scores: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """Weighted mean of the log loss."""
        return weight @ log_loss(scores, y) / weight.sum()

    def hard(self, scores: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """1 - AUC of all positives against all negatives."""
        return misranked(scores, y, weight)


@dataclass(frozen=True)
class PairwiseLoss:
    """The surrogate's loss of positives against negatives; measured by 1 - AUC.

    Parameters
    ----------
    surrogate : Surrogate
    shares : tuple of float
        The weight of the negatives and of the positives, out of 1: known shares make the means of
        a batch unbiased, and a batch without positives harmless.
    """

    surrogate: Surrogate
    shares: tuple[float, float]

    def soft(self, scores: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """O(n): no pairs."""
        rows = self.surrogate.statistic.soft(scores, y) * weight[:, None]
        sums = rows.new_zeros((2, rows.shape[1])).index_add(0, y, rows)
        return self.of_sums(sums / weight.sum())

    def of_sums(self, sums: Tensor) -> Tensor:
        """From sums of the statistic over negatives and positives, per unit of all weight."""
        means = sums / sums.new_tensor(self.shares)[:, None]
        return self.surrogate.loss(means[1], means[0])

    def hard(self, scores: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """1 - AUC of all positives against all negatives."""
        return misranked(scores, y, weight)


def misranked(scores: Tensor, y: Tensor, weight: Tensor) -> Tensor:
    """1 - AUC of all positives against all negatives, ties by half, ()."""
    w, positive = weight.cpu().numpy(), y.cpu().numpy() == 1
    sides = np.where(positive, w, 0.0), np.where(positive, 0.0, w)
    won = sides[0] @ wins(ranks(scores[:, 0].cpu().numpy()), sides[1])
    return torch.as_tensor(1.0 - won / (sides[0].sum() * sides[1].sum())).to(scores)
