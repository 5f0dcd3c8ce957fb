r"""Partial statistical parity: equal distributions of scores within intervals of percentiles."""

from __future__ import annotations

import copy
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairconstrained.constraints.space import Space
from fairconstrained.constraints.steps import Above
from fairconstrained.constraints.within_intervals import (
    NEVER_BINDS,
    WithinIntervals,
    convex_rates,
)
from fairconstrained.percentiles import Intervals, inside_intervals

__all__ = ["PartialDistributions", "PartialRanks"]

_SEARCH_STEPS, _FOUND = 60, 1e-12  # for thresholds of given rates
_CANDIDATES = 1001


class PartialDistributions(WithinIntervals):
    r"""Equal distributions of scores inside the intervals: gaps of G at most `slack`.

    By Lemma 5.1 of the paper the gap is at most :math:`\kappa` exactly if for every c out of
    :math:`[\kappa/2, 1 - \kappa/2]` there is a threshold :math:`\theta_c` at which all sets have
    :math:`|G - c| \le \kappa / 2`. With c on a grid, the thresholds as extra variables, and the
    ranks :math:`a_{cq}, b_{cq}` at which G of set q is :math:`c \mp \kappa/2`, the values are

    .. math::

        \frac{2}{L_q} (r_q(\theta_c) - b_{cq}), \qquad \frac{2}{L_q} (a_{cq} - r_q(\theta_c))

    for all c and q (problem 15 of the paper, there with p = a and without the factor 2 / L, which
    brings the values to the units of the gap).

    Hard values are exact. Every threshold belongs to the nearest :math:`\theta_c`; the hard value
    of (c, q) is the most, over its thresholds, that set q is above (or below) the middle of the
    sets, doubled, minus slack. The largest of all is the gap minus slack.

    Parameters are those of the base class, with one column of the statistic for each c.
    """

    offsets_matter = False
    difference_of_convex = True
    is_linear = True
    moving = True

    def __init__(
        self,
        space: Space,
        part_of_cell: NDArray[np.int64],
        intervals: Intervals,
        slack: float,
        statistic: Above,
        name: str,
    ):
        n_grid = statistic.n_columns
        super().__init__(space, part_of_cell, intervals, slack, statistic, name, n_aux=n_grid)
        half = 0.5 * min(slack, 1.0)
        self.grid = self._middles(half, n_grid)
        self.least, self.most = (
            torch.as_tensor(self._rank(np.clip(self.grid + side, 0.0, 1.0))[highest])
            for highest, side in enumerate((-half, half))
        )
        compared = 2 * self.n_parts * n_grid if self.n_parts > 1 else 0
        # No gap is larger than 1.
        allowed = self.gap if slack < 1.0 else NEVER_BINDS
        self.slack = torch.full((compared,), allowed, dtype=torch.float64)

    def at(self, aux: Tensor) -> Self:
        """The constraint at these thresholds."""
        bound = copy.copy(self)
        step, temperature = self.statistic.step, self.statistic.temperature
        bound.statistic = Above(aux, step, temperature)
        return bound

    def loosened(self, by: float) -> Self:
        """The constraint with more slack: its grid reaches where sets with larger gaps differ."""
        part, slack = self.part_of_cell.numpy(), self.gap + by
        return type(self)(self.space, part, self.intervals, slack, self.statistic, self.name)

    def coarse_sets(self, rows: NDArray[np.int64]) -> list[str]:
        """Sets with fewer rows in their intervals than the grid has points."""
        n = self._rows_of_parts(rows)
        return self._counted(n * self.intervals.lengths < len(self.grid), n)

    def init_aux(self, scores: Tensor, y: Tensor, group: Tensor) -> Tensor:
        """Thresholds at which the mean rate of the sets is in the middle of its bounds.

        For tied scores and the same intervals everywhere these are feasible.
        """
        counts = self.counts(y, group, torch.ones_like(scores[:, 0]))
        share = torch.cat((1.0 / (self.n_parts * counts), counts.new_zeros(1)))[self.bins(y, group)]
        target = (0.5 * (self.least + self.most)).mean(dim=0).to(scores)
        margin = 40.0 / self.statistic.temperature
        low = scores.new_full((self.n_aux,), float(scores.min()) - margin)
        high = scores.new_full((self.n_aux,), float(scores.max()) + margin)
        theta = 0.5 * (low + high)
        for _ in range(_SEARCH_STEPS):  # Newton steps, halving where they leave what is known
            statistic = self.at(theta).statistic
            soft = statistic.soft(scores, y)
            excess = share @ soft - target
            if float(excess.abs().max()) <= _FOUND:
                break
            low, high = torch.where(excess > 0, theta, low), torch.where(excess > 0, high, theta)
            newton = theta + excess / (share @ statistic.slopes(soft))
            theta = torch.where((newton > low) & (newton < high), newton, 0.5 * (low + high))
        return theta

    def of_moments(self, sums: Tensor, counts: Tensor, aux: Tensor) -> Tensor:
        """Values from the table: all upper bounds, then all lower ones."""
        rates = sums / counts[:, None]
        return self._values(rates - self.most.to(sums), self.least.to(sums) - rates)

    def convex_parts(
        self, scores: Tensor, y: Tensor, group: Tensor, weight: Tensor, aux: Tensor
    ) -> Tensor:
        """A rate is a difference of convex rates; bounds are constants of the first part."""
        plus, minus = convex_rates(self.at(aux), scores, y, group, weight)
        first = self._values(plus - self.most.to(plus), minus + self.least.to(plus))
        return torch.stack((first, self._scaled(minus, plus)))

    def hard_values(
        self, scores: Tensor, y: Tensor, group: Tensor, weight: Tensor, aux: Tensor
    ) -> Tensor:
        """Exact gaps from sorted scores, by the grid point next to each threshold."""
        ranks = self._ranks(scores, y, group, weight)
        theta = aux.detach().cpu().numpy()
        sides = [_largest_near(side, ranks.thresholds, theta) for side in self._gaps(ranks.rank)]
        values = np.concatenate([side.reshape(-1) for side in sides])[: len(self.slack)]
        return torch.as_tensor(values).to(scores) - self.slack.to(scores)

    def describe(self, j: int) -> str:
        """Words for value j."""
        side, rest = divmod(j, len(self.slack) // 2)
        q, c = divmod(rest, len(self.grid))
        word = ("above", "below")[side]
        return f"{self.name}: {self._describe_part(q)} {word} the others at {self.grid[c]:.0%}"

    def _values(self, above: Tensor, below: Tensor) -> Tensor:
        return self._scaled(above, below) + min(self.gap, 1.0) - self.slack.to(above)

    def _scaled(self, above: Tensor, below: Tensor) -> Tensor:
        scale = 2.0 * self._units().to(above)[:, None]
        values = torch.cat(((scale * above).reshape(-1), (scale * below).reshape(-1)))
        return values[: len(self.slack)]

    def _middles(self, half: float, n_grid: int) -> NDArray[np.float64]:
        """Where the sets are compared."""
        return np.linspace(half, 1.0 - half, n_grid)

    def _rank(self, share: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Lowest and highest rank of these shares in each set, (n_sets, n_grid)."""
        return self.intervals.rank(share)

    def _units(self) -> Tensor:
        """What a difference of ranks is in the units of the gap."""
        units: Tensor = 1.0 / self.lengths
        return units

    def _gaps(self, rank: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
        """How far each set is above and below the others, at each threshold."""
        shares = self.intervals.share(rank)
        from_middle = 2.0 * shares - shares.max(axis=0) - shares.min(axis=0)
        return from_middle, -from_middle


class PartialRanks(PartialDistributions):
    r"""Equal ranks of every threshold that lies in some set's interval: gaps at most `slack`.

    The same with r in place of G, at middles c out of
    :math:`[\alpha - \kappa/2, \beta + \kappa/2]`: if for every such c there is a threshold at which
    all sets have :math:`|r - c| \le \kappa/2`, no two sets differ by more where one of them is
    inside (:func:`fairconstrained.metrics.ccdf_gap`).
    """

    def _middles(self, half: float, n_grid: int) -> NDArray[np.float64]:
        pieces = self.intervals.upper > self.intervals.lower
        lower = np.maximum(self.intervals.lower[pieces] - half, half)
        upper = np.minimum(self.intervals.upper[pieces] + half, 1.0 - half)
        ends = np.linspace(lower.min(), upper.max(), _CANDIDATES)
        covered = (ends >= lower[..., None]) & (ends <= upper[..., None])
        candidates = ends[covered.any(axis=0)]
        which = np.linspace(0, len(candidates) - 1, n_grid).round().astype(int)
        middles: NDArray[np.float64] = candidates[which]
        return middles

    def _rank(self, share: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        everywhere = np.tile(share, (self.n_parts, 1))
        return everywhere, everywhere

    def _units(self) -> Tensor:
        return torch.ones_like(self.lengths)

    def _gaps(self, rank: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
        inside = inside_intervals(rank, self.intervals)
        # A set inside is compared with all others, one outside with those inside.
        lowest = np.where(inside, rank.min(axis=0), np.where(inside, rank, 1.0).min(axis=0))
        highest = np.where(inside, rank.max(axis=0), np.where(inside, rank, 0.0).max(axis=0))
        return np.maximum(rank - lowest, 0.0), np.maximum(highest - rank, 0.0)


def _largest_near(
    values: NDArray[np.float64], thresholds: NDArray[np.float64], centres: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The largest of each row's values near each centre, (n_rows, n_centres).

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
