"""The rows of a problem: in memory, read block by block, or divided among workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial, reduce
from itertools import accumulate
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from fairconstrained.constraints.moments import MomentConstraint
from fairconstrained.constraints.tables import blocks_of, sum_by
from fairconstrained.distributed import ALONE, Workers
from fairconstrained.models.features import ColumnValues, Features
from fairconstrained.numerics import PIECE_ROWS, SENT_SCORES

T = TypeVar("T")
# Representatives of the rows of one worker: indices of rows with their labels and groups, (k,),
# their weights (k,), and the map from the scores of all rows, (n,), to their scores, (k,).
Representatives = tuple[Tensor, Tensor, Callable[[Tensor], Tensor]]
Sums = tuple[Tensor, Callable[[Tensor], Tensor]]  # (S,), and the map from (k, S) to gradients

# With more rows a solver starts on a subsample of about this size or less (decisions: many rows are
# seen late).
_MANY_ROWS = 200_000
# A sixteenth of the rows is cheap beside the passes over all rows that follow; of a label and group
# there are more, because a rate on 1,000 rows has a standard error of .016 at most.
_MOST_FRACTION, _FEW_OF_CELL = 1 / 16, 1_000
# Multiples of the golden ratio modulo 1 are evenly spread, whatever the order of rows: periods of
# the table have no effect.
GOLDEN = 0.6180339887498949


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows divided among workers, in blocks.

    All results are sums over rows, and :meth:`total` is the only place that takes such sums: over
    the pieces of this worker's blocks, then over the workers. Rows in memory are one piece: a tuple
    of one block.
    """

    blocks: Iterable[Features]  # this worker's rows, iterated over in every pass
    y: Tensor  # (n,) class indices, integers of any size
    # (n,) group indices, integers of any size; or where groups are known with a probability only,
    # (n, n_groups): fractions of each row that belong to the groups, which add up to one.
    group: Tensor
    weight: Tensor  # (n,) positive; ones that are expanded from one number take no memory
    workers: Workers = field(default=ALONE)  # the processes that share the rows

    # ------------------------------------------------------------------ which rows these are

    @property
    def in_memory(self) -> bool:
        """Whether the object holds all rows, in memory."""
        return isinstance(self.blocks, tuple) and len(self.blocks) == 1 and self.workers.size == 1

    @cached_property
    def X(self) -> Any:
        """The columns, or their statistics if the rows are not in memory."""
        return self.blocks[0] if self.in_memory else ColumnsOfAll(self)  # type: ignore[index]

    @property
    def block(self) -> Rows:
        """The rows of this worker, which must be a single block, in memory."""
        (X,) = self.blocks
        return Rows((X,), self.y.long(), _as_index(self.group), self.weight)

    @cached_property
    def n_rows(self) -> int:
        """Number of rows of all workers."""
        if self.workers.size == 1:
            return len(self.y)
        return int(self.workers.sum(torch.tensor(len(self.y), device=self.y.device)))

    @cached_property
    def starts(self) -> list[int]:
        """Index of the first row of each worker, and the number of all rows."""
        return list(accumulate(self.gather(lambda local: len(local.y)), initial=0))

    @cached_property
    def total_weight(self) -> Tensor:
        """Sum of the weights of all rows, ()."""
        return self.workers.sum(self.weight.sum())

    # ------------------------------------------------------------------ sums over all rows

    def sum(self, function: Callable[[Rows], Tensor]) -> Tensor:
        """Sum a function of each worker's rows over the workers.

        Problems need only this and :meth:`gather` from the data backend. The function may be sent
        to the workers, with everything it refers to.
        """
        return self.workers.sum(function(self))

    def gather(self, function: Callable[[Rows], T]) -> list[T]:
        """Return the values, which must be small, of a function of the rows of each worker."""
        return self.workers.gather(function(self))

    def pieces(self) -> Iterator[Rows]:
        """Yield this worker's rows in pieces that are in memory."""
        if self.in_memory:
            yield self
            return
        start = 0
        for block in self.blocks:
            for X in block.split(PIECE_ROWS):
                here = slice(start, start + X.shape[0])
                start = here.stop
                yield Rows((X,), self.y[here], self.group[here], self.weight[here]).block

    def total(self, function: Callable[[Rows], Tensor]) -> Tensor:
        """Sum a function of pieces of rows over all rows of all workers."""
        # All workers must compute the same sums in the same order.
        if self.in_memory:
            return function(self)
        return self.sum(lambda local: reduce(torch.add, map(function, local.pieces())))

    def linearized(self, function: Callable[[Rows], Sums]) -> Sums:
        """Return sums over all rows, and the map from weights on them to sums of gradients.

        `function` gives for some rows their sums, (S,), and a function from weights (k, S) on them
        to gradients, (k, n_variables). Rows in memory are passed once. For others nothing is
        stored: a second pass computes each piece again for the gradients.
        """
        if self.in_memory:
            return function(self)
        return (
            self.total(lambda piece: function(piece)[0]),
            lambda weights: self.total(lambda piece: function(piece)[1](weights)),
        )

    def counts(self, constraint: MomentConstraint) -> Tensor:
        """Return the weight of the rows in each part of a constraint, (n_parts,)."""

        def local_counts(rows: Rows) -> Tensor:
            counts = rows.weight.new_zeros(constraint.n_parts)
            for y, group, weight in blocks_of(rows.y, rows.group, rows.weight):
                placed = constraint.partition.place(y.long(), _as_index(group), weight)
                counts = counts + placed.counts()
            return counts

        return self.sum(local_counts)

    # ------------------------------------------------------------------ some of the rows

    def take(self, index: Tensor) -> Rows:
        """Return rows of this worker, in memory; indices may be on the CPU."""
        (X,) = self.blocks
        index = index.to(self.y.device)
        y, group, weight = (c.index_select(0, index) for c in (self.y, self.group, self.weight))
        return Rows((X.rows(index),), y, group, weight)

    def select(self, choose: Callable[[Rows], Rows]) -> Rows:
        """Return the rows that `choose` selects on each worker."""
        return choose(self)

    def subset(self, index: Tensor, weight: Tensor) -> Rows:
        """Return this worker's rows at ascending indices, with new weights."""
        blocks, start = [], 0
        for block in self.blocks:
            stop = start + block.shape[0]
            here = index[(index >= start) & (index < stop)]
            if len(here):
                blocks.append(block.rows(here - start))
            start = stop
        y, group = self.y[index].long(), _as_index(self.group[index])
        return Rows(tuple(blocks), y, group, weight, self.workers)

    def subsample(self, constraint: MomentConstraint) -> Rows:
        """Return a weighted subsample, or all rows if these are few or some worker had none.

        The fraction is the same for each label and group, except that small cells keep at least
        1,000 rows: all rows, if most cells are small. Rows are spaced by the golden ratio, so no
        periodic order matters. Workers choose the rows that one with all rows in their order would.
        """
        if self.n_rows <= _MANY_ROWS:
            return self
        n_cells, starts = constraint.partition.part_of_cell.numel(), self.starts

        def counted(local: Rows) -> Tensor:
            sizes = local.weight.new_zeros(n_cells)
            for _, cell in local._cells(constraint):
                sizes += torch.bincount(cell, minlength=n_cells)
            return sizes

        counts = self.sum(counted)
        most = min(_MOST_FRACTION, _MANY_ROWS / self.n_rows)
        fraction = (_FEW_OF_CELL / counts.clamp_min(1.0)).clamp(most, 1.0)
        if fraction @ counts > 0.5 * self.n_rows:
            return self

        def chosen(local: Rows) -> Rows:
            choices = []
            for place, cell in local._cells(constraint):
                spaced = ((starts[local.workers.rank] + place).double() * GOLDEN).frac()
                some = torch.nonzero(spaced < fraction[cell])[:, 0]
                choices.append((place[some], 1.0 / fraction[cell[some]]))
            index, stands_for = map(torch.cat, zip(*choices, strict=True))
            return local.subset(index, local.weight[index] * stands_for)

        subsample = self.select(chosen)
        return subsample if min(subsample.workers.gather(len(subsample.y))) else self

    def by_cell(self, constraint: MomentConstraint) -> Rows:
        """Return one row of each label and group of a worker, with the weight of all of them."""
        n_cells = constraint.partition.part_of_cell.numel()

        def chosen(local: Rows) -> Rows:
            first = torch.full((n_cells,), len(local.y), device=local.y.device)
            weight = local.weight.new_zeros(n_cells)
            for place, cell in local._cells(constraint):
                first.scatter_reduce_(0, cell, place, "amin")
                weight.index_add_(0, cell, local.weight[place])
            index, order = first[weight > 0].sort()
            cells = local.subset(index, weight[weight > 0][order])
            if local.group.ndim == 1:
                return cells
            # Where rows belong to groups by fractions: one of each label, with the mean fractions.
            shares = sum_by(local.group * local.weight[:, None], local.y.long(), n_cells)
            return replace(cells, group=shares[cells.y] / cells.weight[:, None])

        return self.select(chosen)

    def _cells(self, constraint: MomentConstraint) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield positions of blocks of this worker's rows, and label and group as one index."""
        # Rows that belong to groups by fractions are indexed by their labels alone.
        start, n_groups = 0, constraint.partition.part_of_cell.shape[1]
        for y, group in blocks_of(self.y, self.group):
            place = torch.arange(start, start + len(y), device=y.device)
            start += len(y)
            yield place, y.long() * n_groups + (group.long() if group.ndim == 1 else 0)

    # ------------------------------------------------------------------ the order of all scores

    @cached_property
    def quantiles(self) -> Rows:
        r"""Rows whose scores have the distributions of all rows within each label and group.

        They are the rows themselves if these are in memory or at most 400,000 in all. Otherwise
        each of W workers sends, for each of its cells (labels in groups, C at most), all
        rows if they are at most :math:`K = 400000 / (W C)`, else K quantiles of their scores, of
        equal weight. The levels of worker w are :math:`(k + o_w) / K` for k = 0, ..., K - 1 and
        :math:`o_w = (w + 1/2) / W`.

        A quantile is above a threshold if its level is above the fraction u of weight at or below
        the threshold. The fraction of such levels differs from 1 - u by less than 1 / K (by at most
        1 / (2 K) for one worker). So do the fractions of unions of cells of any workers, which are
        their means. Where the rows of workers are alike, these errors are about 1 / (2 K W) at
        most, because the levels of all workers together are evenly spaced. What follows for gaps
        is said by :func:`~fairconstrained.distributed.sharded_rows`.
        """
        return self if self.in_memory else self._gathered(partial(_quantiles, self.n_rows))

    @cached_property
    def sample(self) -> Rows:
        """Up to 400,000 rows of all workers, evenly spaced; all rows that are in memory."""
        return self if self.in_memory else self._gathered(partial(_spaced, self.starts))

    def spaced(self) -> Tensor:
        """Return indices of up to 400,000 evenly spaced rows, the same however they are shared."""
        return _spaced(self.starts, self)[0]

    def to_quantiles(self, local: Rows, scores: Tensor) -> Tensor:
        """Return a worker's scores in :attr:`quantiles`, given the scores of its rows, (n, 1)."""
        if self.in_memory:
            return scores
        return _quantiles(self.n_rows, local)[-1](scores[:, 0])[:, None]

    def _gathered(self, representatives: Callable[[Rows], Representatives]) -> Rows:
        """Gather the representatives of each worker's rows."""

        def columns(local: Rows) -> tuple[Tensor, Tensor, Tensor]:
            index, weight, _ = representatives(local)
            return local.y[index].long(), _as_index(local.group[index]), weight

        y, group, weight = map(torch.cat, zip(*self.gather(columns), strict=True))
        X: Any = TravellingScores(self, representatives)
        return Rows((X,), y, group, weight)

    @cached_property
    def places_of_cells(self) -> list[Tensor]:
        """Positions of this worker's rows of each label and group."""
        if self.group.ndim == 2:
            raise ValueError(
                f"rankings of more than {SENT_SCORES:,} rows in blocks or shards need the group "
                "of each: where groups are known with a probability only, there are no quantiles "
                "by group."
            )
        cell = self.y.long() * (1 + int(self.group.max())) + self.group.long()
        return [torch.nonzero(cell == c)[:, 0] for c in torch.unique(cell).tolist()]


