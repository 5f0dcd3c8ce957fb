"""Rows, and how much of each belongs to each part of a table: known, or estimated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fairconstrained.constraints.moments import MomentConstraint, Rows
from fairconstrained.models.features import Features
from fairconstrained.problems.base import Batch
from fairconstrained.problems.fewer_rows import spaced
from fairconstrained.problems.parted_rows import PartedRows


class KnownParts(NamedTuple):
    """Rows of known groups: each is in one part, or in none."""

    X: Features
    placed: Rows

    @property
    def y(self) -> Tensor:
        """Class indices, (n,)."""
        return self.placed.y

    @property
    def weight(self) -> Tensor:
        """Positive weights, (n,)."""
        return self.placed.weight

    def rows(self, index: Tensor, factor: float = 1.0) -> KnownParts:
        """Select rows by their indices, whose weights are multiplied by `factor`."""
        index = index.to(self.y.device)
        placed = self.placed.take(index)
        return KnownParts(self.X.rows(index), placed._replace(weight=placed.weight * factor))

    def sums(self, statistics: Tensor) -> Tensor:
        """The table (n_parts, n_columns) of statistics (n, n_columns)."""
        return self.placed.sum(statistics)

    def on_statistics(self, on_table: Tensor, like: Tensor) -> Tensor:
        """The derivative by the statistics, stored `like` them, from that by their table."""
        return self.placed.on_columns(on_table, like)


class EstimatedParts(NamedTuple):
    """Rows of estimated groups: fractions of each are in parts."""

    X: Features
    y: Tensor  # (n,) class indices
    parts: Tensor  # (n, n_parts) fractions
    weight: Tensor  # (n,) positive

    def rows(self, index: Tensor, factor: float = 1.0) -> EstimatedParts:
        """Select rows by their indices, whose weights are multiplied by `factor`."""
        index = index.to(self.y.device)
        y, parts, weight = (column.index_select(0, index) for column in self[1:])
        return EstimatedParts(self.X.rows(index), y, parts, weight * factor)

    def sums(self, statistics: Tensor) -> Tensor:
        """The table (n_parts, n_columns) of statistics (n, n_columns)."""
        return self.parts.T @ (self.weight[:, None] * statistics)

    def on_statistics(self, on_table: Tensor, like: Tensor) -> Tensor:
        """The derivative by the statistics, from that by their table."""
        return self.weight[:, None] * (self.parts @ on_table)


Membership = KnownParts | EstimatedParts


@dataclass(frozen=True)
class Members:
    """Rows, in memory or in parts, and how much of each belongs to each part of a table.

    Parameters
    ----------
    rows : Batch or PartedRows
    constraint : MomentConstraint
    parts : tuple of Tensor, default=()
        Where groups are estimated, one tensor (n, n_parts): fractions of this worker's rows.
    """

    rows: Batch | PartedRows
    constraint: MomentConstraint
    parts: tuple[Tensor, ...] = ()

    @classmethod
    def estimated(
        cls, rows: Batch | PartedRows, constraint: MomentConstraint, fractions: Tensor
    ) -> Members:
        """Rows that belong to the groups by fractions (n, n_groups)."""
        part = constraint.part_of_cell.to(fractions.device)[rows.y.long()] + 1
        parts = fractions.new_zeros((len(part), constraint.n_parts + 1))
        parts = parts.scatter_add(1, part, fractions)[:, 1:]
        columns = parts.T.contiguous().T  # with contiguous columns, sums take a seventh of the time
        return cls(rows, constraint, (columns,))

    @property
    def n_rows(self) -> int:
        """Number of rows of all workers."""
        return self.rows.n_rows

    @property
    def X(self) -> Any:
        """The columns, or statistics of those of rows in parts."""
        return self.rows.X

    @cached_property
    def whole(self) -> Membership:
        """All rows, which are in memory."""
        return self._placed(self.rows.in_memory, *self.parts)

    def total(self, of_members: Callable[[Membership], Tensor]) -> Tensor:
        """Sum of a function of some rows at a time over all rows of all workers."""

        def of_batch(batch: Batch, *parts: Tensor) -> Tensor:
            return of_members(self._placed(batch, *parts))

        return self.rows.total(of_batch, *self.parts)

    @cached_property
    def total_weight(self) -> Tensor:
        """Sum of the weights of all rows."""
        return self.total(lambda own: own.weight.sum())

    def counts(self) -> Tensor:
        """Weight of each part, (n_parts,)."""
        return self.total(lambda own: own.sums(torch.ones_like(own.weight)[:, None]))[:, 0]

    def thinned(self) -> Members:
        """Fewer rows that stand for all, or these if they are few."""
        n_classes, n_groups = self.constraint.part_of_cell.shape
        chosen = spaced(self.rows, (n_classes, n_groups))
        if chosen is None:
            return self
        index, weight = chosen
        rows = self.rows.kept(index, weight)
        if rows is self.rows:  # some worker would have none
            return self
        return replace(self, rows=rows, parts=tuple(part[index] for part in self.parts))

    def _placed(self, batch: Batch, *estimated: Tensor) -> Membership:
        if estimated:
            (parts,) = estimated
            return EstimatedParts(batch.X, batch.y, parts, batch.weight)
        return KnownParts(batch.X, self.constraint.place(*batch[1:]))
