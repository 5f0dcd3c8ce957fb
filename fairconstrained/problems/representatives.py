"""Rows that stand for the rows of all workers, wherever the order of all scores counts.

An AUC, and a gap at all thresholds, are no sums over rows. They are computed from scores of all
workers, which travel whenever the parameters of the model change: 8 bytes for each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairconstrained.problems.base import Batch

if TYPE_CHECKING:
    from fairconstrained.problems.parted_rows import PartedRows


_MOST_SCORES = 400_000  # of all workers that travel at a time: 3 MB


class Cell(NamedTuple):
    """The rows of one label and group of this worker, and what stands for them."""

    rows: Tensor  # (n,) their indices
    weight: Tensor  # (n,)
    levels: NDArray[np.float64]  # (K,) of the quantiles that stand for more than K rows

    def stands(self) -> tuple[Tensor, Tensor]:
        """For each that stands for some of them: a row of the same cell, and their weight."""
        most = len(self.levels)
        if len(self.rows) <= most:
            return self.rows, self.weight
        return self.rows[:most], (self.weight.sum() / most).expand(most)

    def quantiles(self, scores: Tensor) -> Tensor:
        """The scores of all rows if they are at most K, else K quantiles."""
        if len(self.rows) <= len(self.levels):
            return scores[self.rows]
        z, weight = scores[self.rows].cpu().numpy(), self.weight.cpu().numpy()
        order = np.argsort(z)
        below = np.cumsum(weight[order])
        places = np.searchsorted(below, self.levels * below[-1])
        return torch.as_tensor(z[order][places]).to(scores)


@dataclass(frozen=True, eq=False)
class EveryonesColumns:
    """X of rows that stand for those of all workers: its products are scores that travel.

    Parameters
    ----------
    data : PartedRows
    of_own : callable
        The scores (k,) of what stands for this worker's rows, from the scores (n,) of these.
    chosen : Tensor, optional
        Which of all that stand for rows these are; default: all.
    """

    data: PartedRows
    of_own: Callable[[Tensor], Tensor]
    chosen: Tensor | None = None

    def rows(self, index: Tensor) -> EveryonesColumns:
        """Some of these rows."""
        return replace(self, chosen=index if self.chosen is None else self.chosen[index])

    def matmul(self, v: Tensor) -> Tensor:
        """X v, (n, 1), in one pass over the rows."""
        return self.of_scores(torch.cat([batch.X.matmul(v) for batch in self.data.batches()]))

    def of_scores(self, scores: Tensor) -> Tensor:
        """The scores (n, 1) that stand for those of all workers, from this worker's, (n_own, 1)."""
        every = torch.cat(self.data.workers.gather(self.of_own(scores[:, 0])))
        return (every if self.chosen is None else every[self.chosen])[:, None]


def representatives(data: PartedRows) -> Batch:
    r"""Rows whose scores have the distributions of all rows within each label and group.

    Up to 400,000 rows these are the rows themselves. Of more rows each of W workers sends, for each
    of its cells (labels in groups, C at most), all rows if they are at most
    :math:`K = 400000 / (W C)`, else K quantiles of their scores, of equal weight. The levels of
    worker w are :math:`(k + o_w) / K` for k = 0, ..., K - 1 and :math:`o_w = (w + 1/2) / W`.

    A quantile is above a threshold if its level is above the fraction u of weight at or below the
    threshold. The fraction of such levels differs from 1 - u by less than 1 / K (by at most
    1 / (2 K) for one worker). So do the fractions of unions of cells of any workers, which are
    means of these. Where the rows of workers are alike, these errors are about 1 / (2 K W) at most,
    because the levels of all workers together are evenly spaced. It follows that

    - AUCs are exact up to 2 / K, since each is the mean rank of one distribution in another, and
      differences of two AUCs up to 4 / K;
    - gaps of distributions or rates within an interval of length L are exact up to 2 / (K L);
    - a largest difference of ranks "where one of them is inside an interval" is up to 2 / K that of
      an interval whose ends are at most 1 / K away.
    """
    index = data.y.long() * (1 + int(data.group.max())) + data.group.long()
    if data.n_rows <= _MOST_SCORES:  # in the order in which they were given
        cells, most = [torch.arange(len(index), device=index.device)], data.n_rows
    else:
        cells = [torch.nonzero(index == c)[:, 0] for c in torch.unique(index).tolist()]
        most = max(_MOST_SCORES // (data.workers.size * len(cells)), 1)
    levels = (np.arange(most) + (data.workers.rank + 0.5) / data.workers.size) / most
    own = [Cell(rows, data.weight[rows], levels) for rows in cells]
    rows, weight = map(torch.cat, zip(*(cell.stands() for cell in own), strict=True))

    def of_own(scores: Tensor) -> Tensor:
        return torch.cat([cell.quantiles(scores) for cell in own])

    return _batch(data, of_own, rows, weight)


def every_so_many(data: Batch | PartedRows) -> Tensor:
    """Indices of up to 400,000 rows, evenly spaced: all rows, or every second, third...

    Of several workers they are those that one worker would choose who has the rows of all.
    """
    spacing = -(-data.n_rows // _MOST_SCORES)
    return torch.arange(-data.n_before % spacing, len(data.y), spacing, device=data.y.device)


def sample(data: PartedRows) -> Batch:
    """Some of the rows of all workers, evenly spaced, or all if they are few."""
    rows = every_so_many(data)
    return _batch(data, lambda scores: scores[rows], rows, data.weight[rows])


def _batch(
    data: PartedRows, of_own: Callable[[Tensor], Tensor], rows: Tensor, weight: Tensor
) -> Batch:
    """What stands for the rows of all workers, from that of this one."""
    columns = data.y[rows].long(), data.group[rows].long(), weight
    gathered: Sequence[tuple[Tensor, ...]] = data.workers.gather(columns)
    X = EveryonesColumns(data, of_own)
    return Batch(X, *map(torch.cat, zip(*gathered, strict=True)))  # type: ignore[arg-type]
