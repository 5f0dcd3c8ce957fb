"""Rows as constraints see them, and sums over the parts of a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

BLOCK_ROWS = 65_536

OfRows = Callable[[Tensor, Tensor], Tensor]  # scores and labels to values of the rows, (n, k)


class Placement(NamedTuple):
    """Label, weight and part of each row, as a constraint sees them.

    :meth:`MomentConstraint.place` creates them. A row is in one part, or belongs to parts by
    fractions where its group is known with a probability only.

    Examples
    --------
    >>> import torch
    >>> from fairconstrained.constraints import EqualOpportunity, Space
    >>> constraint = EqualOpportunity().bind(Space([0, 1], ["a", "b"]), slack=0.1)
    >>> y, group = torch.tensor([1, 1, 0, 1]), torch.tensor([0, 1, 1, 1])
    >>> placed = constraint.place(y, group, torch.ones(4))
    >>> placed.part, placed.counts()  # the negative is in no part, and parts are numbered from 0
    (tensor([1, 0, 2, 0]), tensor([2., 1.]))
    >>> uncertain = torch.tensor([[0.9, 0.1], [0.0, 1.0], [0.5, 0.5], [0.2, 0.8]])
    >>> constraint.place(y, uncertain, torch.ones(4)).counts()
    tensor([1.9000, 1.1000])
    """

    y: Tensor  # (n,) class indices
    part: Tensor  # (n,) from 0 to n_parts, which is no part; or fractions, (n, n_parts)
    weight: Tensor  # (n,) positive
    n_parts: int

    def take(self, index: Tensor) -> Placement:
        """Select rows by index, in the given order; the index may be on the CPU."""
        index = index.to(self.y.device)
        y, part, weight = (column.index_select(0, index) for column in self[:3])
        return Placement(y, part, weight, self.n_parts)

    def sum(self, columns: Tensor) -> Tensor:
        """Weighted sums of the columns (n, k) over the rows of each part, (n_parts, k)."""
        weighted = columns * self.weight[:, None]
        if self.part.ndim == 2:
            return self.part.T @ weighted
        return sum_by(weighted, self.part, self.n_parts + 1)[:-1]

    def sums(self, of_rows: OfRows, scores: Tensor) -> Tensor:
        """The table of a function of scores and labels, some rows at a time, (n_parts, k)."""
        table = scores.new_zeros(())
        for z, y, part, weight in blocks_of(scores, *self[:3]):
            table = table + Placement(y, part, weight, self.n_parts).sum(of_rows(z, y))
        return table

    def sums_at(self, columns: Tensor, place: Tensor, n_places: int) -> Tensor:
        """:meth:`sum` of the rows of each place from 0 to n_places - 1, (n_places, n_parts, k)."""
        weighted = columns * self.weight[:, None]
        if self.part.ndim == 2:
            of_parts = (self.part[:, :, None] * weighted[:, None]).flatten(start_dim=1)
            return sum_by(of_parts, place, n_places).reshape(n_places, self.n_parts, -1)
        n_parts = self.n_parts + 1
        table = sum_by(weighted, place * n_parts + self.part, n_places * n_parts)
        return table.reshape(n_places, n_parts, -1)[:, :-1]

    def on_columns(self, on_table: Tensor, like: Tensor) -> Tensor:
        """The derivative of :meth:`sum` by the columns, stored `like` them, from that by it."""
        if self.part.ndim == 2:
            return self.weight[:, None] * (self.part @ on_table)
        padded = F.pad(on_table, (0, 0, 0, 1))  # of rows in no part
        return look_up(padded, self.part, like) * self.weight[:, None]

    def counts(self) -> Tensor:
        """Weight of each part, (n_parts,)."""
        return self.sum(torch.ones_like(self.weight)[:, None])[:, 0]

    def weights(self) -> Tensor:
        """Weight of each row in each part, (n_parts, n)."""
        if self.part.ndim == 2:
            return self.part.T * self.weight
        numbers = torch.arange(self.n_parts, device=self.part.device)[:, None]
        return (self.part == numbers) * self.weight

    def in_unions(self, union: Tensor, n_unions: int) -> Placement:
        """The rows in unions of the parts, (n_parts,); `n_unions` is for parts in none."""
        union = union.to(self.part.device)
        if self.part.ndim == 2:
            part = sum_by(self.part.T, union, n_unions + 1)[:-1].T
        else:
            part = torch.cat((union, union.new_full((1,), n_unions)))[self.part]
        return self._replace(part=part, n_parts=n_unions)


def blocks_of(*columns: Tensor) -> Sequence[tuple[Tensor, ...]]:
    """Columns of the same rows, some rows at a time: vectors of all rows are slow to allocate."""
    if len(columns[0]) <= BLOCK_ROWS:
        return [columns]
    return list(zip(*(torch.split(column, BLOCK_ROWS) for column in columns), strict=True))


def sum_by(rows: Tensor, index: Tensor, n_parts: int) -> Tensor:
    """Sums of rows with equal index, (n_parts, n_columns).

    To follow the layout in memory takes at most half the time.
    """
    if rows.stride(0) == 1:
        return rows.new_zeros((rows.shape[1], n_parts)).index_add(1, index, rows.T).T
    return rows.new_zeros((n_parts, rows.shape[1])).index_add(0, index, rows)


def look_up(table: Tensor, index: Tensor, like: Tensor) -> Tensor:
    """Rows of a table by index, (n, n_columns), with the memory layout of `like`."""
    if like.stride(0) == 1:
        return table.T.contiguous().gather(1, index.expand(table.shape[1], -1)).T
    return table.index_select(0, index)
