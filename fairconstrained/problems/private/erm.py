r"""Empirical risk minimisation as a private solver sees it: noisy tables and noisy gradients.

Each step draws one Poisson batch and makes one joint release of it, a noisy table of moments and a
noisy sum of clipped gradients. Private problems give nothing exact away: they have neither
``linearize`` nor ``evaluate``, and are no :class:`~fairconstrained.problems.Problem`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import ClassVar

import torch
from torch import Generator, Tensor

from fairconstrained.constraints.moments import MomentConstraint
from fairconstrained.constraints.placement import sum_by
from fairconstrained.exceptions import IncompatibleSolverError
from fairconstrained.losses import Loss
from fairconstrained.models.base import Model
from fairconstrained.privacy.mechanisms import PoissonBatches, Releases
from fairconstrained.problems.rows import Rows

# The releases of a step, and that of a point that may be the result.
TABLE, GRADIENT, FINAL = "histogram", "gradient", "final table"

_LARGEST = 1e6  # score in place of an infinite one
_RATES = tuple((i + 0.5) / 20 for i in range(20))  # at which slopes of values are taken


class PrivateERM:
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

    Parameters
    ----------
    model : Model
    data : Rows
        Its weights are not used: private rows count once.
    loss : callable
    constraint : MomentConstraint
    alpha : float
        Weight of the l2 penalty.
    counts : Tensor of shape (n_parts,)
        Released, not exact.
    releases : Releases
        The noisy sums that may be made: "histogram" and "gradient" of each step, "final table".
    n_rows : int, optional
        Number of rows, which is public, if other workers have more rows than those in `data`.

    Raises
    ------
    IncompatibleSolverError
        If the constraint has extra variables.
    """

    offers: ClassVar[frozenset[str]] = frozenset({"noisy_rates"})

    def __init__(
        self,
        model: Model,
        data: Rows,
        loss: Loss,
        constraint: MomentConstraint,
        alpha: float,
        counts: Tensor,
        releases: Releases,
        n_rows: int | None = None,
    ):
        if constraint.n_aux:
            raise IncompatibleSolverError(
                "Private training moves the parameters of the model only, and this constraint has "
                "variables of its own (partial statistical parity). Use a constraint of rates, or "
                "epsilon=None."
            )
        self.model, X = model.prepared(data.X)
        part = constraint.place(data.y, data.group, data.weight).part
        # The groups of these rows are parts, and n_parts for rows in no part.
        self.data = replace(data, blocks=(X,), group=part)
        self.n_rows = len(data.y) if n_rows is None else n_rows
        self.loss = loss
        self.constraint = constraint
        self.alpha = alpha
        self.counts = counts
        self.releases = releases
        self.plan = releases.plan
        # The counts never change, and a step is mostly the overhead of small operations.
        self._affine = constraint.affine(counts)
        width = torch.tensor(constraint.statistic.widths).to(counts)
        block = torch.repeat_interleave(width.long())
        same = (block[:, None] == block) & (width[block] > 1)
        self._means = same / width[block]  # the product with it has the means of blocks
        self._batches = PoissonBatches(len(data.y), self.plan.sampling_rate)
        self._norms = row_norms(constraint.statistic.widths)
        self._table_norm = self._norms[self.plan.releases[TABLE][0].order]

    @property
    def n_constraints(self) -> int:
        """Number m of constraint values."""
        return len(self.values(self._uniform_table()))

    def start(self) -> Tensor:
        """Point at which a fit begins; it does not depend on the secret."""
        return self.model.init()

    def release(
        self,
        x: Tensor,
        choose_dual: Callable[[Tensor], Tensor],
        max_norm: float,
        rng: Generator,
        table: str = "labels",
    ) -> tuple[Tensor, Tensor]:
        """Make one step: release a table and, at the multipliers chosen for it, a gradient.

        Parameters
        ----------
        x : Tensor of shape (n_variables,)
        choose_dual : callable
            Multipliers, as a function of the released table.
        max_norm : float
            Norm to which the gradients of rows are clipped.
        rng : Generator
        table : {"labels", "probabilities"}, default="labels"
            What the table adds up.

        Returns
        -------
        table : Tensor of shape (n_parts, n_columns)
            Estimate of the table of all rows.
        gradient : Tensor of shape (n_variables,)
            Of the Lagrangian and the penalty, divided by one plus the mean spread of the weights.

        Raises
        ------
        RuntimeError
            If the plan has no step left.
        """
        batch = self.data.take(self._batches.draw(rng))
        y, part = batch.y, batch.group
        scores, clipped = self.model.linearize_rows(x, batch.X)
        scores = finite(scores)
        released = self._noisy_table(scores, y, part, table, rng)
        weights = self.n_rows * self.weights(released, choose_dual(released))
        scale = 1.0 / (1.0 + self._mean_spread(weights))
        cotangent = self.loss.gradient(scores, y) + self._on_scores(scores, y, part, weights)
        cotangent = (scale * cotangent).nan_to_num(0.0, 0.0, 0.0)
        total = clipped(cotangent, max_norm)
        total = self.releases.noisy(GRADIENT, total, max_norm, rng)
        gradient = total / (self.plan.sampling_rate * self.n_rows)
        return released, gradient + scale * self._penalty_gradient(x)

    def release_table(self, x: Tensor, rng: Generator) -> Tensor:
        """Release the table of all rows at `x`, a point that may be the result.

        Raises
        ------
        RuntimeError
            If the plan has no final table left.
        """
        scores = finite(self.model.scores(x, self.data.X))
        table = self._table(self.constraint.statistic.hard(scores, self.data.y), self.data.group)
        return self._adding_up(self.releases.noisy(FINAL, table, self._norms[2], rng))

    def values(self, table: Tensor) -> Tensor:
        """Constraint values from a released table, (m,)."""
        if self._affine is None:
            return self.constraint.hard_of_moments(table, self.counts, self.counts[:0])
        return self._affine.of_table(table)

    def weights(self, table: Tensor, dual: Tensor) -> Tensor:
        """Derivative of dual . g with respect to the table, (n_parts, n_columns)."""
        if self._affine is not None:
            return self._affine.on_table(dual)
        table = table.detach().requires_grad_()
        with torch.enable_grad():
            total = dual @ self.constraint.of_moments(table, self.counts, self.counts[:0])
        (weights,) = torch.autograd.grad(total, table)
        return weights

    def deviations_of_estimates(self) -> Tensor:
        """Approximate standard deviations of the noise on the values of the final table, (m,).

        For values that are not linear in the table it is the largest over tables of equal rates,
        because values that are flat outside of an interval would seem to have no noise there.
        """
        noise = self.plan.noise(FINAL) * self._norms[2]
        return self._slopes.square().sum(dim=(1, 2)).sqrt() * noise

    def gains(self) -> Tensor:
        r"""Return the change of each value by a unit of its multiplier, through all rows, (m,).

        With slopes :math:`A_{jq}` of value j in part q, of :math:`N_q` rows, it is

        .. math:: n \sum_q N_q \lvert A_{jq} \rvert \cdot \sum_i \lvert A_{iq} \rvert ,

        which for pairs of k groups with fractions p of the rows, and two classes, is
        :math:`(k - 1) (1/p_a + 1/p_b)`.
        """
        together = self._slopes.sum(dim=0) * self.counts[:, None]
        return self.n_rows * (self._slopes * together).sum(dim=(1, 2))

    @cached_property
    def _slopes(self) -> Tensor:
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

    def _uniform_table(self) -> Tensor:
        columns = self.constraint.statistic.n_columns
        return self.counts[:, None].expand(-1, columns) / max(columns, 1)

    def _penalty_gradient(self, x: Tensor) -> Tensor:
        """Gradient of the l2 penalty, which does not depend on the data."""
        return self.alpha * self.model.penalty(x).gradient

    def _noisy_table(
        self, scores: Tensor, y: Tensor, part: Tensor, table: str, rng: Generator
    ) -> Tensor:
        """Release the table of a batch, scaled up to all rows."""
        statistic = self.constraint.statistic
        counted = statistic.hard if table == "labels" else statistic.soft
        exact = self._table(counted(scores, y), part)
        noisy = self.releases.noisy(TABLE, exact, self._table_norm, rng)
        return self._adding_up(noisy / self.plan.sampling_rate)

    def _on_scores(self, scores: Tensor, y: Tensor, part: Tensor, weights: Tensor) -> Tensor:
        """Gradients of weighted sums of statistics with respect to the scores.

        Row by row the weights on the table are looked up: no sum over parts, forth and back.
        """
        _, pullback = self.constraint.statistic.linearize(scores, y)
        on_scores: Tensor = pullback(with_zero_row(weights).index_select(0, part))
        return on_scores

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


def row_norms(widths: Sequence[int]) -> dict[int, float]:
    """Largest l1 and l2 norm of a row's statistics less their means, in which releases are priced.

    Less their means, k columns that add up to one have a squared l2 norm of at most 1 - 1/k, and an
    l1 norm of at most twice that. A column by itself adds at most one to both.
    """
    squares = l1 = 0.0
    for k in widths:
        squares += 1.0 - 1.0 / k if k > 1 else 1.0
        l1 += 2.0 * (1.0 - 1.0 / k) if k > 1 else 1.0
    return {1: l1, 2: math.sqrt(squares)}


def finite(scores: Tensor) -> Tensor:
    """Replace scores that one row could use to make a whole table nan."""
    return scores.nan_to_num(0.0, _LARGEST, -_LARGEST)


def with_zero_row(table: Tensor) -> Tensor:
    """Append a row of zeros, for the rows in no part."""
    return torch.cat((table, table.new_zeros((1, table.shape[1]))))
