"""Objectives of a fit: functions of the scores of all rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from fairconstrained.auc import ranks, wins
from fairconstrained.autograd import linearized
from fairconstrained.constraints.statistics import blocks_of, sum_of_blocks
from fairconstrained.constraints.surrogates import Surrogate
from fairconstrained.losses import Loss, log_loss, zero_one_loss

Gradient = Callable[[], Tensor]
OfRows = Callable[[Tensor, Tensor], Tensor]  # scores and labels to (n,)


class Objective(Protocol):
    """The first value of a problem: soft as optimised, hard as measured.

    Sums are divided by `total`, by default the sum of the weights. For a batch whose weights are
    scaled up it is that of all rows: the ratio to the batch's own would be biased.
    """

    def soft(
        self, scores: Tensor, y: Tensor, weight: Tensor, total: Tensor | None = None
    ) -> Tensor:
        """The value that is minimised, (), differentiable."""

    def linearize(
        self, scores: Tensor, y: Tensor, weight: Tensor, total: Tensor | None = None
    ) -> tuple[Tensor, Gradient]:
        """`soft`, and a function that returns its derivative by the scores, (n, K)."""

    def hard(self, scores: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """The value by which solvers choose among feasible points, ()."""

    def sums(self, scores: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """Sums over rows, of any shape, of which `soft` is a function."""

    def of_sums(self, sums: Tensor) -> Tensor:
        """`soft` from `sums`, also flattened, divided by the total weight."""

    @property
    def is_additive(self) -> bool:
        """Whether `soft` is `sums` divided by the total weight."""

    @property
    def of_rows(self) -> OfRows | None:
        """The error of each row, if `hard` is its mean."""


class _WeightedMean:
    """The weighted mean of the loss of each row."""

    is_additive = True

    loss: Loss

    def soft(
        self, scores: Tensor, y: Tensor, weight: Tensor, total: Tensor | None = None
    ) -> Tensor:
        """Weighted mean of the loss."""
        return self.sums(scores, y, weight) / (weight.sum() if total is None else total)

    def sums(self, scores: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """Weighted sum of the loss, ()."""
        return sum_of_blocks(lambda z, y, w: w @ self.loss(z, y), scores, y, weight)

    def of_sums(self, sums: Tensor) -> Tensor:
        """The mean itself."""
        return sums.reshape(())

    def linearize(
        self, scores: Tensor, y: Tensor, weight: Tensor, total: Tensor | None = None
    ) -> tuple[Tensor, Gradient]:
        """In closed form."""
        total = weight.sum() if total is None else total
        columns = scores, y, weight

        def gradient() -> Tensor:
            return torch.cat(
                [(w / total)[:, None] * self.loss.gradient(z, y) for z, y, w in blocks_of(*columns)]
            )

        return sum_of_blocks(lambda z, y, w: (w / total) @ self.loss(z, y), *columns), gradient


@dataclass(frozen=True)
class MeanLoss(_WeightedMean):
    """The mean loss, measured by the error rate or by the mean of another loss."""

    loss: Loss
    error: OfRows = zero_one_loss

    def hard(self, scores: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """Weighted mean of the error."""
        error = sum_of_blocks(lambda z, y, w: w @ self.error(z, y), scores, y, weight)
        return error / weight.sum()

    @property
    def of_rows(self) -> OfRows:
        """The error."""
        return self.error


@dataclass(frozen=True)
class LogLossForRanking(_WeightedMean):
    """The log loss, measured by 1 - AUC."""

    of_rows = None

    loss: Loss = field(default=log_loss, init=False)

    def hard(self, scores: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """1 - AUC of all positives against all negatives."""
        return misranked(scores, y, weight)


@dataclass(frozen=True)
class PairwiseLoss:
    """The surrogate loss of positives against negatives, measured by 1 - AUC.

    Parameters
    ----------
    surrogate : Surrogate
    fractions : tuple of float
        Fractions of the total weight that belong to negatives and to positives. With these known,
        the means of a batch are unbiased, and a batch may be without positives.
    """

    is_additive = False
    of_rows = None

    surrogate: Surrogate
    fractions: tuple[float, float]

    def soft(
        self, scores: Tensor, y: Tensor, weight: Tensor, total: Tensor | None = None
    ) -> Tensor:
        """Surrogate loss in O(n), without pairs."""
        sums = self.sums(scores, y, weight)
        return self.of_sums(sums / (weight.sum() if total is None else total))

    def linearize(
        self, scores: Tensor, y: Tensor, weight: Tensor, total: Tensor | None = None
    ) -> tuple[Tensor, Gradient]:
        """By autograd."""
        value, pullback = linearized(lambda z: self.soft(z, y, weight, total), scores)
        return value, lambda: pullback(torch.ones_like(value))[0]

    def sums(self, scores: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """Sums over negatives and positives, (2, n_columns)."""
        return self.surrogate.statistic.sums(scores, y, weight, y, 2)

    def of_sums(self, sums: Tensor) -> Tensor:
        """Surrogate loss from sums over negatives and positives, divided by the total weight."""
        means = sums.reshape(2, -1) / sums.new_tensor(self.fractions)[:, None]
        return self.surrogate.loss(means[1], means[0])

    def hard(self, scores: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """1 - AUC of all positives against all negatives."""
        return misranked(scores, y, weight)


def misranked(scores: Tensor, y: Tensor, weight: Tensor) -> Tensor:
    """1 - AUC of all positives against all negatives, (); a tie counts one half."""
    w, positive = weight.cpu().numpy(), y.cpu().numpy() == 1
    sides = np.where(positive, w, 0.0), np.where(positive, 0.0, w)
    won = sides[0] @ wins(ranks(scores[:, 0].cpu().numpy()), sides[1])
    return torch.as_tensor(1.0 - won / (sides[0].sum() * sides[1].sum())).to(scores)
