r"""What all partial notions share: sets of rows, each with intervals of ranks.

The parts are sets of rows with the same group (and label), each with its union of intervals of
ranks. With the rate r of a set's scores above a threshold, and the share G(r) of the rows inside
the intervals (:mod:`fairconstrained.percentiles`), all values are functions of such rates. Hard
values are the exact metrics of :mod:`fairconstrained.metrics`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairconstrained.constraints.moments import BoundConstraint
from fairconstrained.constraints.space import Space
from fairconstrained.percentiles import Intervals, Ranks, rank_of_scores

__all__ = ["NEVER_BINDS", "WithinIntervals", "convex_rates"]

NEVER_BINDS = 1e6


class WithinIntervals(BoundConstraint):
    """Base: disjoint sets of rows, each with its intervals.

    Parameters
    ----------
    space : Space
        Of two classes.
    part_of_cell : ndarray of int, (2, n_groups)
        The set of the rows of each label and group; -1 where they take no part.
    intervals : Intervals
        Of each set.
    slack : float
    statistic : Statistic
        :class:`Above`, or :class:`ScoreBins`.
    name : str
        The notion, for messages.
    n_aux : int, default=0
    """

    statistic: Any  # Above, or ScoreBins

    def __init__(
        self,
        space: Space,
        part_of_cell: NDArray[np.int64],
        intervals: Intervals,
        slack: float,
        statistic: Any,
        name: str,
        n_aux: int = 0,
    ):
        super().__init__(torch.as_tensor(part_of_cell), statistic, n_aux)
        self.space = space
        self.intervals = intervals
        self.lower, self.upper = (torch.as_tensor(ends) for ends in intervals)
        self.lengths = torch.as_tensor(intervals.lengths)
        self.name = name
        self.gap = min(slack, NEVER_BINDS)

    def without_small(self, rows: NDArray[np.int64], min_rows: int) -> tuple[Self, list[str]]:
        """Drop the sets of too few rows, or without a whole row in their intervals."""
        n = self._rows_of_parts(rows)
        small = (n < max(min_rows, 1)) | (n * self.intervals.lengths < 1.0)
        if not small.any():
            return self, []
        part = self.part_of_cell.numpy()
        dropped = self._counted(small, n)
        renumbered = np.where(small, -1, np.cumsum(~small) - 1)
        kept = np.where(part >= 0, renumbered[part], -1)
        return self._on(kept, self.intervals.take(~small)), dropped

    def coarse_sets(self, rows: NDArray[np.int64]) -> list[str]:
        """Sets with fewer rows in their intervals than there are thresholds to tell apart."""
        return []

    def within(self, lower: float, upper: float) -> Self:
        """The same constraint in another interval, one for all sets."""
        ends = (np.full((self.n_parts, 1), end) for end in (lower, upper))
        return self._on(self.part_of_cell.numpy(), Intervals(*ends))

    def _on(self, part_of_cell: NDArray[np.int64], intervals: Intervals) -> Self:
        """The same constraint on other sets."""
        where = self.space, part_of_cell, intervals, self.gap, self.statistic, self.name
        of_same_kind: Callable[..., Self] = type(self)
        return of_same_kind(*where, *self._more())

    def _more(self) -> tuple[float, ...]:
        """What the constructor takes beyond what all do."""
        return ()

    def _rows_of_parts(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        part = self.part_of_cell.numpy()
        return np.array([rows[part == q].sum() for q in range(self.n_parts)])

    def _counted(self, which: NDArray[np.bool_], n: NDArray[np.int64]) -> list[str]:
        inside = n * self.intervals.lengths
        return [
            f"{self._describe_part(q)} ({n[q]} rows, {inside[q]:.3g} of them in the interval)"
            for q in np.flatnonzero(which)
        ]

    def _ranks(self, scores: Tensor, y: Tensor, group: Tensor, weight: Tensor) -> Ranks:
        """Exact ranks in each set, from one sort."""
        part = self.part(y, group).cpu().numpy()
        used = part >= 0
        z, w = scores[:, 0].cpu().numpy(), weight.cpu().numpy()
        return rank_of_scores(z[used], part[used], w[used], self.n_parts)

    def _describe_part(self, q: Any) -> str:
        return self.space.describe(self.part_of_cell.numpy() == int(q))


def convex_rates(
    constraint: WithinIntervals, scores: Tensor, y: Tensor, group: Tensor, weight: Tensor
) -> list[Tensor]:
    """Means S+ and S- of the convex parts of the steps, each (n_parts, n_columns)."""
    counts = constraint.counts(y, group, weight)[:, None]
    parts = constraint.statistic.convex(scores)
    return [constraint._sum(rows * weight[:, None], y, group) / counts for rows in parts]
