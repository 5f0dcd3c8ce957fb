"""A linear constraint whose counts are known: one matrix from its table to its values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import torch
from torch import Tensor

from fairconstrained.constraints.moments import MomentConstraint, look_up
from fairconstrained.constraints.statistics import sum_by
from fairconstrained.constraints.steps import Above

__all__ = ["AffineMap"]

_RANK_TOL = 1e-12  # singular values below this share of their sum are zero


class AffineMap:
    r"""Values of a linear constraint, :math:`g(M) = B\, \mathrm{vec}(M) + b`, for given counts.

    The counts of a data set never change, and steps on mini-batches are mostly the overhead of
    small operations: with B and b at hand, estimates from any number of draws are one sum by bins
    and one product, and their gradients one product and one look-up.

    Parameters
    ----------
    constraint : MomentConstraint
        A linear one.
    counts : Tensor of shape (n_parts,)
    """

    def __init__(self, constraint: MomentConstraint, counts: Tensor):
        self.n_bins = constraint.n_parts + 1  # the last one is for rows that take no part
        n_columns = constraint.statistic.n_columns
        table = counts.new_zeros((self.n_bins, n_columns)).requires_grad_()
        with torch.enable_grad():
            values = constraint.of_moments(table[:-1], counts, counts.new_zeros(constraint.n_aux))
            # By columns, from the derivative of v'(B m + b) by m, which is linear in v: there are
            # far more pairs of groups than table entries. (torch.func.jacrev would import torch's
            # compiler, seconds in a new process.)
            v = torch.zeros_like(values).requires_grad_()
            (on_table,) = torch.autograd.grad(
                values @ v, table, create_graph=True, materialize_grads=True
            )
        columns = [
            torch.autograd.grad(entry, v, retain_graph=True, materialize_grads=True)[0]
            if entry.requires_grad
            else torch.zeros_like(values)
            for entry in on_table.reshape(-1)
        ]
        self._matrix = torch.stack([v.detach(), *columns], dim=1)[:, 1:].detach()
        self._offset = values.detach()
        self._last: tuple[tuple[int, ...], Tensor] | None = None
        self._shape = (self.n_bins - 1, n_columns)
        self._n_used = (self.n_bins - 1) * n_columns

    def of_table(self, sums: Tensor) -> Tensor:
        """Values (m,) from the table (n_parts, n_columns), differentiable."""
        return torch.addmv(self._offset, self._matrix[:, : self._n_used], sums.reshape(-1))

    def on_table(self, weights: Tensor) -> Tensor:
        """Derivative of weights . g by the table, (..., n_parts, n_columns), for (..., m)."""
        flat = weights @ self._matrix[:, : self._n_used]
        return flat.reshape(*weights.shape[:-1], *self._shape)

    def of_draws(
        self, statistics: Tensor, bins: Tensor, weight: Tensor, sizes: Sequence[int]
    ) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """Values from each of several draws, and the pullback to the statistics of their rows.

        Parameters
        ----------
        statistics : Tensor of shape (n, n_columns)
            Of the rows of all draws, one draw after the other.
        bins : LongTensor of shape (n,)
            Part of each row, or the last bin.
        weight : Tensor of shape (n,)
        sizes : sequence of int
            Rows of each draw.

        Returns
        -------
        values : Tensor of shape (n_draws * m,)
        pullback : callable
            From weights on the values to weights on the statistics, (n, n_columns).
        """
        n_draws, column = len(sizes), weight[:, None]
        if n_draws > 1:
            bins = bins + self._first_bins(tuple(sizes)).to(bins)
        tables = sum_by(statistics * column, bins, n_draws * self.n_bins)
        values = torch.addmm(
            self._offset, tables.reshape(n_draws, self._matrix.shape[1]), self._matrix.T
        )

        def pullback(weights: Tensor) -> Tensor:
            on_tables = weights.reshape(n_draws, len(self._matrix)) @ self._matrix
            return look_up(on_tables.reshape(tables.shape), bins, statistics) * column

        return values.reshape(-1), pullback

    def of_steps(
        self, steps: Above, soft: Tensor, bins: Tensor, weight: Tensor
    ) -> tuple[Tensor, Callable[[Tensor], tuple[Tensor, Tensor]]]:
        """Values from all rows, and the pullback to their scores and the steps' thresholds.

        Parameters
        ----------
        steps : Above
        soft : Tensor of shape (n, n_columns)
            Its values.
        bins : LongTensor of shape (n,)
            Part of each row, or the last bin.
        weight : Tensor of shape (n,)

        Returns
        -------
        values : Tensor of shape (m,)
        pullback : callable
            From several weights on the values, (k, m), to weights on the scores, (n, k), and on
            the thresholds, (k, n_columns).
        """
        # Products with few rows of weights take an eighth of the time of sums by index.
        member = (bins == torch.arange(self.n_bins - 1)[:, None].to(bins)) * weight

        def pullback(weights: Tensor) -> tuple[Tensor, Tensor]:
            tables, slopes = self.on_table(weights), steps.slopes(soft)
            on_scores = slopes.new_zeros((len(slopes), len(weights)))
            for q, of_part in enumerate(member):
                rows = torch.nonzero(bins == q)[:, 0]
                own = slopes.index_select(0, rows) * of_part.index_select(0, rows)[:, None]
                on_scores.index_copy_(0, rows, own @ tables[:, q].T)
            return on_scores, -(tables * (member @ slopes)).sum(dim=1)

        return self.of_table(member @ soft), pullback

    def _first_bins(self, sizes: tuple[int, ...]) -> Tensor:
        """First bin of each row's draw; kept, as draws are as large in the next step."""
        if self._last is None or self._last[0] != sizes:
            draw = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
            self._last = sizes, self.n_bins * draw
        return self._last[1]

    @cached_property
    def span(self) -> Tensor:
        """Orthonormal columns, (m, r), that span the values of all tables, and so all Jacobians.

        Pairs of groups come in both orders, and of three gaps one follows from the others.
        """
        left, values, _ = torch.linalg.svd(self._matrix, full_matrices=False)
        span: Tensor = left[:, values > _RANK_TOL * values.sum()]
        return span
