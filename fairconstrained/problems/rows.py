"""The rows of a problem: in memory, read block by block, or divided among workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fairconstrained.constraints.moments import MomentConstraint
from fairconstrained.constraints.tables import blocks_of
from fairconstrained.distributed import ALONE, Workers
from fairconstrained.models.features import ColumnValues, Features

Sums = tuple[Tensor, Callable[[Tensor], Tensor]]  # (S,), and the map from (k, S) to gradients

_PIECE_ROWS = 16_384  # so many rows of some tens of columns fit into the processor's cache
_MOST_SCORES = 400_000  # of all workers that travel at a time: 3 MB
_MANY_ROWS = 200_000  # of more rows a solver sees about so many first, or fewer
_LEAST = 16  # one row in so many at most
_FEW_OF_CELL = 1_000  # rows of a label and group that are kept at least, if it has so many
_GOLDEN = 0.6180339887498949


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of which each worker has some, in blocks.

    Whatever is computed from all rows is a sum over them, and :meth:`total` is the only place where
    such sums are taken: over the pieces of this worker's blocks, then over the workers. Rows in
    memory are one piece.

    Parameters
    ----------
    blocks : iterable of Features
        This worker's rows. It is iterated over in every pass, and gives the same blocks each time.
        A tuple of one block are rows in memory.
    y : Tensor of integers of any size, shape (n,)
        Class indices of this worker's rows.
    group : Tensor of shape (n,) or (n, n_groups)
        Group indices, integers of any size; or how much of each row belongs to each group, where
        groups are known with a probability only: fractions that add up to one.
    weight : Tensor of shape (n,)
        Positive. A tensor of ones that is expanded from one number takes no memory.
    workers : Workers, default=ALONE
        The processes that have the rows together.

    Examples
    --------
    >>> import torch
    >>> from fairconstrained.models.features import DenseFeatures
    >>> from fairconstrained.problems import Rows
    >>> X = DenseFeatures(torch.arange(6.0).reshape(3, 2))
    >>> y, group = torch.tensor([0, 1, 1]), torch.tensor([0, 0, 1])
    >>> rows = Rows((X,), y, group, torch.ones(3))
    >>> rows.take(torch.tensor([2, 0])).X.to_dense().tolist()
    [[4.0, 5.0], [0.0, 1.0]]
    >>> rows.total(lambda piece: piece.X.to_dense().sum(dim=0)).tolist()
    [6.0, 9.0]
    """

    blocks: Iterable[Features]
    y: Tensor
    group: Tensor
    weight: Tensor
    workers: Workers = field(default=ALONE)

    # ------------------------------------------------------------------ which rows these are

    @property
    def in_memory(self) -> bool:
        """Whether these are all rows, and in memory."""
        return isinstance(self.blocks, tuple) and len(self.blocks) == 1 and self.workers.size == 1

    @cached_property
    def X(self) -> Any:
        """The columns; of rows that are not in memory their statistics."""
        return self.blocks[0] if self.in_memory else ColumnsOfAll(self)  # type: ignore[index]

    @property
    def own(self) -> Rows:
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
    def n_before(self) -> int:
        """Number of rows of the workers before this one."""
        return sum(self.workers.gather(len(self.y))[: self.workers.rank])

    @cached_property
    def total_weight(self) -> Tensor:
        """Sum of the weights of all rows, ()."""
        return self.workers.sum(self.weight.sum())

    # ------------------------------------------------------------------ sums over all rows

    def pieces(self) -> Iterator[Rows]:
        """The rows of this worker, some at a time and in memory."""
        if self.in_memory:
            yield self
            return
        start = 0
        for block in self.blocks:
            for X in block.split(_PIECE_ROWS):
                own = slice(start, start + X.shape[0])
                start = own.stop
                yield Rows((X,), self.y[own], self.group[own], self.weight[own]).own

    def total(self, of_piece: Callable[[Rows], Tensor]) -> Tensor:
        """Sum of a function of some rows at a time over all rows of all workers.

        All workers must ask for the same sums in the same order.
        """
        return self.workers.sum(reduce(torch.add, map(of_piece, self.pieces())))

    def linearized(self, of_piece: Callable[[Rows], Sums]) -> Sums:
        """Sums over all rows, and the map from weights on them to sums of gradients.

        Rows in memory are passed once. Of others nothing is kept: each piece is computed again for
        the gradients, in a second pass.

        Parameters
        ----------
        of_piece : callable
            Gives for some rows their sums, (S,), and a function from weights (k, S) on them to
            gradients, (k, n_variables).
        """
        if self.in_memory:
            return of_piece(self)
        return (
            self.total(lambda piece: of_piece(piece)[0]),
            lambda weights: self.total(lambda piece: of_piece(piece)[1](weights)),
        )

    def counts(self, constraint: MomentConstraint) -> Tensor:
        """Weight of the rows in each part of a constraint, (n_parts,)."""
        own = self.weight.new_zeros(constraint.n_parts)
        for y, group, weight in blocks_of(self.y, self.group, self.weight):
            own = own + constraint.place(y.long(), _as_index(group), weight).counts()
        return self.workers.sum(own)

    # ------------------------------------------------------------------ some of the rows

    def take(self, index: Tensor) -> Rows:
        """Some rows of this worker, in memory, which may be drawn by a generator on the CPU."""
        (X,) = self.blocks
        index = index.to(self.y.device)
        y, group, weight = (c.index_select(0, index) for c in (self.y, self.group, self.weight))
        return Rows((X.rows(index),), y, group, weight)

    def kept(self, index: Tensor, weight: Tensor) -> Rows:
        """Some of this worker's rows, in memory, that have these weights from now on.

        All rows as they are, if some worker would have none.

        Parameters
        ----------
        index : Tensor of shape (k,)
            Ascending.
        weight : Tensor of shape (k,)
        """
        if min(self.workers.gather(len(index))) == 0:
            return self
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
        """Fewer rows that stand for all, or all if they are few or most would be kept.

        A fraction of each label and group is kept, the same for all but small cells, of which at
        least 1,000 rows are kept. Rows are spaced by the golden ratio, which no order of the rows
        repeats. Of several workers they are those that one worker would choose who has the rows of
        all, in the order of the workers.

        Parameters
        ----------
        constraint : MomentConstraint
            Of these labels and groups.
        """
        if self.n_rows <= _MANY_ROWS:
            return self
        own = self.weight.new_zeros(constraint.part_of_cell.numel())
        for _, cell in self._cells(constraint):
            own += torch.bincount(cell, minlength=len(own))
        counts = self.workers.sum(own)
        most = min(1.0 / _LEAST, _MANY_ROWS / self.n_rows)
        fraction = (_FEW_OF_CELL / counts.clamp_min(1.0)).clamp(most, 1.0)
        if fraction @ counts > 0.5 * self.n_rows:  # most cells are small
            return self
        found = []
        for place, cell in self._cells(constraint):
            spaced = ((self.n_before + place).double() * _GOLDEN).frac()
            chosen = torch.nonzero(spaced < fraction[cell])[:, 0]
            found.append((place[chosen], 1.0 / fraction[cell[chosen]]))
        index, stands_for = map(torch.cat, zip(*found, strict=True))
        return self.kept(index, self.weight[index] * stands_for)

    def by_cell(self, constraint: MomentConstraint) -> Rows:
        """One row of each label and group, which has the weight of all of them.

        Parameters
        ----------
        constraint : MomentConstraint
            Of these labels and groups.
        """
        n_cells = constraint.part_of_cell.numel()
        first = torch.full((n_cells,), len(self.y), device=self.y.device)
        weight = self.weight.new_zeros(n_cells)
        for place, cell in self._cells(constraint):
            first.scatter_reduce_(0, cell, place, "amin")
            weight.index_add_(0, cell, self.weight[place])
        index, order = first[weight > 0].sort()
        return self.kept(index, weight[weight > 0][order])

    def _cells(self, constraint: MomentConstraint) -> Iterator[tuple[Tensor, Tensor]]:
        """Places of some rows of this worker at a time, and their label and group as one index.

        Rows that belong to groups by fractions are told apart by their labels.
        """
        start, n_groups = 0, constraint.part_of_cell.shape[1]
        for y, group in blocks_of(self.y, self.group):
            place = torch.arange(start, start + len(y), device=y.device)
            start += len(y)
            yield place, y.long() * n_groups + (group.long() if group.ndim == 1 else 0)

    # ------------------------------------------------------------------ the order of all scores

    @cached_property
    def quantiles(self) -> Rows:
        r"""Rows whose scores have the distributions of all rows within each label and group.

        They are the rows themselves if these are in memory, or of all workers at most 400,000. Of
        more rows each of W workers sends, for each of its cells (labels in groups, C at most), all
        rows if they are at most :math:`K = 400000 / (W C)`, else K quantiles of their scores, of
        equal weight. The levels of worker w are :math:`(k + o_w) / K` for k = 0, ..., K - 1 and
        :math:`o_w = (w + 1/2) / W`.

        A quantile is above a threshold if its level is above the fraction u of weight at or below
        the threshold. The fraction of such levels differs from 1 - u by less than 1 / K (by at most
        1 / (2 K) for one worker). So do the fractions of unions of cells of any workers, which are
        means of these. Where the rows of workers are alike, these errors are about 1 / (2 K W) at
        most, because the levels of all workers together are evenly spaced. It follows that

        - AUCs are exact up to 2 / K, since each is the mean rank of one distribution in another,
          and differences of two AUCs up to 4 / K;
        - gaps of distributions or rates within an interval of length L are exact up to 2 / (K L);
        - a largest difference of ranks "where one of them is inside an interval" is up to 2 / K
          that of an interval whose ends are at most 1 / K away.
        """
        if self.in_memory:
            return self
        index = self.y.long() * (1 + int(self.group.max())) + self.group.long()
        if self.n_rows <= _MOST_SCORES:  # in the order in which they were given
            cells, most = [torch.arange(len(index), device=index.device)], self.n_rows
        else:
            cells = [torch.nonzero(index == c)[:, 0] for c in torch.unique(index).tolist()]
            most = max(_MOST_SCORES // (self.workers.size * len(cells)), 1)
        levels = (np.arange(most) + (self.workers.rank + 0.5) / self.workers.size) / most
        rows, weight = [], []
        for cell in cells:
            few = len(cell) <= most
            rows.append(cell if few else cell[:most])
            total = self.weight[cell]
            weight.append(total if few else (total.sum() / most).expand(most))

        def of_own(scores: Tensor) -> Tensor:
            return torch.cat(
                [
                    scores[cell] if len(cell) <= most else self._quantiles(scores, cell, levels)
                    for cell in cells
                ]
            )

        return self._gathered(torch.cat(rows), torch.cat(weight), of_own)

    def _quantiles(self, scores: Tensor, cell: Tensor, levels: Any) -> Tensor:
        """Quantiles of the scores of some rows, at these levels of their weight."""
        z, weight = scores[cell].cpu().numpy(), self.weight[cell].cpu().numpy()
        order = np.argsort(z)
        below = np.cumsum(weight[order])
        return torch.as_tensor(z[order][np.searchsorted(below, levels * below[-1])]).to(scores)

    @cached_property
    def sample(self) -> Rows:
        """Up to 400,000 rows of all workers, evenly spaced; all rows that are in memory."""
        if self.in_memory:
            return self
        index = self.spaced()
        return self._gathered(index, self.weight[index], lambda scores: scores[index])

    def spaced(self) -> Tensor:
        """Indices of up to 400,000 rows, evenly spaced: all rows, or every second, third...

        Of several workers they are those that one worker would choose who has the rows of all.
        """
        spacing = -(-self.n_rows // _MOST_SCORES)
        return torch.arange(-self.n_before % spacing, len(self.y), spacing, device=self.y.device)

    def scores_of_all(self, scores: Tensor) -> Tensor:
        """The scores of :attr:`quantiles`, (m, 1), from those of this worker's rows, (n, 1)."""
        if self.in_memory:
            return scores
        travelling: TravellingScores = self.quantiles.X
        return travelling.of_own_scores(scores)

    def _gathered(self, index: Tensor, weight: Tensor, of_own: Callable[[Tensor], Tensor]) -> Rows:
        """Rows of all workers, of each those with these indices."""
        columns = self.y[index].long(), _as_index(self.group[index]), weight
        y, group, weight = map(torch.cat, zip(*self.workers.gather(columns), strict=True))
        X: Any = TravellingScores(self, of_own)
        return Rows((X,), y, group, weight)


def _as_index(group: Tensor) -> Tensor:
    """Group indices as torch needs them; fractions as they are."""
    return group.long() if group.ndim == 1 else group


@dataclass(frozen=True, eq=False)
class TravellingScores:
    """X of rows that stand for those of all workers: its products are scores that travel.

    An AUC, and a gap at all thresholds, are no sums over rows. They are computed from scores of all
    workers, which travel whenever the parameters of the model change: 8 bytes for each.

    Parameters
    ----------
    data : Rows
    of_own : callable
        Turns the scores (n,) of this worker's rows into the scores (k,) that stand for them.
    chosen : Tensor, optional
        Which of all that stand for rows these are; default: all.
    """

    data: Rows
    of_own: Callable[[Tensor], Tensor]
    chosen: Tensor | None = None

    def rows(self, index: Tensor) -> TravellingScores:
        """Some of these rows."""
        return replace(self, chosen=index if self.chosen is None else self.chosen[index])

    def matmul(self, v: Tensor) -> Tensor:
        """X v, (n, 1), in one pass over the rows."""
        return self.of_own_scores(torch.cat([piece.X.matmul(v) for piece in self.data.pieces()]))

    def of_own_scores(self, scores: Tensor) -> Tensor:
        """The scores (m, 1) that stand for those of all workers, from this worker's, (n, 1)."""
        every = torch.cat(self.data.workers.gather(self.of_own(scores[:, 0])))
        return (every if self.chosen is None else every[self.chosen])[:, None]


class ColumnsOfAll:
    """Statistics of the columns of rows that are not in memory."""

    def __init__(self, rows: Rows):
        self._rows = rows

    @cached_property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns."""
        return self._rows.n_rows, next(self._rows.pieces()).X.shape[1]

    def mean(self, weight: Tensor) -> Tensor:
        """Weighted column means, of shape (d,)."""
        return self._average(lambda piece: piece.X.mean(piece.weight))

    def covariance(self, weight: Tensor, centre: Tensor) -> Tensor:
        """Weighted second moments about `centre`, of shape (d, d)."""
        return self._average(lambda piece: piece.X.covariance(piece.weight, centre))

    def variance(self, weight: Tensor, centre: Tensor) -> Tensor:
        """The diagonal of `covariance`, of shape (d,)."""
        return self._average(lambda piece: piece.X.variance(piece.weight, centre))

    def values(self) -> ColumnValues:
        """Least and largest value of each column, and whether there are others."""
        pieces: Iterator[ColumnValues] = (piece.X.values() for piece in self._rows.pieces())
        own = reduce(ColumnValues.joined, pieces)
        return reduce(ColumnValues.joined, self._rows.workers.gather(own))

    def _average(self, of_piece: Callable[[Rows], Tensor]) -> Tensor:
        """The weighted mean over all rows, from weighted means over pieces."""
        total = self._rows.total(lambda piece: of_piece(piece) * piece.weight.sum())
        return total / self._rows.total_weight
