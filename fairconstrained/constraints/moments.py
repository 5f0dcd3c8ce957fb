r"""Constraints that depend on the data only through a small table of group moments.

The rows fall into *parts*, a disjoint partition by (label, group). With :math:`s(z_i, y_i)` the
statistics of a row and :math:`w_i` its weight, the table is

.. math:: M_q = \sum_{i \in q} w_i s(z_i, y_i), \qquad N_q = \sum_{i \in q} w_i ,

and a constraint is a function of it: :math:`g(M, N) \le 0`. Tables of chunks, batches and workers
add up, gradients pass through a table of a few numbers, and privacy needs to protect nothing else.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairconstrained.autograd import linearized
from fairconstrained.constraints.space import Space
from fairconstrained.constraints.statistics import Statistic, sum_by

__all__ = ["BoundConstraint", "LinearMoments", "MomentConstraint", "Space", "look_up"]


_NEVER_BINDS = 1e6


class MomentConstraint:
    """Base: `values` follows from the partition, a statistic and a function of the table.

    Parameters
    ----------
    part_of_cell : LongTensor of shape (n_classes, n_groups)
        The part of the rows of each label and group; -1 where they take no part.
    statistic : Statistic
    n_aux : int, default=0
        Extra primal variables of the constraint.

    Examples
    --------
    >>> import torch
    >>> from fairconstrained.constraints import DemographicParity, Space
    >>> constraint = DemographicParity(slack=0.1).bind(Space([0, 1], ["a", "b"]), 0.1, 1.0)
    >>> y, group, weight = torch.tensor([0, 1]), torch.tensor([0, 1]), torch.ones(2)
    >>> scores, aux = torch.tensor([[-9.0], [9.0]]), torch.zeros(0)
    >>> constraint.values(scores, y, group, aux, weight).round(decimals=2)  # a gap of 1 minus slack
    tensor([-1.1000,  0.9000])
    """

    offsets_matter = True  # whether shifting all scores alike changes the hard values
    difference_of_convex = False  # whether `convex_parts` says how the values are one
    is_linear = False  # whether values are affine in the table, for given counts
    moving = False  # whether extra variable c is the threshold of column c of an `Above`

    def __init__(self, part_of_cell: Tensor, statistic: Statistic, n_aux: int = 0):
        self.part_of_cell = part_of_cell
        self.statistic = statistic
        self.n_aux = n_aux
        self.n_parts = int(part_of_cell.max()) + 1 if part_of_cell.numel() else 0
        # Rows of no part are summed into one more bin, which is dropped.
        self._bin_of_cell = part_of_cell.remainder(self.n_parts + 1)
        self.bound = statistic.bound
        self._last_bins: tuple[Tensor, Tensor, Tensor] | None = None

    def part(self, y: Tensor, group: Tensor) -> Tensor:
        """Part of each row, (n,); -1 where it takes no part."""
        return self.part_of_cell.to(y.device)[y, group]

    def part_cells(self) -> list[NDArray[np.bool_]]:
        """Which labels and groups make up each part, as boolean (n_classes, n_groups) arrays."""
        return [(self.part_of_cell == part).cpu().numpy() for part in range(self.n_parts)]

    def used_parts(self) -> Tensor:
        """Whether the values depend on each part, (n_parts,)."""
        return torch.ones(self.n_parts, dtype=torch.bool)

    def init_aux(self, scores: Tensor, y: Tensor, group: Tensor) -> Tensor:
        """Start of the extra variables."""
        return scores.new_zeros(self.n_aux)

    def at(self, aux: Tensor) -> Self:
        """The constraint with these extra variables in its statistic, where they enter there."""
        return self

    def counts(self, y: Tensor, group: Tensor, weight: Tensor) -> Tensor:
        """Weight in each part, (n_parts,)."""
        return self._sum(weight[:, None], y, group)[:, 0]

    def counts_of_cells(self, cells: Tensor) -> Tensor:
        """Weight in each part, (n_parts,), from that of each label and group."""
        bins = self._bin_of_cell.to(cells.device).reshape(-1)
        return sum_by(cells.reshape(-1, 1), bins, self.n_parts + 1)[: self.n_parts, 0]

    def sums(self, scores: Tensor, y: Tensor, group: Tensor, weight: Tensor) -> Tensor:
        """The table of soft statistics, (n_parts, n_columns)."""
        bins = self.bins(y, group)
        return self.statistic.sums(scores, y, weight, bins, self.n_parts + 1)[: self.n_parts]

    def hard_sums(self, scores: Tensor, y: Tensor, group: Tensor, weight: Tensor) -> Tensor:
        """The table of hard statistics, (n_parts, n_columns)."""
        rows = self.statistic.hard(scores, y) * weight[:, None]
        return self._sum(rows, y, group)

    def hard_values(
        self, scores: Tensor, y: Tensor, group: Tensor, weight: Tensor, aux: Tensor
    ) -> Tensor:
        """Values as users measure them on these rows, (m,); here from the table."""
        sums = self.hard_sums(scores, y, group, weight)
        return self.hard_of_moments(sums, self.counts(y, group, weight), aux)

    def convex_parts(
        self, scores: Tensor, y: Tensor, group: Tensor, weight: Tensor, aux: Tensor
    ) -> Tensor:
        """Two rows, (2, m), convex in scores and extra variables: their difference is `values`."""
        raise NotImplementedError

    def of_moments(self, sums: Tensor, counts: Tensor, aux: Tensor) -> Tensor:
        """Values from the table, (m,)."""
        raise NotImplementedError

    def hard_of_moments(self, sums: Tensor, counts: Tensor, aux: Tensor) -> Tensor:
        """Values as users measure them from the table of hard statistics, (m,)."""
        return self.of_moments(sums, counts, aux)

    def values(
        self, scores: Tensor, y: Tensor, group: Tensor, aux: Tensor, weight: Tensor
    ) -> Tensor:
        """Values on these rows, (m,)."""
        sums = self.at(aux).sums(scores, y, group, weight)
        return self.of_moments(sums, self.counts(y, group, weight), aux)

    def linearize(
        self, scores: Tensor, y: Tensor, aux: Tensor
    ) -> tuple[Tensor, Callable[[Tensor], tuple[Tensor, Tensor]]]:
        """Soft statistics of the rows, (n, n_columns), and from weights on them the derivative of

        the weighted sum by the scores, (n, K), and by the extra variables, (n_aux,).
        """
        if self.n_aux:
            soft, pullback = linearized(lambda z, a: self.at(a).statistic.soft(z, y), scores, aux)
            return soft, pullback  # type: ignore[return-value]
        soft, on_scores = self.statistic.linearize(scores, y)
        return soft, lambda weights: (on_scores(weights), torch.zeros_like(aux))

    def sharpened(self) -> Self:
        """The constraint with its statistic sharpened; itself where that changes nothing."""
        statistic = self.statistic.sharpened()
        if statistic == self.statistic:
            return self
        sharp = copy.copy(self)
        sharp.statistic = statistic
        return sharp

    def loosened(self, by: float) -> Self:
        """The constraint with more slack, if solvers had better go through such ones; or itself."""
        return self

    def bins(self, y: Tensor, group: Tensor) -> Tensor:
        """Part of each row, (n,); one more bin, `n_parts`, for those that take no part.

        Kept, as full-batch solvers ask for the same rows at every step.
        """
        last = self._last_bins
        if last is None or last[0] is not y or last[1] is not group:
            last = y, group, self._bin_of_cell.to(y.device)[y, group]
            self._last_bins = last
        return last[2]

    def _sum(self, rows: Tensor, y: Tensor, group: Tensor) -> Tensor:
        return sum_by(rows, self.bins(y, group), self.n_parts + 1)[: self.n_parts]


def look_up(table: Tensor, index: Tensor, like: Tensor) -> Tensor:
    """Rows of a table by their index, (n, n_columns), in memory as `like` lies there."""
    if like.stride(0) == 1:
        return table.T.contiguous().gather(1, index.expand(table.shape[1], -1)).T
    return table.index_select(0, index)


class BoundConstraint(MomentConstraint):
    """Base of what notions become on given labels and groups: values with slacks and words.

    Examples
    --------
    >>> import torch
    >>> from fairconstrained.constraints import DemographicParity, Space
    >>> constraint = DemographicParity(slack=0.1).bind(Space([0, 1], ["a", "b"]), 0.1, 1.0)
    >>> y, group, weight = torch.tensor([0, 1]), torch.tensor([0, 1]), torch.ones(2)
    >>> scores, aux = torch.tensor([[-9.0], [9.0]]), torch.zeros(0)
    >>> constraint.hard_values(scores, y, group, weight, aux)
    tensor([-1.1000,  0.9000])
    """

    name: str
    slack: Tensor  # (m,)

    def measure(self, values: Tensor) -> float:
        """The notion in its own units: the largest value before its slack is taken off."""
        return float((values + self.slack.to(values)).max())

    def describe(self, j: int) -> str:
        """Words for value j: what it compares."""
        raise NotImplementedError

    def without_small(
        self, rows: NDArray[np.int64], min_rows: int
    ) -> tuple[BoundConstraint, list[str]]:
        """Drop the values that rest on fewer than `min_rows` rows, at least one.

        Parameters
        ----------
        rows : ndarray of shape (n_classes, n_groups)
            Number of rows of each label and group.
        min_rows : int

        Returns
        -------
        constraint : BoundConstraint
        dropped : list of str
            What was dropped, in words with counts.
        """
        raise NotImplementedError


class LinearMoments(BoundConstraint):
    r"""Linear combinations of rates, minus slack.

    A rate is a ratio of sums over the table, and a value a combination of rates:

    .. math::

        \rho_r = \frac{\sum_{q,s} A_{rqs} M_{qs}}{\sum_q B_{rq} N_q}, \qquad
        g_j = \sum_r C_{jr}\, \rho_r - \mathrm{slack}_j .

    Every rate constraint and every loss parity is such data; a new notion needs no new class.

    Parameters
    ----------
    space : Space
    numerators : array-like of shape (n_rates, n_classes, n_groups, n_columns)
        :math:`A`, given on the finest partition; equal cells are joined into parts.
    denominators : array-like of shape (n_rates, n_classes, n_groups)
        :math:`B`, zeros and ones.
    combinations : array-like of shape (m, n_rates)
        :math:`C`.
    slack : array-like of shape (m,)
    statistic : Statistic
    name : str
        The notion, for messages.

    Examples
    --------
    >>> from fairconstrained.constraints import EqualOpportunity, Space
    >>> constraint = EqualOpportunity(slack=0.1).bind(Space([0, 1], ["a", "b"]), 0.1, 1.0)
    >>> constraint.part_of_cell  # the rows of label 0 take no part
    tensor([[-1, -1],
            [ 1,  0]])
    """

    is_linear = True

    def __init__(
        self,
        space: Space,
        numerators: Any,
        denominators: Any,
        combinations: Any,
        slack: Any,
        statistic: Statistic,
        name: str,
    ):
        self.space = space
        self.cell_numerators = np.asarray(numerators, dtype=float)
        self.cell_denominators = np.asarray(denominators, dtype=float)
        self.combinations = torch.as_tensor(np.asarray(combinations, dtype=float))
        # An infinite slack would make the values infinite; this one never binds either.
        self.slack = torch.as_tensor(np.asarray(slack, dtype=float)).clamp_max(_NEVER_BINDS)
        self.name = name
        n_rates = len(self.cell_numerators)
        shape = (len(space.classes), len(space.groups))
        # One column per cell with all that the rates say of it; equal columns are one part.
        numerators = self.cell_numerators.reshape(n_rates, space.n_cells, statistic.n_columns)
        denominators = self.cell_denominators.reshape(n_rates, space.n_cells, 1)
        says = np.concatenate((numerators, denominators), axis=2)
        columns, index = np.unique(
            says.transpose(1, 0, 2).reshape(space.n_cells, -1), axis=0, return_inverse=True
        )
        used = columns.any(axis=1)
        part = np.where(used, np.cumsum(used) - 1, -1)[index.reshape(-1)].reshape(shape)
        super().__init__(torch.as_tensor(part), statistic)
        parts = columns[used].reshape(self.n_parts, n_rates, says.shape[2]).transpose(1, 0, 2)
        table_size = self.n_parts * statistic.n_columns
        self.numerators = torch.as_tensor(parts[:, :, :-1].reshape(n_rates, table_size))
        self.denominators = torch.as_tensor(parts[:, :, -1])

    def of_moments(self, sums: Tensor, counts: Tensor, aux: Tensor) -> Tensor:
        """Values from the table, (m,)."""
        return self._like(self.combinations, sums) @ self.rates(sums, counts) - self._like(
            self.slack, sums
        )

    def rates(self, sums: Tensor, counts: Tensor) -> Tensor:
        """The rates from the table, (n_rates,)."""
        total = self._like(self.denominators, sums) @ counts
        return (self._like(self.numerators, sums) @ sums.reshape(-1)) / total

    def describe(self, j: int) -> str:
        """Words for value j: which rates it compares."""
        sides = [
            " and ".join(
                sorted(
                    {
                        self._describe_rate(r)
                        for r in np.flatnonzero(sign * self.combinations[j].numpy() > 0)
                    }
                )
            )
            for sign in (1, -1)
        ]
        return f"{self.name}: " + " against ".join(side for side in sides if side)

    def without_small(
        self, rows: NDArray[np.int64], min_rows: int
    ) -> tuple[LinearMoments, list[str]]:
        """Drop the values with a rate of too few rows: a rate of none is not defined."""
        n = (self.cell_denominators * rows).sum(axis=(1, 2))
        small = n < max(min_rows, 1)
        if not small.any():
            return self, []
        keep = ~(self.combinations.numpy() != 0)[:, small].any(axis=1)
        combinations = self.combinations.numpy()[keep]
        needed = (combinations != 0).any(axis=0)
        dropped = sorted(
            {f"{self._describe_rate(r)} ({int(n[r])} rows)" for r in np.flatnonzero(small)}
        )
        constraint = LinearMoments(
            self.space,
            self.cell_numerators[needed],
            self.cell_denominators[needed],
            combinations[:, needed],
            self.slack.numpy()[keep],
            self.statistic,
            self.name,
        )
        return constraint, dropped

    def _describe_rate(self, r: Any) -> str:
        return self.space.describe(self.cell_denominators[r] > 0)

    @staticmethod
    def _like(data: Tensor, table: Tensor) -> Tensor:
        return data.to(dtype=table.dtype, device=table.device)
