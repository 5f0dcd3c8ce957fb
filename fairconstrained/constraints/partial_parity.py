r"""Partial statistical parity: equal distributions of scores within intervals of percentiles."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairconstrained.arrays import Floats
from fairconstrained.constraints.affine import AffineMap, Entries, LinearMap
from fairconstrained.constraints.moments import NEVER_BINDS, Rows
from fairconstrained.constraints.steps import Above
from fairconstrained.constraints.within_intervals import IntervalParts, WithinIntervals
from fairconstrained.percentiles import Intervals, inside_intervals

_SEARCH_STEPS, _FOUND = 60, 1e-12  # of the search for thresholds with given rates
_CANDIDATES = 1001


class FractionsInside:
    """Comparison of parts by G, the fraction of their rows inside the intervals."""

    @staticmethod
    def middles(intervals: Intervals, half: float, n_grid: int) -> Floats:
        """Levels at which the parts are compared, (n_grid,)."""
        return np.linspace(half, 1.0 - half, n_grid)

    @staticmethod
    def ranks_at(intervals: Intervals, levels: Floats) -> tuple[Floats, Floats]:
        """Lowest and highest rank at these levels in each part, each (n_parts, n_grid)."""
        return intervals.rank(levels)

    @staticmethod
    def units(intervals: Intervals) -> Floats:
        """Factors from differences of ranks to units of the gap, (n_parts,)."""
        return np.asarray(1.0 / intervals.lengths)

    @staticmethod
    def gaps(intervals: Intervals, rank: Floats) -> tuple[Floats, Floats]:
        """How far each part is above and below the others at each threshold."""
        inside = intervals.fraction(rank)
        from_middle = 2.0 * inside - inside.max(axis=0) - inside.min(axis=0)
        return from_middle, -from_middle


class RanksOfThresholds:
    r"""Comparison of parts by the ranks r of all thresholds that lie in the interval of some part.

    Levels c are in :math:`[\alpha - \kappa/2, \beta + \kappa/2]`. Suppose that for every such c
    there is a threshold at which all parts have :math:`|r - c| \le \kappa/2`. Then no two parts
    differ by more than :math:`\kappa` where one of them is inside
    (:func:`fairconstrained.metrics.ccdf_gap`). Methods are as in :class:`FractionsInside`.
    """

    @staticmethod
    def middles(intervals: Intervals, half: float, n_grid: int) -> Floats:
        """Levels that are spread evenly over the neighbourhoods of all intervals."""
        pieces = intervals.upper > intervals.lower
        lower = np.maximum(intervals.lower[pieces] - half, half)
        upper = np.minimum(intervals.upper[pieces] + half, 1.0 - half)
        ends = np.linspace(lower.min(), upper.max(), _CANDIDATES)
        covered = (ends >= lower[..., None]) & (ends <= upper[..., None])
        candidates = ends[covered.any(axis=0)]
        which = np.linspace(0, len(candidates) - 1, n_grid).round().astype(int)
        return np.asarray(candidates[which])

    @staticmethod
    def ranks_at(intervals: Intervals, levels: Floats) -> tuple[Floats, Floats]:
        """The levels themselves."""
        everywhere = np.tile(levels, (len(intervals.lower), 1))
        return everywhere, everywhere

    @staticmethod
    def units(intervals: Intervals) -> Floats:
        """Ones."""
        return np.ones(len(intervals.lower))

    @staticmethod
    def gaps(intervals: Intervals, rank: Floats) -> tuple[Floats, Floats]:
        """Compare a part that is inside with all others, and any other with those inside."""
        inside = inside_intervals(rank, intervals)
        lowest = np.where(inside, rank.min(axis=0), np.where(inside, rank, 1.0).min(axis=0))
        highest = np.where(inside, rank.max(axis=0), np.where(inside, rank, 0.0).max(axis=0))
        return np.maximum(rank - lowest, 0.0), np.maximum(highest - rank, 0.0)


class PartialDistributions(WithinIntervals):
    r"""Equal distributions of scores inside the intervals: gaps of G at most `gap`.

    By Lemma 5.1 of the paper the gap is at most :math:`\kappa` if and only if for every c in
    :math:`[\kappa/2, 1 - \kappa/2]` there is a threshold :math:`\theta_c` at which all parts have
    :math:`|G - c| \le \kappa / 2`. Here c is on a grid, and the thresholds are extra variables. Let
    :math:`a_{cq}, b_{cq}` be the ranks at which G of part q is :math:`c \mp \kappa/2`. The values
    are

    .. math::

        \frac{2}{L_q} (r_q(\theta_c) - b_{cq}), \qquad \frac{2}{L_q} (a_{cq} - r_q(\theta_c))

    for all c and q. This is problem (15) of the paper, with p = a, and with a factor 2 / L that
    brings the values to the units of the gap.

    Hard values are exact. Every threshold belongs to the nearest :math:`\theta_c`. The hard value
    of (c, q) is the maximum over these thresholds of twice the distance by which part q is above
    (or below) the middle of the parts, minus slack. The largest hard value is the gap minus slack.

    Parameters
    ----------
    parts, gap, statistic, name
        As in the base class, with one column of the statistic for each c.
    compared_by : FractionsInside or RanksOfThresholds
        The quantity that is compared. For ranks, replace G by r above.
    """

    def __init__(
        self, parts: IntervalParts, gap: float, statistic: Above, name: str, compared_by: Any
    ):
        super().__init__(parts, gap, statistic, name)
        self.compared_by = compared_by
        self.n_aux = statistic.n_columns
        half = 0.5 * min(gap, 1.0)
        self.grid = compared_by.middles(parts.intervals, half, self.n_aux)
        self.least, self.most = (
            torch.as_tensor(
                compared_by.ranks_at(parts.intervals, np.clip(self.grid + side, 0.0, 1.0))[highest]
            )
            for highest, side in enumerate((-half, half))
        )
        n_values = 2 * self.n_parts * self.n_aux if self.n_parts > 1 else 0
        allowed = self.gap if gap < 1.0 else NEVER_BINDS  # no gap is larger than 1
        self.slack = torch.full((n_values,), allowed, dtype=torch.float64)

    @property
    def difference_of_convex(self) -> bool:
        """True, as steps are."""
        return True

    def on(self, parts: IntervalParts) -> Self:
        """The same constraint on other parts."""
        return type(self)(parts, self.gap, self.statistic, self.name, self.compared_by)

    def statistic_at(self, aux: Tensor) -> Above:
        """Steps at these thresholds."""
        return Above(aux, self.statistic.step, self.statistic.temperature)

    def steps_at(self, aux: Tensor) -> Above:
        """The same as `statistic_at`, because all extra variables are thresholds."""
        return self.statistic_at(aux)

    def loosened(self, by: float) -> Self:
        """The constraint with more slack, and the grid for that slack."""
        looser = self.gap + by
        return type(self)(self.parts, looser, self.statistic, self.name, self.compared_by)

    def narrowed(self, by: Tensor) -> Self:
        """The constraint with less slack, by the largest of `by`: all values share one grid."""
        gap = max(self.gap - float(by.max()), 0.0) if len(by) else self.gap
        return type(self)(self.parts, gap, self.statistic, self.name, self.compared_by)

    def coarse_parts(self, rows: NDArray[np.int64]) -> list[str]:
        """Describe the parts with fewer rows in their intervals than grid points."""
        n = self.parts.n_rows(rows)
        return self.parts.counted(n * self.intervals.lengths < len(self.grid), n)

    def init_aux(self, scores: Tensor, rows: Rows) -> Tensor:
        """Thresholds at which the mean rate of the parts is in the middle of its bounds.

        They are feasible for tied scores if all parts have the same intervals.
        """
        counts = rows._replace(weight=torch.ones_like(scores[:, 0])).counts()
        weight = torch.cat((1.0 / (self.n_parts * counts), counts.new_zeros(1)))[rows.part]
        target = (0.5 * (self.least + self.most)).mean(dim=0).to(scores)
        margin = 40.0 / self.statistic.temperature
        low = scores.new_full((self.n_aux,), float(scores.min()) - margin)
        high = scores.new_full((self.n_aux,), float(scores.max()) + margin)
        theta = 0.5 * (low + high)
        for _ in range(_SEARCH_STEPS):  # Newton steps, or bisection if they leave the bracket
            steps = self.statistic_at(theta)
            soft = steps.soft(scores, rows.y)
            excess = weight @ soft - target
            if float(excess.abs().max()) <= _FOUND:
                break
            low, high = torch.where(excess > 0, theta, low), torch.where(excess > 0, high, theta)
            newton = theta + excess / (weight @ steps.slopes(soft))
            theta = torch.where((newton > low) & (newton < high), newton, 0.5 * (low + high))
        return theta

    def of_moments(self, sums: Tensor, counts: Tensor, aux: Tensor) -> Tensor:
        """Values from the table, first those of upper and then those of lower bounds."""
        rates = sums / counts[:, None]
        return self._values(rates - self.most.to(sums), self.least.to(sums) - rates)

    def affine(self, counts: Tensor) -> AffineMap:
        """The values as an affine map: a rate for each part and column, with both signs."""
        shape = (self.n_parts, self.n_aux)
        rates, scale = (
            own.expand(shape).reshape(-1).diag().cpu().numpy()
            for own in (1.0 / counts[:, None], self._scale(counts))
        )
        combinations = np.concatenate((scale, -scale))[: len(self.slack)]
        return AffineMap(
            LinearMap(Entries.of(combinations)),
            Entries.of(rates).to(counts),
            self.of_moments(counts.new_zeros(shape), counts, counts.new_zeros(0)),
            shape,
        )

    def convex_parts(self, scores: Tensor, rows: Rows, aux: Tensor) -> Tensor:
        """Convex parts, from convex parts of the rates; the first one has the bounds."""
        plus, minus = self.convex_rates(scores, rows, aux)
        first = self._values(plus - self.most.to(plus), minus + self.least.to(plus))
        return torch.stack((first, self._scaled(minus, plus)))

    def hard_values(self, scores: Tensor, rows: Rows, aux: Tensor) -> Tensor:
        """Exact gaps from sorted scores, each at the grid point nearest to its threshold."""
        ranks = self.ranks(scores, rows)
        theta = aux.detach().cpu().numpy()
        gaps = self.compared_by.gaps(self.intervals, ranks.rank)
        sides = [_largest_near(side, ranks.thresholds, theta) for side in gaps]
        values = np.concatenate([side.reshape(-1) for side in sides])[: len(self.slack)]
        return torch.as_tensor(values).to(scores) - self.slack.to(scores)

    def describe(self, j: int) -> str:
        """Words for value j."""
        side, rest = divmod(j, len(self.slack) // 2)
        q, c = divmod(rest, len(self.grid))
        word = ("above", "below")[side]
        return f"{self.name}: {self.parts.describe(q)} {word} the others at {self.grid[c]:.0%}"

    def _values(self, above: Tensor, below: Tensor) -> Tensor:
        return self._scaled(above, below) + min(self.gap, 1.0) - self.slack.to(above)

    def _scaled(self, above: Tensor, below: Tensor) -> Tensor:
        scale = self._scale(above)
        values = torch.cat(((scale * above).reshape(-1), (scale * below).reshape(-1)))
        return values[: len(self.slack)]

    def _scale(self, like: Tensor) -> Tensor:
        units = torch.as_tensor(self.compared_by.units(self.intervals))
        return 2.0 * units.to(like)[:, None]


def _largest_near(
    values: NDArray[np.float64], thresholds: NDArray[np.float64], centres: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The largest value of each row near each centre, (n_rows, n_centres).

    Column i of `values` belongs to all thresholds from thresholds[i] up to the next one.
    """
    order = np.argsort(centres, kind="stable")
    borders = 0.5 * (centres[order][1:] + centres[order][:-1])
    first = np.searchsorted(thresholds, np.concatenate(([-np.inf], borders)), "right") - 1
    stop = np.searchsorted(thresholds, np.concatenate((borders, [np.inf])), "left")
    ends = np.stack((first, stop), axis=1).reshape(-1)
    padded = np.pad(values, ((0, 0), (0, 1)), constant_values=-np.inf)
    largest = np.empty((len(values), len(centres)))
    largest[:, order] = np.maximum.reduceat(padded, ends, axis=1)[:, ::2]
    return largest
