r"""Empirical risk minimisation as a private solver sees it: noisy tables and noisy gradients.

Each step draws one Poisson batch and makes one joint release of it, a noisy table of moments and a
noisy sum of clipped gradients. It takes one step off the plan that the accountant has priced.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
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
from fairconstrained.problems.base import Batch
from fairconstrained.problems.private.base import PrivateProblem

_LARGEST = 1e6  # score in place of an infinite one
_RATES = tuple((i + 0.5) / 20 for i in range(20))  # at which slopes of values are taken


class Release(NamedTuple):
    """The releases of one step."""

    table: Tensor  # (n_parts, n_columns): estimate of the moments of all rows' labels
    gradient: Tensor  # (n_variables,): of `scale` times the Lagrangian, without the penalty
    scale: float


class Sampled(NamedTuple):
    """Rows that Poisson batches are drawn from, or such a batch."""

    X: Features
    y: Tensor  # (n,) class indices
    part: Tensor  # (n,) part of each row; n_parts for rows in no part

    def rows(self, index: Tensor) -> Sampled:
        """Select rows by their indices."""
        y, part = self.y.index_select(0, index), self.part.index_select(0, index)
        return Sampled(self.X.rows(index), y, part)


def finite(scores: Tensor) -> Tensor:
    """Scores that one row cannot use to make a whole table nan."""
    return scores.nan_to_num(0.0, _LARGEST, -_LARGEST)


def with_zero_row(table: Tensor) -> Tensor:
    """Append a row of zeros, for the rows in no part."""
    return torch.cat((table, table.new_zeros((1, table.shape[1]))))


class NoisySteps(PrivateProblem):
    """Base: steps on Poisson batches, each with a noisy table and a noisy clipped gradient.

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
    n_rows : int, optional
        Number of rows, which is public, if other workers have more rows than those in `data`.

    Raises
    ------
    IncompatibleSolverError
        If the constraint has extra variables.
    """

    plan: TrainingPlan

    def __init__(
        self,
        model: Model,
        data: Batch,
        loss: Loss,
        constraint: MomentConstraint,
        alpha: float,
        counts: Tensor,
        plan: TrainingPlan,
        n_rows: int | None = None,
    ):
        if constraint.n_aux:
            raise IncompatibleSolverError(
                "Private training moves the parameters of the model only, and this constraint has "
                "variables of its own (partial statistical parity). Use a constraint of rates, or "
                "epsilon=None."
            )
        prepared, X = model.prepared(data.X)
        releases = {"step": plan.privacy.n_steps, "final table": plan.final_tables}
        super().__init__(prepared, plan, releases)
        part = constraint.place(data.y, data.group, data.weight).part
        self.data = Sampled(X, data.y, part)
        self.n_rows = len(data.y) if n_rows is None else n_rows
        self.loss = loss
        self.constraint = constraint
        self.alpha = alpha
        self.counts = counts
        self._add_noise = NOISES[plan.histogram_kind]
        # The counts never change, and a step is mostly the overhead of small operations.
        self._affine = constraint.affine(counts)
        self._widths = constraint.statistic.widths
        width = torch.tensor(self._widths).to(counts)
        block = torch.repeat_interleave(width.long())
        same = (block[:, None] == block) & (width[block] > 1)
        self._means = same / width[block]  # the product with it has the means of blocks
        self._batches = PoissonBatches(len(data.y), self._rate)

    def penalty_gradient(self, x: Tensor) -> Tensor:
        """Gradient of the l2 penalty, which does not depend on the data."""
        return self.alpha * self.model.penalty(x).gradient

    def values(self, table: Tensor) -> Tensor:
        """Constraint values from a released table, (m,)."""
        if self._affine is None:
            return self.constraint.hard_of_moments(table, self.counts, self.counts[:0])
        return self._affine.of_table(table)

    @property
    def final_noise(self) -> float:
        """Standard deviation of the noise on a final table, before rows are made to add up."""
        return self.plan.final_noise * self._norm("gaussian")

    def release_table(self, x: Tensor, rng: Generator) -> Tensor:
        """Release the table of all rows at `x`, a point that may be the result.

        Raises
        ------
        RuntimeError
            If the plan has no final table left.
        """
        self._spend("final table")
        scores = finite(self.model.scores(x, self.data.X))
        table = self._table(self.constraint.statistic.hard(scores, self.data.y), self.data.part)
        return self._adding_up(with_gaussian_noise(table, self.final_noise, rng))

    def _joint_release(
        self,
        x: Tensor,
        weigh: Callable[[Tensor], Tensor],
        max_norm: float,
        rng: Generator,
        counted: Callable[[Tensor, Tensor], Tensor],
    ) -> Release:
        """One step: a table and, with the weights that `weigh` gives for it, a gradient.

        The table adds up `counted`, a function of the scores and labels of rows.
        """
        batch = self.data.rows(self._next_rows(rng))
        scores, clipped = self.model.linearize_rows(x, batch.X)
        scores = finite(scores)
        _, on_scores = self.constraint.statistic.linearize(scores, batch.y)
        table = self._noisy_table(counted(scores, batch.y), batch.part, rng)
        weights = self.n_rows * weigh(table)
        scale = 1.0 / (1.0 + self._mean_spread(weights))
        # Row by row what the weights on the table are: no sum over parts, forth and back.
        on_rows = with_zero_row(weights).index_select(0, batch.part)
        cotangent = self.loss.gradient(scores, batch.y) + on_scores(on_rows)
        cotangent = (scale * cotangent).nan_to_num(0.0, 0.0, 0.0)
        gradient = with_gaussian_noise(
            clipped(cotangent, max_norm), self.plan.gradient_noise * max_norm, rng
        )
        return Release(table, gradient / (self._rate * self.n_rows), scale)

    def _next_rows(self, rng: Generator) -> Tensor:
        """Take a step off the plan, and draw the rows of its Poisson batch."""
        self._spend("step")
        return self._batches.draw(rng).to(self.data.y.device)

    def _noisy_table(self, statistics: Tensor, part: Tensor, rng: Generator) -> Tensor:
        """The table of a batch, scaled up to all rows."""
        noise = self.plan.histogram_noise * self._norm(self.plan.histogram_kind)
        noisy = self._add_noise(self._table(statistics, part), noise, rng)
        return self._adding_up(noisy / self._rate)

    def _mean_spread(self, weights: Tensor) -> float:
        """Mean spread of the weights over the rows of the released counts."""
        if not weights.numel():
            return 0.0
        spread = weights.amax(dim=1) - weights.amin(dim=1)
        return float(spread @ self.counts) / self.n_rows

    def _table(self, statistics: Tensor, part: Tensor) -> Tensor:
        """Sums of the rows' statistics, less their means."""
        n_parts = self.constraint.n_parts
        return self._less_means(sum_by(statistics, part, n_parts + 1)[:n_parts])

    def _less_means(self, table: Tensor) -> Tensor:
        """Entries less the means of the columns that add up to one for each row."""
        return table - table @ self._means

    def _adding_up(self, noisy: Tensor) -> Tensor:
        """The table whose columns add up to the counts, from a noisy `_table`."""
        return self._less_means(noisy) + self.counts[:, None] * self._means.diagonal()

    def _norm(self, noise: str) -> float:
        """Largest norm of a row's statistics less their means, in which this noise is priced.

        Less their means, k columns that add up to one have a squared l2 norm of at most 1 - 1/k,
        and an l1 norm of at most twice that. A column by itself adds at most one to both.
        """
        squares = [1.0 - 1.0 / k if k > 1 else 1.0 for k in self._widths]
        l1_norms = [2.0 * (1.0 - 1.0 / k) if k > 1 else 1.0 for k in self._widths]
        return {"gaussian": math.sqrt(sum(squares)), "laplace": sum(l1_norms)}[noise]

    @property
    def _rate(self) -> float:
        return self.plan.privacy.sampling_rate


