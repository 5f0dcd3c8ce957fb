"""Rows, and how much of each belongs to each part of a table: known, or estimated."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from fairconstrained.constraints import MomentConstraint
from fairconstrained.constraints.statistics import look_up, sum_by
from fairconstrained.models.features import Features
from fairconstrained.problems.base import Batch

__all__ = ["EstimatedParts", "KnownParts", "Membership", "Parts"]


class KnownParts(NamedTuple):
    """Rows of known groups: each is in one part, or in none."""

    X: Features
    y: Tensor  # (n,) class indices
    part: Tensor  # (n,) from 0 to n_parts; n_parts for rows in no part
    weight: Tensor  # (n,) positive
    n_parts: int

    @classmethod
    def of(cls, data: Batch, constraint: MomentConstraint) -> KnownParts:
        """Place rows in the parts of a constraint."""
        placed = constraint.place(*data[1:])
        return cls(data.X, data.y, placed.part, data.weight, placed.n_parts)

    def rows(self, index: Tensor) -> KnownParts:
        """Select rows by their indices."""
        index = index.to(self.y.device)
        y, part, weight = (column.index_select(0, index) for column in self[1:4])
        return KnownParts(self.X.rows(index), y, part, weight, self.n_parts)

    def counts(self) -> Tensor:
        """Weight of each part, (n_parts,)."""
        return self.sums(torch.ones_like(self.weight)[:, None])[:, 0]

    def sums(self, statistics: Tensor) -> Tensor:
        """The table (n_parts, n_columns) of statistics (n, n_columns)."""
        return sum_by(statistics * self.weight[:, None], self.part, self.n_parts + 1)[:-1]

    def on_statistics(self, on_table: Tensor, like: Tensor) -> Tensor:
        """The derivative by the statistics, stored `like` them, from that by their table."""
        padded = torch.nn.functional.pad(on_table, (0, 0, 0, 1))  # of rows in no part
        return look_up(padded, self.part, like) * self.weight[:, None]


class EstimatedParts(NamedTuple):
    """Rows of estimated groups: fractions of each are in parts."""

    X: Features
    y: Tensor  # (n,) class indices
    parts: Tensor  # (n, n_parts) fractions
    weight: Tensor  # (n,) positive

    @classmethod
    def of(cls, data: Batch, constraint: MomentConstraint, fractions: Tensor) -> EstimatedParts:
        """Place rows that belong to the groups by fractions (n, n_groups)."""
        part = constraint.part_of_cell.to(fractions.device)[data.y] + 1
        parts = fractions.new_zeros((len(data.y), constraint.n_parts + 1))
        parts = parts.scatter_add(1, part, fractions)[:, 1:]
        return cls(data.X, data.y, parts, data.weight)

    def rows(self, index: Tensor) -> EstimatedParts:
        """Select rows by their indices."""
        index = index.to(self.y.device)
        y, parts, weight = (column.index_select(0, index) for column in self[1:])
        return EstimatedParts(self.X.rows(index), y, parts, weight)

    def counts(self) -> Tensor:
        """Weight of each part, (n_parts,)."""
        return self.weight @ self.parts

    def sums(self, statistics: Tensor) -> Tensor:
        """The table (n_parts, n_columns) of statistics (n, n_columns)."""
        return self.parts.T @ (self.weight[:, None] * statistics)

    def on_statistics(self, on_table: Tensor, like: Tensor) -> Tensor:
        """The derivative by the statistics, from that by their table."""
        return self.weight[:, None] * (self.parts @ on_table)


Membership = KnownParts | EstimatedParts
Parts = type[KnownParts] | type[EstimatedParts]
