r"""The base of partial constraints: parts of the rows, each with its intervals of ranks.

All values are functions of rates r, the fractions of parts that score above thresholds, through
G(r), the fraction of the rows inside the intervals that score higher
(:mod:`fairconstrained.percentiles`). Hard values are the exact metrics of
:mod:`fairconstrained.metrics`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairconstrained.constraints.moments import NEVER_BINDS, MomentConstraint, Rows
from fairconstrained.constraints.space import Space
from fairconstrained.percentiles import Intervals, Ranks, rank_of_scores


@dataclass(frozen=True, eq=False)
class IntervalParts:
    """Disjoint parts of the rows, each with its union of intervals of ranks.

    Parameters
    ----------
    space : Space
        Of two classes.
    part_of_cell : ndarray of int, (2, n_groups)
        The part of the rows of each label and group; -1 where they are in no part.
    intervals : Intervals
        Of each part.
    """

    space: Space
    part_of_cell: NDArray[np.int64]
    intervals: Intervals

    @property
    def n_parts(self) -> int:
        """Number of parts."""
        return len(self.intervals.lower)

    def describe(self, q: Any) -> str:
        """Words for part q."""
        return self.space.describe(self.part_of_cell == int(q))

    def counted(self, which: NDArray[np.bool_], n: NDArray[np.int64]) -> list[str]:
        """Words for some of the parts with their numbers of rows."""
        inside = n * self.intervals.lengths
        return [
            f"{self.describe(q)} ({n[q]} rows, {inside[q]:.3g} of them in the interval)"
            for q in np.flatnonzero(which)
        ]

    def n_rows(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Number of rows of each part from that of each label and group."""
        return np.array([rows[self.part_of_cell == q].sum() for q in range(self.n_parts)])

    def without(self, which: NDArray[np.bool_]) -> IntervalParts:
        """The other parts, with new numbers."""
        numbers = np.append(np.where(which, -1, np.cumsum(~which) - 1), -1)
        return IntervalParts(self.space, numbers[self.part_of_cell], self.intervals.take(~which))

    def labels(self) -> NDArray[np.int64]:
        """The label of each part, (n_parts,): the first of both where a part has both."""
        first = [np.argwhere(self.part_of_cell == q)[0, 0] for q in range(self.n_parts)]
        return np.array(first, dtype=np.int64)

    def pairs_within_labels(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """All ordered pairs of parts of the same label."""
        label = self.labels()
        same = (label[:, None] == label) & ~np.eye(self.n_parts, dtype=bool)
        first, second = np.nonzero(same)
        return first, second


class WithinIntervals(MomentConstraint):
    """Base of the constraints inside intervals.

    Parameters
    ----------
    parts : IntervalParts
    gap : float
        Largest allowed gap.
    statistic : Above or ScoreBins
    name : str
        The notion, for messages.
    """

    statistic: Any  # Above, or ScoreBins

    def __init__(self, parts: IntervalParts, gap: float, statistic: Any, name: str):
        super().__init__(torch.as_tensor(parts.part_of_cell), statistic, torch.zeros(0), name)
        self.parts = parts
        self.space = parts.space
        self.intervals = parts.intervals
        self.lower, self.upper = (torch.as_tensor(ends) for ends in parts.intervals)
        self.lengths = torch.as_tensor(parts.intervals.lengths)
        self.gap = min(gap, NEVER_BINDS)

    def on(self, parts: IntervalParts) -> Self:
        """The same constraint on other parts."""
        return type(self)(parts, self.gap, self.statistic, self.name)

    def without_small(self, rows: NDArray[np.int64], min_rows: int | str) -> tuple[Self, list[str]]:
        """Drop the parts of too few rows, or without a whole row in their intervals."""
        n = self.parts.n_rows(rows)
        least = [self.least_rows(cells, rows, min_rows) for cells in self.part_cells()]
        small = (n < np.array(least)) | (n * self.intervals.lengths < 1.0)
        if not small.any():
            return self, []
        return self.on(self.parts.without(small)), self.parts.counted(small, n)

    def coarse_parts(self, rows: NDArray[np.int64]) -> list[str]:
        """Parts with fewer rows in their intervals than there are thresholds to tell apart."""
        return []

    def within(self, lower: float, upper: float) -> Self:
        """The same constraint in another interval, one for all parts."""
        lower_, upper_ = (np.full((self.n_parts, 1), end) for end in (lower, upper))
        return self.on(replace(self.parts, intervals=Intervals(lower_, upper_)))

    def ranks(self, scores: Tensor, rows: Rows) -> Ranks:
        """Exact ranks in each part, from one sort."""
        part = rows.part.cpu().numpy()
        used = part < self.n_parts
        z, w = scores[:, 0].cpu().numpy(), rows.weight.cpu().numpy()
        return rank_of_scores(z[used], part[used], w[used], self.n_parts)

    def convex_rates(self, scores: Tensor, rows: Rows, aux: Tensor) -> list[Tensor]:
        """Means S+ and S- of the convex parts of the steps, each (n_parts, n_columns)."""
        counts = rows.counts()[:, None]
        steps: Any = self.statistic_at(aux)  # Above
        return [rows.sum(part) / counts for part in steps.convex(scores)]