class PrivateERM(NoisySteps):
    r"""Empirical risk minimisation under a moment constraint, by noisy releases.

    With the released counts :math:`\tilde N`, a Poisson batch B of rate q, and the projection
    :math:`P = I - \frac1k 1 1^T` that subtracts the mean of k columns that add up to one, the
    released table on predicted labels is
    :math:`\tilde M = \frac1k \tilde N 1^T + \frac1q (\sum_{i \in B} s(z_i) P + \text{noise}) P`.
    A row adds at most :math:`\lVert s P \rVert = (1 - 1/k)^{1/2}` to it. The gradient is

    .. math::

        \frac{1}{qn} \Big( \sum_{i \in B} \mathrm{clip}_C \frac{1}{1 + \kappa} \big(
        \nabla \ell_i
        + n \, \partial_M (\lambda \cdot g)(\tilde M, \tilde N) \cdot \nabla s(z_i) \big)
        + \text{noise} \Big).

    :math:`\kappa` is the mean spread of the weights on the statistics. Without the division by
    :math:`1 + \kappa`, clipping reduces the constraint more than the loss if multipliers are large:
    a cap of 0.3 on false negative rates ended at 0.99 on the heart data.

    The parameters are those of :class:`NoisySteps`.
    """

    offers = frozenset({"noisy_rates"})

    @property
    def n_constraints(self) -> int:  # type: ignore[override]
        """Number m of constraint values."""
        return len(self.values(self._uniform_table()))

    def release(
        self, x: Tensor, weigh: Callable[[Tensor], Tensor], max_norm: float, rng: Generator
    ) -> Release:
        """Make one step: release a table and, with the weights `weigh` gives for it, a gradient.

        Raises
        ------
        RuntimeError
            If the plan has no step left.
        """
        return self._joint_release(x, weigh, max_norm, rng, self.constraint.statistic.hard)

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
        """As `final_noise`, of a step's table, scaled up to all rows."""
        return self.plan.histogram_noise * self._norm(self.plan.histogram_kind) / self._rate

    def noise_of_values(self, table_noise: float) -> Tensor:
        """Approximate standard deviations of constraint values, (m,), from that of a table.

        For values that are not linear in the table it is the largest over tables of equal rates,
        because values that are flat outside of an interval would seem to have no noise there.
        """
        return self.slopes.square().sum(dim=(1, 2)).sqrt() * table_noise

    @cached_property
    def slopes(self) -> Tensor:
        """Size of the slope of each value in each entry of the table, (m, n_parts, n_columns)."""
        table = self._uniform_table()
        unit = torch.eye(self.n_constraints, dtype=table.dtype, device=table.device)
        rates = _RATES if self._affine is None else (1.0,)
        sizes = table.new_zeros((len(unit), *table.shape))
        for rate in rates:
            for size, row in zip(sizes, unit, strict=True):
                slope = self._less_means(self.weights(rate * table, row)).abs()
                torch.maximum(size, slope, out=size)
        return sizes

    def gains(self) -> Tensor:
        r"""What a unit of each multiplier moves, in values, through all rows, (m,).

        With slopes :math:`A_{jq}` of value j in part q, of :math:`N_q` rows, it is

        .. math:: n \sum_q N_q \lvert A_{jq} \rvert \cdot \sum_i \lvert A_{iq} \rvert ,

        which for pairs of k groups with fractions p of the rows, and two classes, is
        :math:`(k - 1) (1/p_a + 1/p_b)`.
        """
        together = self.slopes.sum(dim=0) * self.counts[:, None]
        return self.n_rows * (self.slopes * together).sum(dim=(1, 2))

    def deviations_of_estimates(self) -> Tensor:
        """Standard deviations of the noise on the values of the final table, (m,)."""
        return self.noise_of_values(self.final_noise).cpu()

    def _uniform_table(self) -> Tensor:
        columns = self.constraint.statistic.n_columns
        return self.counts[:, None].expand(-1, columns) / max(columns, 1)
