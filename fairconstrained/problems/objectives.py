"""Objectives of a fit: functions of the scores of all rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from torch import Tensor

from fairconstrained.arrays import Floats
from fairconstrained.constraints.surrogates import Surrogate
from fairconstrained.constraints.tables import OfRows, Placement, blocks_of
from fairconstrained.exact_auc import ranks, wins
from fairconstrained.losses import Loss, hard_classes, linearized, log_loss, zero_one_loss
from fairconstrained.rate_definitions import expected_costs

if TYPE_CHECKING:
    from fairconstrained.problems.rows import Rows

Gradient = Callable[[], Tensor]


class Objective:
    """Base of objectives: soft as optimised, hard as measured.

    A subclass has :meth:`sums` and :meth:`from_sums`. Sums are divided by `total`, the weight of
    all rows where rows are drawn: dividing by the weight of the batch would be biased.
    """

    is_additive = False  # whether `soft` is `sums` divided by the total weight
    row_error: OfRows | None = None  # the error of each row, if `hard` is its mean

    def sums(self, scores: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """Return sums over rows, of any shape, that determine `soft`."""
        raise NotImplementedError

    def from_sums(self, sums: Tensor) -> Tensor:
        """Compute `soft` from `sums`, possibly flattened, divided by the total weight."""
        return sums.reshape(())

    def soft(
        self, scores: Tensor, y: Tensor, weight: Tensor, total: Tensor | None = None
    ) -> Tensor:
        """Return the value that is minimised, (), differentiable."""
        sums = self.sums(scores, y, weight)
        return self.from_sums(sums / (weight.sum() if total is None else total))

    def linearize(
        self, scores: Tensor, y: Tensor, weight: Tensor, total: Tensor | None = None
    ) -> tuple[Tensor, Gradient]:
        """Return `soft` and a function that returns its derivative by the scores, (n, K)."""
        value, pullback = linearized(lambda z: self.soft(z, y, weight, total), scores)
        return value, lambda: pullback(torch.ones_like(value))[0]

    def hard(self, scores: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """Return the value by which solvers choose feasible points, (); a tie counts one half."""
        # Exact AUCs need one sort, which numpy does faster than torch.
        w, positive = weight.cpu().numpy(), y.cpu().numpy() == 1
        sides = np.where(positive, w, 0.0), np.where(positive, 0.0, w)
        won = sides[0] @ wins(ranks(scores[:, 0].cpu().numpy()), sides[1])
        return torch.as_tensor(1.0 - won / (sides[0].sum() * sides[1].sum())).to(scores)


@dataclass(frozen=True)
class RankedLoss(Objective):
    """The mean loss, measured by 1 - AUC."""

    is_additive = True

    loss: Loss = log_loss

    def sums(self, scores: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        return _weighted_sum(self.loss, scores, y, weight)

    def linearize(
        self, scores: Tensor, y: Tensor, weight: Tensor, total: Tensor | None = None
    ) -> tuple[Tensor, Gradient]:
        weight = weight / (weight.sum() if total is None else total)

        def gradient() -> Tensor:
            gradients = []
            for z, label, w in blocks_of(scores, y, weight):
                gradients.append(w[:, None] * self.loss.gradient(z, label))
            return torch.cat(gradients)

        return self.sums(scores, y, weight), gradient


@dataclass(frozen=True)
class MeanLoss(RankedLoss):
    """The mean loss, measured by the error rate or by the mean of another loss."""

    row_error: OfRows = zero_one_loss

    def hard(self, scores: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        return _weighted_sum(self.row_error, scores, y, weight) / weight.sum()


@dataclass(frozen=True, eq=False)
class Costs:
    """Costs of predictions: a loss for training, and the cost by which points are compared.

    The log loss, weighted by the largest extra cost of misclassifying a row of this label: the sign
    of the best score of two labels has the least mean cost (Elkan 2001).
    """

    table: Tensor  # (n_classes, n_classes), true label by predicted label, the largest is 1

    @classmethod
    def of(cls, costs: Any, weight: Floats) -> MeanLoss:
        """Return the objective for these costs, scaled to at most 1, given each label's weight."""
        rates = expected_costs(costs, len(weight))
        table = torch.as_tensor(sum(r.hits / (r.possible.max(axis=1) @ weight) for r in rates))
        if not table.any():
            raise ValueError(f"costs must not all be zero; got {costs!r}.")
        # In units of the largest cost errors are at most 1, as tolerances of solvers expect.
        table = table / table.max()
        return MeanLoss(cls(table), cls(table).label_costs)

    def __call__(self, scores: Tensor, y: Tensor) -> Tensor:
        """Return the weighted log loss of each row, (n,)."""
        return self._weight(y, scores) * log_loss(scores, y)

    def gradient(self, scores: Tensor, y: Tensor) -> Tensor:
        """Return the derivative of the loss by the scores, (n, K)."""
        return self._weight(y, scores)[:, None] * log_loss.gradient(scores, y)

    def label_costs(self, scores: Tensor, y: Tensor) -> Tensor:
        """Return the cost of each predicted label, (n,)."""
        return self.table.to(scores)[y, hard_classes(scores)]

    def _weight(self, y: Tensor, like: Tensor) -> Tensor:
        # Correct predictions may cost something, too: only the extra cost counts.
        return (self.table - self.table.diagonal()[:, None]).amax(dim=1).to(like)[y]


@dataclass(frozen=True)
class PairwiseLoss(Objective):
    """The surrogate loss of positives against negatives, measured by 1 - AUC."""

    surrogate: Surrogate
    fractions: tuple[float, float]

    @classmethod
    def from_data(cls, surrogate: Surrogate, data: Rows) -> Self:
        """Return the loss with the fractions of the rows of all workers."""

        def by_label(local: Rows) -> Tensor:
            return torch.stack([local.weight[local.y == k].sum() for k in (0, 1)])

        negatives, positives = (data.sum(by_label) / data.total_weight).tolist()
        return cls(surrogate, (negatives, positives))

    def sums(self, scores: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """Sum over negatives and positives, (2, n_columns), in O(n), without pairs."""
        return self.surrogate.statistic.sums(scores, Placement(y, y, weight, 2))

    def from_sums(self, sums: Tensor) -> Tensor:
        # Known fractions, not the batch's: means are unbiased, and a batch may lack a label.
        means = sums.reshape(2, -1) / sums.new_tensor(self.fractions)[:, None]
        return self.surrogate.loss(means[1], means[0])


def _weighted_sum(loss: OfRows, scores: Tensor, y: Tensor, weight: Tensor) -> Tensor:
    """Sum a weighted loss over blocks of rows that fit into the cache, ()."""
    total = scores.new_zeros(())
    for z, label, w in blocks_of(scores, y, weight):
        total = total + w @ loss(z, label)
    return total
