r"""Constraints that depend on the data only through a small table of group moments.

The rows fall into *parts*, a disjoint partition by (label, group). With :math:`s(z_i, y_i)` the
statistics of a row and :math:`w_i` its weight, the table is

.. math:: M_q = \sum_{i \in q} w_i s(z_i, y_i), \qquad N_q = \sum_{i \in q} w_i ,

and a constraint is a function of it: :math:`g(M, N) \le 0`. Tables of chunks, batches and workers
add up, gradients pass through a table of a few numbers, and privacy needs to protect nothing else.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairconstrained.constraints.statistics import Columns, Statistic
from fairconstrained.groups import group_name

__all__ = ["BoundConstraint", "LinearMoments", "MomentConstraint", "Space", "Stack"]


_NEVER_BINDS = 1e6


class Space(NamedTuple):
    """The labels and groups of the training data, in the order of their indices."""

    classes: Sequence[Any]
    groups: Sequence[Any]

    @property
    def n_cells(self) -> int:
        """Number of (label, group) pairs."""
        return len(self.classes) * len(self.groups)

    def count_cells(self, y: Tensor, group: Tensor) -> Tensor:
        """Rows of each label and group, (n_classes, n_groups)."""
        shape = (len(self.classes), len(self.groups))
        cells = torch.bincount(y * shape[1] + group, minlength=self.n_cells)
        return cells.reshape(shape)

    def describe(self, cells: NDArray[np.bool_]) -> str:
        """Words for a set of cells, given as a boolean (n_classes, n_groups) array."""
        groups: list[int] = np.flatnonzero(cells.any(axis=0)).tolist()
        labels: list[int] = np.flatnonzero(cells.any(axis=1)).tolist()
        words = []
        if len(groups) < len(self.groups):
            words.append("group " + " or ".join(group_name(self.groups[i]) for i in groups))
        if len(labels) < len(self.classes):
            words.append("label " + " or ".join(str(self.classes[i]) for i in labels))
        return ", ".join(words) or "all rows"


class MomentConstraint:
    """Base: `values` follows from the partition, a statistic and a function of the table.

    Parameters
    ----------
    part_of_cell : LongTensor of shape (n_classes, n_groups)
        The part of the rows of each label and group; -1 where they take no part.
    statistic : Statistic
    n_aux : int, default=0
        Extra primal variables of the constraint.
    """

    offsets_matter = True  # whether shifting all scores alike changes the hard values
    is_linear = False  # whether values are affine in the table, for given counts

    def __init__(self, part_of_cell: Tensor, statistic: Statistic, n_aux: int = 0):
        self.part_of_cell = part_of_cell
        self.statistic = statistic
        self.n_aux = n_aux
        self.n_parts = int(part_of_cell.max()) + 1 if part_of_cell.numel() else 0
        # Rows of no part are summed into one more bin, which is dropped.
        self._bin_of_cell = part_of_cell.remainder(self.n_parts + 1)
        self.bound = statistic.bound

    def part(self, y: Tensor, group: Tensor) -> Tensor:
        """Part of each row, (n,); -1 where it takes no part."""
        return self.part_of_cell.to(y.device)[y, group]

    def part_cells(self) -> list[NDArray[np.bool_]]:
        """Which labels and groups make up each part, as boolean (n_classes, n_groups) arrays."""
        return [(self.part_of_cell == part).cpu().numpy() for part in range(self.n_parts)]

    def init_aux(self, scores: Tensor, y: Tensor, group: Tensor) -> Tensor:
        """Start of the extra variables."""
        return scores.new_zeros(self.n_aux)

    def counts(self, y: Tensor, group: Tensor, weight: Tensor) -> Tensor:
        """Weight in each part, (n_parts,)."""
        return self._sum(weight[:, None], y, group)[:, 0]

    def counts_of_cells(self, cells: Tensor) -> Tensor:
        """Weight in each part, (n_parts,), from that of each label and group."""
        bins = self._bin_of_cell.to(cells.device).reshape(-1)
        return sum_by(cells.reshape(-1, 1), bins, self.n_parts + 1)[: self.n_parts, 0]

    def sums(self, scores: Tensor, y: Tensor, group: Tensor, weight: Tensor) -> Tensor:
        """The table of soft statistics, (n_parts, n_columns)."""
        rows = self.statistic.soft(scores, y) * weight[:, None]
        return self._sum(rows, y, group)

    def hard_sums(self, scores: Tensor, y: Tensor, group: Tensor, weight: Tensor) -> Tensor:
        """The table of hard statistics, (n_parts, n_columns)."""
        rows = self.statistic.hard(scores, y) * weight[:, None]
        return self._sum(rows, y, group)

    def hard_values(
        self, scores: Tensor, y: Tensor, group: Tensor, weight: Tensor, aux: Tensor
    ) -> Tensor:
        """Values as users measure them on these rows, (m,); here from the table."""
        sums = self.hard_sums(scores, y, group, weight)
        return self.of_moments(sums, self.counts(y, group, weight), aux)

    def of_moments(self, sums: Tensor, counts: Tensor, aux: Tensor) -> Tensor:
        """Values from the table, (m,)."""
        raise NotImplementedError

    def values(
        self, scores: Tensor, y: Tensor, group: Tensor, aux: Tensor, weight: Tensor
    ) -> Tensor:
        """Values on these rows, (m,)."""
        sums = self.sums(scores, y, group, weight)
        return self.of_moments(sums, self.counts(y, group, weight), aux)

    def sharpened(self) -> Self:
        """The constraint with its statistic sharpened; itself where that changes nothing."""
        statistic = self.statistic.sharpened()
        if statistic == self.statistic:
            return self
        sharp = copy.copy(self)
        sharp.statistic = statistic
        return sharp

    def _sum(self, rows: Tensor, y: Tensor, group: Tensor) -> Tensor:
        bins = self._bin_of_cell.to(y.device)[y, group]
        return sum_by(rows, bins, self.n_parts + 1)[: self.n_parts]


def sum_by(rows: Tensor, index: Tensor, n_bins: int) -> Tensor:
    """Sum rows of equal index, (n_bins, n_columns)."""
    return rows.new_zeros((n_bins, rows.shape[1])).index_add(0, index, rows)


class BoundConstraint(MomentConstraint):
    """Base of what notions become on given labels and groups: values with slacks and words."""

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


class Stack(MomentConstraint):
    """Several moment constraints as one: one table serves them all.

    The parts are the coarsest partition that refines every member's; equal statistics are
    measured once.

    Parameters
    ----------
    space : Space
    members : sequence of BoundConstraint
        None at all leaves the problem unconstrained.
    """

    def __init__(self, space: Space, members: Sequence[BoundConstraint]):
        self.space = space
        self.members = tuple(members)
        self.is_linear = all(member.is_linear for member in members)
        statistics = tuple(dict.fromkeys(member.statistic for member in members))
        nowhere = torch.full((1, space.n_cells), -1)
        cells = torch.cat((nowhere, *(member.part_of_cell.reshape(1, -1) for member in members)))
        parts, part_of_cell = torch.unique(cells, dim=1, return_inverse=True)
        super().__init__(
            part_of_cell.reshape(len(space.classes), len(space.groups)),
            Columns(statistics),
            sum(member.n_aux for member in members),
        )
        # The last bin takes the parts that a member does not use.
        self.member_bins = [
            own.remainder(member.n_parts + 1)
            for own, member in zip(parts[1:], members, strict=True)
        ]
        starts = np.cumsum([0, *(statistic.n_columns for statistic in statistics)])
        self.member_columns = [
            slice(starts[i], starts[i + 1])
            for i in (statistics.index(member.statistic) for member in members)
        ]

    def of_moments(self, sums: Tensor, counts: Tensor, aux: Tensor) -> Tensor:
        """All members' values, one after the other."""
        pieces = torch.split(aux, [member.n_aux for member in self.members])
        tables = zip(self.members, self.member_bins, self.member_columns, pieces, strict=True)
        values = [sums.new_zeros(0)]
        for member, bins, columns, own_aux in tables:
            table = torch.cat((sums[:, columns], counts[:, None]), dim=1)
            own = sum_by(table, bins.to(sums.device), member.n_parts + 1)[: member.n_parts]
            values.append(member.of_moments(own[:, :-1], own[:, -1], own_aux))
        return torch.cat(values)

    def hard_values(
        self, scores: Tensor, y: Tensor, group: Tensor, weight: Tensor, aux: Tensor
    ) -> Tensor:
        """All members' values, each as it measures them."""
        pieces = torch.split(aux, [member.n_aux for member in self.members])
        values = [
            member.hard_values(scores, y, group, weight, own_aux)
            for member, own_aux in zip(self.members, pieces, strict=True)
        ]
        return torch.cat([scores.new_zeros(0), *values])

    @property
    def offsets_matter(self) -> bool:  # type: ignore[override]
        """Whether they do to any member, or to the objective alone."""
        return not self.members or any(member.offsets_matter for member in self.members)

    def split(self, values: Tensor) -> list[Tensor]:
        """Each member's share of the values."""
        return list(torch.split(values, [len(member.slack) for member in self.members]))

    def measures(self, values: Tensor) -> dict[str, float]:
        """Each notion in its own units, by name; numbered where a name occurs twice."""
        names = [member.name for member in self.members]
        keys = [f"{n}_{i}" if names.count(n) > 1 else n for i, n in enumerate(names)]
        shares = zip(keys, self.members, self.split(values), strict=True)
        return {key: member.measure(share) for key, member, share in shares}

    def worst_measure(self, values: Tensor) -> float:
        """The notion that exceeds its slack the most, in its own units; nan if there is none."""
        if not self.members:
            return float("nan")
        shares = zip(self.members, self.split(values), strict=True)
        member, share = max(shares, key=lambda pair: float(pair[1].max()))
        return member.measure(share)