def _quantiles(n_rows: int, local: Rows) -> Representatives:
    """Return all rows if all workers have few, else quantiles within label and group."""
    if n_rows <= SENT_SCORES:  # in the order in which they were given
        cells, most = [torch.arange(len(local.y), device=local.y.device)], n_rows
    else:
        cells = local.places_of_cells
        most = max(SENT_SCORES // (local.workers.size * len(cells)), 1)
    # Offsets by rank make the levels of all workers evenly spaced.
    levels = (np.arange(most) + (local.workers.rank + 0.5) / local.workers.size) / most
    rows, weight = [], []
    for cell in cells:
        rows.append(cell[:most])
        total = local.weight[cell]
        weight.append(total if len(cell) <= most else (total.sum() / most).expand(most))

    def at_levels(scores: Tensor, cell: Tensor) -> Tensor:
        if len(cell) <= most:
            return scores[cell]
        z, row_weight = scores[cell].cpu().numpy(), local.weight[cell].cpu().numpy()
        order = np.argsort(z)
        below = np.cumsum(row_weight[order])
        return torch.as_tensor(z[order][np.searchsorted(below, levels * below[-1])]).to(scores)

    def represent(scores: Tensor) -> Tensor:
        return torch.cat([at_levels(scores, cell) for cell in cells])

    return torch.cat(rows), torch.cat(weight), represent


def _spaced(starts: list[int], local: Rows) -> Representatives:
    """Return evenly spaced rows, given the index of the first row of each worker."""
    spacing = -(-starts[-1] // SENT_SCORES)
    # Continue the spacing of the workers before this one.
    first = -starts[local.workers.rank] % spacing
    index = torch.arange(first, max(len(local.y), first), spacing, device=local.y.device)
    return index, local.weight[index], lambda scores: scores[index]


def _as_index(group: Tensor) -> Tensor:
    """Convert group indices to torch's index type; return fractions unchanged."""
    return group.long() if group.ndim == 1 else group


@dataclass(frozen=True, eq=False)
class TravellingScores:
    """Columns of representatives of all rows, whose scores the workers send: 8 bytes each.

    AUCs and gaps at all thresholds need the scores of all workers, as they are no sums over rows.
    """

    data: Rows
    representatives: Callable[[Rows], Representatives]

    def matmul(self, v: Tensor) -> Tensor:
        """Return X v, (n, 1), in one pass over the rows."""
        representatives = self.representatives

        def local_scores(local: Rows) -> Tensor:
            scores = torch.cat([piece.X.matmul(v) for piece in local.pieces()])
            return representatives(local)[-1](scores[:, 0])

        return torch.cat(self.data.gather(local_scores))[:, None]


class ColumnsOfAll:
    """Statistics of the columns of rows that are not in memory."""

    def __init__(self, rows: Rows):
        self._rows = rows

    @cached_property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns."""
        n_columns = self._rows.gather(lambda local: next(local.pieces()).X.shape[1])
        return self._rows.n_rows, n_columns[0]

    def mean(self, weight: Tensor) -> Tensor:
        """Return weighted column means, (d,)."""
        return self._average(lambda piece: piece.X.mean(piece.weight))

    def covariance(self, weight: Tensor, centre: Tensor) -> Tensor:
        """Return weighted second moments about `centre`, (d, d)."""
        return self._average(lambda piece: piece.X.covariance(piece.weight, centre))

    def variance(self, weight: Tensor, centre: Tensor) -> Tensor:
        """Return the diagonal of `covariance`, (d,)."""
        return self._average(lambda piece: piece.X.variance(piece.weight, centre))

    def values(self) -> ColumnValues:
        """Return each column's smallest and largest value, and whether it has others."""

        def local_values(local: Rows) -> ColumnValues:
            pieces: Iterator[ColumnValues] = (piece.X.values() for piece in local.pieces())
            return reduce(ColumnValues.joined, pieces)

        return reduce(ColumnValues.joined, self._rows.gather(local_values))

    def _average(self, function: Callable[[Rows], Tensor]) -> Tensor:
        """Return the weighted mean over all rows, from weighted means over pieces."""
        total = self._rows.total(lambda piece: function(piece) * piece.weight.sum())
        return total / self._rows.total_weight
