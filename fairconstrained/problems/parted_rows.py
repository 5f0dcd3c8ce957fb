"""Rows in parts: each worker has some, in blocks that it may read from disk in every pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, reduce

import torch
from torch import Tensor

from fairconstrained.constraints.moments import MomentConstraint
from fairconstrained.constraints.statistics import blocks_of
from fairconstrained.models.features import ColumnValues, Features
from fairconstrained.problems.base import Batch
from fairconstrained.problems.representatives import representatives, sample
from fairconstrained.workers import Workers

_PIECE_ROWS = 16_384  # so many rows of some tens of columns fit into the processor's cache


@dataclass(frozen=True)
class PartedRows:
    """Rows of which each worker has some, in blocks.

    Whatever is computed from all rows is a sum over them, and :meth:`total` is the only place where
    such sums are taken: over the pieces of this worker's blocks, then over the workers.

    Parameters
    ----------
    blocks : iterable of Features
        This worker's rows. It is iterated over in every pass, and gives the same blocks each time.
    y, group : Tensor of integers of any size, shape (n,)
        Class and group indices of this worker's rows.
    weight : Tensor of shape (n,)
        Positive. A tensor of ones that is expanded from one number takes no memory.
    workers : Workers
    """

    blocks: Iterable[Features]
    y: Tensor
    group: Tensor
    weight: Tensor
    workers: Workers

    def batches(self) -> Iterator[Batch]:
        """The rows of this worker, some at a time."""
        start = 0
        for block in self.blocks:
            for X in block.split(_PIECE_ROWS):
                own = slice(start, start + X.shape[0])
                start = own.stop
                yield Batch(X, self.y[own].long(), self.group[own].long(), self.weight[own])

    def total(self, of_batch: Callable[..., Tensor], *columns: Tensor) -> Tensor:
        """Sum of a function of some rows at a time over all rows of all workers.

        All workers must ask for the same sums in the same order. Further `columns` of this worker's
        rows are divided like the rows, and are the further arguments of the function.
        """

        def pieces() -> Iterator[Tensor]:
            start = 0
            for batch in self.batches():
                own = slice(start, start + batch.n_rows)
                start = own.stop
                yield of_batch(batch, *(column[own] for column in columns))

        return self.workers.sum(reduce(torch.add, pieces()))

    @property
    def in_memory(self) -> Batch:
        """The rows of this worker, which must be a single block."""
        (X,) = self.blocks
        return Batch(X, self.y.long(), self.group.long(), self.weight)

    def in_one_group(self) -> PartedRows:
        """The rows without their groups."""
        return replace(self, group=torch.zeros_like(self.group))

    def kept(self, index: Tensor, weight: Tensor) -> PartedRows:
        """Some of this worker's rows, in memory, that have these weights from now on.

        All rows as they are, if some worker would have none.

        Parameters
        ----------
        index : Tensor of shape (k,)
            Ascending.
        weight : Tensor of shape (k,)
        """
        if self.workers.any(not len(index)):
            return self
        blocks, start = [], 0
        for block in self.blocks:
            stop = start + block.shape[0]
            here = index[(index >= start) & (index < stop)]
            if len(here):
                blocks.append(block.rows(here - start))
            start = stop
        y, group = self.y[index], self.group[index]
        return PartedRows(blocks, y, group, weight, self.workers)

    def sum_by_cell(self, column: Tensor, shape: tuple[int, int]) -> Tensor:
        """Sums of a column of this worker's rows by label and group, over all workers."""
        own = column.new_zeros(shape[0] * shape[1])
        for y, group, values in blocks_of(self.y, self.group, column):
            own.index_add_(0, y.long() * shape[1] + group, values)
        return self.workers.sum(own).reshape(shape)

    def count_parts(self, constraint: MomentConstraint) -> Tensor:
        """Weight of each part of a constraint, (n_parts,), of all workers."""
        n_classes, n_groups = constraint.part_of_cell.shape
        return constraint.counts_of_cells(self.sum_by_cell(self.weight, (n_classes, n_groups)))

    @cached_property
    def n_rows(self) -> int:
        """Number of rows of all workers."""
        return int(self.workers.sum(torch.tensor(len(self.y), device=self.y.device)))

    @cached_property
    def n_before(self) -> int:
        """Number of rows of the workers before this one."""
        return sum(self.workers.gather(len(self.y))[: self.workers.rank])

    @cached_property
    def total_weight(self) -> Tensor:
        """Sum of the weights of all workers."""
        return self.workers.sum(self.weight.sum())

    @cached_property
    def X(self) -> PartedColumns:
        """Statistics of the columns."""
        return PartedColumns(self)

    @cached_property
    def representatives(self) -> Batch:
        """Rows whose scores have the distributions of those of all workers."""
        return representatives(self)

    @cached_property
    def sample(self) -> Batch:
        """Some of the rows of all workers, evenly spaced, or all if they are few."""
        return sample(self)


class PartedColumns:
    """Statistics of the columns of rows in parts."""

    def __init__(self, rows: PartedRows):
        self._rows = rows

    @cached_property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns."""
        first = next(iter(self._rows.batches()))
        return self._rows.n_rows, first.X.shape[1]

    def mean(self, weight: Tensor) -> Tensor:
        """Weighted column means, of shape (d,)."""
        return self._average(lambda batch: batch.X.mean(batch.weight))

    def covariance(self, weight: Tensor, centre: Tensor) -> Tensor:
        """Weighted second moments about `centre`, of shape (d, d)."""
        return self._average(lambda batch: batch.X.covariance(batch.weight, centre))

    def variance(self, weight: Tensor, centre: Tensor) -> Tensor:
        """The diagonal of `covariance`, of shape (d,)."""
        return self._average(lambda batch: batch.X.variance(batch.weight, centre))

    def values(self) -> ColumnValues:
        """Least and largest value of each column, and whether there are others."""
        pieces = (batch.X.values() for batch in self._rows.batches())
        own = reduce(ColumnValues.joined, pieces)
        return reduce(ColumnValues.joined, self._rows.workers.gather(own))

    def _average(self, of_batch: Callable[[Batch], Tensor]) -> Tensor:
        """The weighted mean over all rows, from weighted means over pieces."""
        total = self._rows.total(lambda batch: of_batch(batch) * batch.weight.sum())
        return total / self._rows.total_weight
