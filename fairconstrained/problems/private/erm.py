r"""The problem as a private solver sees it: noisy releases, and nothing else.

:class:`PrivateERM` holds the rows but gives no exact value of them away. Each call of
:meth:`PrivateERM.release` draws one Poisson batch and makes one joint release of it (a noisy table
of moments and a noisy sum of clipped gradients), and takes one step off the plan that the
accountant has priced.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from fairconstrained.constraints import MomentConstraint
from fairconstrained.constraints.statistics import sum_by
from fairconstrained.exceptions import IncompatibleSolverError
from fairconstrained.losses import Loss
from fairconstrained.models import Model
from fairconstrained.models.features import Features
from fairconstrained.privacy import TrainingPlan
from fairconstrained.privacy.mechanisms import NOISES, PoissonBatches, with_gaussian_noise
from fairconstrained.problems import Batch

__all__ = ["PrivateERM", "Release", "with_zero_row"]

_SHARES = tuple((i + 0.5) / 20 for i in range(20))


class Release(NamedTuple):
    """What one step may know of the data."""

    table: Tensor  # (n_parts, n_columns): estimate of the moments of all rows' labels
    gradient: Tensor  # (n_variables,): of `scale` times the Lagrangian, without the penalty
    scale: float


class Sampled(NamedTuple):
    """A Poisson batch of rows."""

    X: Features
    y: Tensor  # (n,) class indices
    bins: Tensor  # (n,) part of each row, or one more bin for rows in none

    def rows(self, index: Tensor) -> Sampled:
        """These rows."""
        y, bins = self.y.index_select(0, index), self.bins.index_select(0, index)
        return Sampled(self.X.rows(index), y, bins)


def with_zero_row(table: Tensor) -> Tensor:
    """A table with one more row, for what is in no part."""
    return torch.cat((table, table.new_zeros((1, table.shape[1]))))


class PrivateERM:
    r"""Empirical risk minimisation under a moment constraint, by noisy releases.

    With the released counts :math:`\tilde N` and a Poisson batch B of rate q, the released table is
    :math:`\tilde M = \frac1q (\sum_{i \in B} s(z_i) + \text{noise})` on predicted labels, and the
    gradient

    .. math::

        \frac{1}{qn} \Big( \sum_{i \in B} \mathrm{clip}_C \frac{1}{1 + \kappa} \big(
        \nabla \ell_i
        + n \, \partial_M (\lambda \cdot g)(\tilde M, \tilde N) \cdot \nabla s(z_i) \big)
        + \text{noise} \Big).

    The division by :math:`1 + \kappa`, where :math:`\kappa` is the mean spread of the weights on
    the statistics, keeps the clip from taking more off the constraint than off the loss when
    multipliers are large: with the clip alone a cap on false negative rates of 0.3 ended at 0.99 on
    the heart data.

    Parameters
    ----------
    model : Model
    data : Batch
        Its weights are not used: private rows count once.
    loss : callable
    constraint : MomentConstraint
    alpha : float
    counts : Tensor of shape (n_parts,)
        Released, not exact.
    plan : TrainingPlan
    histogram_noise : {"gaussian", "laplace"}

    Raises
    ------
    IncompatibleSolverError
        If the constraint has extra variables.
    """

    def __init__(
        self,
        model: Model,
        data: Batch,
        loss: Loss,
        constraint: MomentConstraint,
        alpha: float,
        counts: Tensor,
        plan: TrainingPlan,
        histogram_noise: str,
    ):
        if constraint.n_aux:
            raise IncompatibleSolverError(
                "Private training moves the parameters of the model only, and this constraint has "
                "variables of its own (partial statistical parity). Use a constraint of rates, or "
                "epsilon=None."
            )
        self.model, X = model.prepared(data.X)
        self.data = Sampled(X, data.y, constraint.place(data.y, data.group, data.weight).part)
        self.loss = loss
        self.constraint = constraint
        self.alpha = alpha
        self.counts = counts
        self.plan = plan
        self._add_noise = NOISES[histogram_noise]
        # Of the released counts; a step is mostly the overhead of small operations.
        self._affine = constraint.affine(counts)
        self._steps_left = plan.privacy.n_steps
        self._tables_left = plan.final_tables
        self._batches: PoissonBatches | None = None

    @property
    def n_rows(self) -> int:
        """Number of rows, which is public."""
        return len(self.data.y)

    @property
    def n_constraints(self) -> int:
        """Number m of constraint values."""
        return len(self.values(self._uniform_table()))

    def start(self) -> Tensor:
        """Where a fit begins; it does not depend on the data."""
        return self.model.init()

    def penalty_gradient(self, x: Tensor) -> Tensor:
        """Gradient of the l2 penalty, which has nothing to do with the data."""
        return self.alpha * self.model.penalty(x).gradient

    def values(self, table: Tensor) -> Tensor:
        """Constraint values from a released table, (m,)."""
        if self._affine is None:
            return self.constraint.hard_of_moments(table, self.counts, self.counts[:0])
        return self._affine.of_table(table)

    def weights(self, table: Tensor, dual: Tensor) -> Tensor:
        """Derivative of dual . g by the table, (n_parts, n_columns)."""
        if self._affine is not None:
            return self._affine.on_table(dual)
        table = table.detach().requires_grad_()
        with torch.enable_grad():
            total = dual @ self.constraint.of_moments(table, self.counts, self.counts[:0])
        (weights,) = torch.autograd.grad(total, table)
        return weights

    @property
    def table_noise(self) -> float:
        """Standard deviation of the entries of a step's table, scaled up to all rows."""
        return self.plan.histogram_noise * self.constraint.bound / self._rate

    @property
    def final_noise(self) -> float:
        """Standard deviation of the entries of a final table."""
        return self.plan.final_noise * self.constraint.bound

    def noise_of_values(self, table_noise: float) -> Tensor:
        """Standard deviation of the constraint values of a table with such noise, about, (m,).

        Of values that are not linear in the table the largest over tables of equal shares: what is
        flat outside of an interval would seem to have no noise.
        """
        table = self._uniform_table()
        unit = torch.eye(self.n_constraints, dtype=table.dtype, device=table.device)
        shares = _SHARES if self._affine is None else (1.0,)
        slopes = [
            max(float(self.weights(share * table, row).norm()) for share in shares) for row in unit
        ]
        return table.new_tensor(slopes) * table_noise

    def release(
        self, x: Tensor, weigh: Callable[[Tensor], Tensor], max_norm: float, rng: Generator
    ) -> Release:
        """One step: a table and, with the weights that `weigh` gives for it, a gradient.

        Raises
        ------
        RuntimeError
            If the plan has no step left.
        """
        batch = self.data.rows(self._next_rows(rng))
        scores, clipped = self.model.linearize_rows(x, batch.X)
        soft, on_scores = self.constraint.statistic.linearize(scores, batch.y)
        table = self._noisy_table(self._counted(scores, soft, batch.y), batch.bins, rng)
        weights = self.n_rows * weigh(table)
        scale = 1.0 / (1.0 + self._mean_spread(weights))
        # Row by row what the weights on the table are: no sum over parts, forth and back.
        on_rows = with_zero_row(weights).index_select(0, batch.bins)
        cotangent = self.loss.gradient(scores, batch.y) + on_scores(on_rows)
        # The gradient of a row whose scores are not finite is zero.
        cotangent = (scale * cotangent).nan_to_num(0.0, 0.0, 0.0)
        gradient = with_gaussian_noise(
            clipped(cotangent, max_norm), self.plan.gradient_noise * max_norm, rng
        )
        return Release(table, gradient / (self._rate * self.n_rows), scale)

    def release_table(self, x: Tensor, rng: Generator) -> Tensor:
        """The table of all rows at `x`, which the trained model may be: as often as planned."""
        if self._tables_left == 0:
            raise RuntimeError("The privacy budget is spent: all final tables have been released.")
        self._tables_left -= 1
        scores = self.model.scores(x, self.data.X)
        table = self._table(self.constraint.statistic.hard(scores, self.data.y), self.data.bins)
        return with_gaussian_noise(table, self.final_noise, rng)

    def _next_rows(self, rng: Generator) -> Tensor:
        """Take a step off the plan: the rows of its Poisson batch."""
        if self._steps_left == 0:
            raise RuntimeError("The privacy budget is spent: the plan has no step left.")
        self._steps_left -= 1
        if self._batches is None or self._batches.rng is not rng:
            self._batches = PoissonBatches(self.n_rows, self._rate, rng)
        return next(self._batches).to(self.data.y.device)

    def _noisy_table(self, statistics: Tensor, bins: Tensor, rng: Generator) -> Tensor:
        """The table of a batch, scaled up to all rows."""
        deviation = self.plan.histogram_noise * self.constraint.bound
        return self._add_noise(self._table(statistics, bins), deviation, rng) / self._rate

    def _counted(self, scores: Tensor, soft: Tensor, y: Tensor) -> Tensor:
        """What the table of a step adds up: predicted labels, here."""
        return self.constraint.statistic.hard(scores, y)

    def _mean_spread(self, weights: Tensor) -> float:
        """How much the constraint weighs in a row's gradient, on average over released counts."""
        if not weights.numel():
            return 0.0
        spread = weights.amax(dim=1) - weights.amin(dim=1)
        return float(spread @ self.counts) / self.n_rows

    def _table(self, statistics: Tensor, bins: Tensor) -> Tensor:
        n_parts = self.constraint.n_parts
        return sum_by(statistics, bins, n_parts + 1)[:n_parts]

    def _uniform_table(self) -> Tensor:
        columns = self.constraint.statistic.n_columns
        return self.counts[:, None].expand(-1, columns) / max(columns, 1)

    @property
    def _rate(self) -> float:
        return self.plan.privacy.sampling_rate
