"""Linear combinations of rates: the constraints of rates, caps and loss parity."""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairconstrained.constraints.affine import AffineMap, Combinations, as_tensor, without_zeros
from fairconstrained.constraints.moments import NEVER_BINDS, MomentConstraint
from fairconstrained.constraints.tables import ClassProbabilities, Placement, Space, Statistic


class LinearMoments(MomentConstraint):
    r"""Linear combinations of rates, minus slack.

    A rate is a ratio of sums over the table, and a value is a combination of rates:

    .. math::

        \rho_r = \frac{\sum_{q,s} A_{rqs} M_{qs}}{\sum_q B_{rq} N_q}, \qquad
        g_j = \sum_r C_{jr}\, \rho_r - \mathrm{slack}_j .

    Every rate constraint and every loss parity has this form, so a new notion needs no new class of
    constraints.

    Parameters
    ----------
    space : Space
    numerators : array or sparse matrix of shape (n_rates, n_cells * n_columns)
        :math:`A`, given for each (label, group) cell, ordered by label. Cells with equal
        coefficients are joined into parts.
    denominators : array or sparse matrix of shape (n_rates, n_cells)
        :math:`B`, zeros and ones.
    combinations : array, sparse matrix or Combinations of shape (m, n_rates)
        :math:`C`.
    slack : array-like of shape (m,)
    statistic : Statistic
    name : str
        The notion.
    title : str, optional
        The notion in descriptions of values, where it is more than the name.

    Examples
    --------
    >>> from fairconstrained.constraints import EqualOpportunity, Space
    >>> constraint = EqualOpportunity(slack=0.1).bind(Space([0, 1], ["a", "b"]))
    >>> constraint.part_of_cell  # the rows of label 0 are in no part
    tensor([[-1, -1],
            [ 1,  0]])
    """

    def __init__(
        self,
        space: Space,
        numerators: Any,
        denominators: Any,
        combinations: Any,
        slack: Any,
        statistic: Statistic,
        name: str,
        title: str | None = None,
    ):
        self.space = space
        self.title = title or name
        self.cell_numerators = without_zeros(numerators)
        self.cell_denominators = without_zeros(denominators)
        if not isinstance(combinations, Combinations):
            combinations = Combinations.of(combinations)
        self.combinations: Combinations = combinations
        part, first_cell = self._joined(statistic.n_columns)
        allowed = torch.as_tensor(np.asarray(slack, dtype=float)).clamp_max(NEVER_BINDS)
        shape = (len(space.classes), len(space.groups))
        super().__init__(torch.as_tensor(part.reshape(shape)), statistic, allowed, name)
        self.of_labels = isinstance(statistic, ClassProbabilities)  # and not means of losses
        columns = np.arange(statistic.n_columns)
        entries = (first_cell[:, None] * statistic.n_columns + columns).reshape(-1)
        self._numerators = self.cell_numerators[:, entries]
        self._denominators = self.cell_denominators[:, first_cell]
        matrices = self._numerators, self._denominators
        self._above, self._below = (as_tensor(own, self.slack) for own in matrices)

    def _joined(self, n_columns: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The part of each cell, -1 for none, and one cell of each part.

        The coefficients of a cell are one sparse row. Cells with equal rows form one part.
        """
        of_columns = (self.cell_numerators[:, c::n_columns] for c in range(n_columns))
        stacked = sp.vstack([*of_columns, self.cell_denominators]).tocsr()
        # Rate by rate, its denominator after its numerators.
        order = np.arange(stacked.shape[0]).reshape(n_columns + 1, -1).T.reshape(-1)
        says = without_zeros(stacked[order].T)
        says.sort_indices()
        first_cell: dict[bytes, int] = {}
        keys = [_key(says.indices[i:j], says.data[i:j]) for i, j in pairwise(says.indptr)]
        for cell, key in enumerate(keys):
            first_cell.setdefault(key, cell)
        first_cell.pop(b"", None)  # cells without coefficients are in no part
        number = {key: q for q, key in enumerate(sorted(first_cell))}
        part = np.array([number.get(key, -1) for key in keys], dtype=np.int64)
        return part, np.array([first_cell[key] for key in number], dtype=np.int64)

    def of_moments(self, sums: Tensor, counts: Tensor, aux: Tensor) -> Tensor:
        """Values from the table, (m,)."""
        rates = self.rates(sums, counts)[:, None]
        return self.combinations.to(sums).times(rates)[:, 0] - self.slack.to(sums)

    def rates(self, sums: Tensor, counts: Tensor) -> Tensor:
        """The rates from the table, (n_rates,)."""
        above, below = (own.to(sums) for own in (self._above, self._below))
        return ((above @ sums.reshape(-1, 1)) / (below @ counts[:, None]))[:, 0]

    def affine(self, counts: Tensor) -> AffineMap:
        """The values as an affine map of the table."""
        rates = sp.diags_array(1.0 / (self._denominators @ counts.cpu().numpy())) @ self._numerators
        shape = self.n_parts, self.statistic.n_columns
        return AffineMap([self.combinations], rates, -self.slack.to(counts), shape)

    def deviations(self, scores: Tensor, rows: Placement, aux: Tensor) -> Tensor:
        r"""Standard errors of the values by the delta method, (m,).

        With hard statistics s and rates :math:`\rho_r` over weights :math:`D_r`, a row of part q
        and weight w moves rate r by :math:`w (\sum_s A_{rqs} s - \rho_r B_{rq}) / D_r`. Sums of
        products of these moves are the covariances of the rates.
        """
        return self.deviations_of(self.scatter(scores, rows))

    def scatter(self, scores: Tensor, rows: Placement) -> Tensor:
        """Sums from which :meth:`deviations_of` computes standard errors, (n_parts, k, k + 1).

        For each part they are those of (s, 1) by weight, and of its products by squared weight.
        """
        hard = self.statistic.hard(scores, rows.y)
        row = torch.cat((hard, torch.ones_like(hard[:, :1])), dim=1)
        k = row.shape[1]
        products = (row[:, :, None] * row[:, None, :]).reshape(len(row), -1)
        squares = rows._replace(weight=rows.weight**2).sum(products).reshape(self.n_parts, k, k)
        return torch.cat((rows.sum(row)[:, :, None], squares), dim=2)

    def deviations_of(self, scatter: Tensor) -> Tensor:
        """Standard errors of the values, (m,), from sums over all rows, in any shape."""
        k = self.statistic.n_columns + 1
        scatter = scatter.reshape(self.n_parts, k, k + 1)
        sums, moments = scatter[:, :-1, 0], scatter[:, :, 1:]
        counts = scatter[:, -1, 0]
        above, below = (own.to_dense().to(counts) for own in (self._above, self._below))
        total = below @ counts
        above, below = (
            above.reshape(len(below), self.n_parts, k - 1),
            below * self.rates(sums, counts)[:, None],
        )
        moved = torch.cat((above, -below[:, :, None]), dim=2) / total[:, None, None]
        # Of many groups the combinations are many and the rates few.
        by_part = torch.einsum("rqk,qkl->rql", moved, moments)
        covariance = by_part.flatten(start_dim=1) @ moved.flatten(start_dim=1).T
        return self.combinations.variances(covariance).clamp_min(0.0).sqrt()

    def describe(self, j: int) -> str:
        """Describe the rates that value j compares."""
        rate, factor = (own.numpy()[:, j].tolist() for own in self.combinations[:2])
        entries = list(zip(rate, factor, strict=True))
        sides = [
            " and ".join(sorted({self._rate_names[r] for r, value in entries if sign * value > 0}))
            for sign in (1, -1)
        ]
        return f"{self.title}: " + " against ".join(side for side in sides if side)

    @cached_property
    def _rate_names(self) -> list[str]:
        """Words for each rate, which many values share."""
        rates = range(self.combinations.n_rates)
        return [self.space.describe(self._cells_of_rate(r)) for r in rates]

    def without_small(
        self, rows: NDArray[np.int64], min_rows: int | str
    ) -> tuple[LinearMoments, list[str]]:
        """Drop the values with a rate of too few rows; a rate of no rows is undefined."""
        n = self.cell_denominators @ rows.reshape(-1)
        least = [self.least_rows(self._cells_of_rate(r), rows, min_rows) for r in range(len(n))]
        small = n < np.array(least)
        if not small.any():
            return self, []
        combinations, keep, needed = self.combinations.without(small)
        dropped = {
            f"{self._rate_names[r]} ({max(int(n[r]), 0)} rows)" for r in np.flatnonzero(small)
        }
        constraint = LinearMoments(
            self.space,
            self.cell_numerators[needed],
            self.cell_denominators[needed],
            combinations,
            self.slack.numpy()[keep],
            self.statistic,
            self.name,
            self.title,
        )
        return constraint, sorted(dropped)

    def _cells_of_rate(self, r: Any) -> NDArray[np.bool_]:
        shape = (len(self.space.classes), len(self.space.groups))
        cells: NDArray[np.bool_] = self.cell_denominators[[r]].toarray().reshape(shape) > 0
        return cells


def _key(index: NDArray[np.int64], values: NDArray[np.float64]) -> bytes:
    """A sparse row of positive values as bytes that sort like dense rows."""
    descending = np.iinfo(np.int64).max - index.astype(np.int64)
    return np.stack((descending, values.view(np.int64)), axis=1).astype(">i8").tobytes()
