r"""Partial parity on given labels and groups: constraints within intervals of percentiles.

The parts are sets of rows with the same group (and label), each with its union of intervals of
ranks. With the rate r of a set's scores above a threshold, and the share G(r) of the rows inside
the intervals (:mod:`fairconstrained.percentiles`), all values are functions of such rates. Hard
values are the exact metrics of :mod:`fairconstrained.metrics`.

Notions, as users write them, are in :mod:`fairconstrained.constraints.partial_notions`.
"""

from __future__ import annotations

import copy
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairconstrained.constraints.moments import BoundConstraint, Space
from fairconstrained.constraints.steps import Above
from fairconstrained.percentiles import (
    Intervals,
    Ranks,
    auc_inside,
    rank_of_scores,
    share,
)

__all__ = ["PartialDistributions", "PartialGroupAUCs", "PartialRates"]

_NEVER_BINDS = 1e6
_BISECTIONS = 60


class _WithinIntervals(BoundConstraint):
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
    statistic : Above
    name : str
        The notion, for messages.
    n_aux : int, default=0
    """

    statistic: Above

    def __init__(
        self,
        space: Space,
        part_of_cell: NDArray[np.int64],
        intervals: Intervals,
        slack: float,
        statistic: Above,
        name: str,
        n_aux: int = 0,
    ):
        super().__init__(torch.as_tensor(part_of_cell), statistic, n_aux)
        self.space = space
        self.intervals = intervals
        self.lower, self.upper = (torch.as_tensor(ends) for ends in intervals)
        self.lengths = torch.as_tensor(intervals.lengths)
        self.name = name
        self.gap = min(slack, _NEVER_BINDS)

    def without_small(self, rows: NDArray[np.int64], min_rows: int) -> tuple[Self, list[str]]:
        """Drop the sets of too few rows, or without a whole row in their intervals."""
        part = self.part_of_cell.numpy()
        n = np.array([rows[part == q].sum() for q in range(self.n_parts)])
        inside = n * self.intervals.lengths
        small = (n < max(min_rows, 1)) | (inside < 1.0)
        if not small.any():
            return self, []
        dropped = [
            f"{self._describe_part(q)} ({int(n[q])} rows, {inside[q]:.3g} of them in the interval)"
            for q in np.flatnonzero(small)
        ]
        renumbered = np.where(small, -1, np.cumsum(~small) - 1)
        kept = np.where(part >= 0, renumbered[part], -1)
        return self._on(kept, self.intervals.take(~small)), dropped

    def _on(self, part_of_cell: NDArray[np.int64], intervals: Intervals) -> Self:
        """The same constraint on other sets."""
        raise NotImplementedError

    def _ranks(self, scores: Tensor, y: Tensor, group: Tensor, weight: Tensor) -> Ranks:
        """Exact ranks in each set, from one sort."""
        part = self.part(y, group).cpu().numpy()
        used = part >= 0
        z, w = scores[:, 0].cpu().numpy(), weight.cpu().numpy()
        return rank_of_scores(z[used], part[used], w[used], self.n_parts)

    def _describe_part(self, q: Any) -> str:
        return self.space.describe(self.part_of_cell.numpy() == int(q))


class PartialDistributions(_WithinIntervals):
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
        self.grid = np.linspace(half, 1.0 - half, n_grid)
        self.least, self.most = (
            torch.as_tensor(intervals.rank(np.clip(self.grid + side, 0.0, 1.0))[highest])
            for highest, side in enumerate((-half, half))
        )
        compared = 2 * self.n_parts * n_grid if self.n_parts > 1 else 0
        # No gap is larger than 1.
        allowed = self.gap if slack < 1.0 else _NEVER_BINDS
        self.slack = torch.full((compared,), allowed, dtype=torch.float64)

    def at(self, aux: Tensor) -> Self:
        """The constraint at these thresholds."""
        bound = copy.copy(self)
        step, temperature = self.statistic.step, self.statistic.temperature
        bound.statistic = Above(aux, step, temperature)
        return bound

    def init_aux(self, scores: Tensor, y: Tensor, group: Tensor) -> Tensor:
        """Thresholds at which the mean rate of the sets is in the middle of its bounds.

        For tied scores and the same intervals everywhere these are feasible.
        """
        weight = torch.ones_like(scores[:, 0])
        counts = self.counts(y, group, weight)
        target = (0.5 * (self.least + self.most)).mean(dim=0).to(scores)
        margin = 40.0 / self.statistic.temperature
        low = scores.new_full((self.n_aux,), float(scores.min()) - margin)
        high = scores.new_full((self.n_aux,), float(scores.max()) + margin)
        for _ in range(_BISECTIONS):
            middle = 0.5 * (low + high)
            rates = self.at(middle).sums(scores, y, group, weight) / counts[:, None]
            above = rates.mean(dim=0) > target
            low, high = torch.where(above, middle, low), torch.where(above, high, middle)
        return 0.5 * (low + high)

    def of_moments(self, sums: Tensor, counts: Tensor, aux: Tensor) -> Tensor:
        """Values from the table: all upper bounds, then all lower ones."""
        rates = sums / counts[:, None]
        return self._values(rates - self.most.to(sums), self.least.to(sums) - rates)

    def convex_parts(
        self, scores: Tensor, y: Tensor, group: Tensor, weight: Tensor, aux: Tensor
    ) -> Tensor:
        """A rate is a difference of convex rates; bounds are constants of the first part."""
        plus, minus = _convex_rates(self.at(aux), scores, y, group, weight)
        first = self._values(plus - self.most.to(plus), minus + self.least.to(plus))
        return torch.stack((first, self._scaled(minus, plus)))

    def hard_values(
        self, scores: Tensor, y: Tensor, group: Tensor, weight: Tensor, aux: Tensor
    ) -> Tensor:
        """Exact gaps from sorted scores, by the grid point next to each threshold."""
        ranks = self._ranks(scores, y, group, weight)
        shares = self.intervals.share(ranks.rank)
        from_middle = 2.0 * shares - shares.max(axis=0) - shares.min(axis=0)
        theta = aux.detach().cpu().numpy()
        sides = [
            _largest_near(side, ranks.thresholds, theta) for side in (from_middle, -from_middle)
        ]
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
        scale = 2.0 / self.lengths.to(above)[:, None]
        values = torch.cat(((scale * above).reshape(-1), (scale * below).reshape(-1)))
        return values[: len(self.slack)]

    def _on(self, part_of_cell: NDArray[np.int64], intervals: Intervals) -> Self:
        return type(self)(self.space, part_of_cell, intervals, self.gap, self.statistic, self.name)


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


class _Pairs(_WithinIntervals):
    """Base: one value for each ordered pair of sets of the same label."""

    def __init__(
        self,
        space: Space,
        part_of_cell: NDArray[np.int64],
        intervals: Intervals,
        slack: float,
        statistic: Above,
        name: str,
    ):
        super().__init__(space, part_of_cell, intervals, slack, statistic, name)
        # A set that spans both labels is found under the first.
        label = np.array([np.argwhere(part_of_cell == q)[0, 0] for q in range(self.n_parts)])
        same = (label[:, None] == label) & ~np.eye(self.n_parts, dtype=bool)
        self.first, self.second = (torch.as_tensor(index) for index in np.nonzero(same))
        self.slack = torch.full((len(self.first),), self.gap, dtype=torch.float64)

    def describe(self, j: int) -> str:
        """Words for value j."""
        sides = (self._describe_part(side[j]) for side in (self.first, self.second))
        return f"{self.name}: " + " against ".join(sides)


class PartialRates(_Pairs):
    r"""Equal rates of positive decisions inside the intervals (problems 21, 50 and 56).

    For every ordered pair of sets of the same label, at the decision threshold,

    .. math:: \tilde G_q(r_q) - \tilde G_{q'}(r_{q'}) - \mathrm{slack}, \qquad
              \tilde G(r) = G(r) + \mathrm{leak} \, (r / L - G(r)) .

    Hard values are those of G. Where both rates are outside of their intervals, G is flat and a
    violated constraint says nothing of how to mend it; the leak keeps a direction, and solvers that
    follow the hard values undo its bias.

    Parameters
    ----------
    space, part_of_cell, intervals, slack, statistic, name
        As in the base class; one column of the statistic, for the decision threshold.
    leak : float
        Slope of soft shares outside of the intervals, relative to that inside. Paper: 0.
    """

    difference_of_convex = True

    def __init__(
        self,
        space: Space,
        part_of_cell: NDArray[np.int64],
        intervals: Intervals,
        slack: float,
        statistic: Above,
        name: str,
        leak: float,
    ):
        super().__init__(space, part_of_cell, intervals, slack, statistic, name)
        self.leak = leak

    def of_moments(self, sums: Tensor, counts: Tensor, aux: Tensor) -> Tensor:
        """Values from the table, (m,)."""
        rates = sums / counts[:, None]
        inside = share(rates, self.lower.to(sums), self.upper.to(sums))
        leaking = inside + self.leak * (rates / self.lengths.to(sums)[:, None] - inside)
        return self._differences(leaking[:, 0]) - self.slack.to(sums)

    def hard_values(
        self, scores: Tensor, y: Tensor, group: Tensor, weight: Tensor, aux: Tensor
    ) -> Tensor:
        """Values of G, without the leak."""
        counts = self.counts(y, group, weight)
        rates = self.hard_sums(scores, y, group, weight) / counts[:, None]
        inside = share(rates, self.lower.to(scores), self.upper.to(scores))
        return self._differences(inside[:, 0]) - self.slack.to(scores)

    def convex_parts(
        self, scores: Tensor, y: Tensor, group: Tensor, weight: Tensor, aux: Tensor
    ) -> Tensor:
        r"""By min(S+ - S-, a) = S+ + a - max(S- + a, S+), with the means S of convex steps.

        (Appendix D.3, where a factor 1 / n is missing.)
        """
        plus, minus = _convex_rates(self, scores, y, group, weight)
        scale = 1.0 / self.lengths.to(plus)[:, None]
        ends = (self.upper.to(plus), self.lower.to(plus))
        highest = [torch.maximum(minus + end, plus).sum(1, keepdim=True) for end in ends]
        leak = self.leak * scale
        # min(r, upper) - min(r, lower) = upper - lower + (max at lower) - (max at upper)
        rising = (1.0 - self.leak) * (scale * highest[1] + 1.0) + leak * plus
        falling = (1.0 - self.leak) * scale * highest[0] + leak * minus
        first, second = self.first.to(plus.device), self.second.to(plus.device)
        return torch.stack(
            (
                (rising[first] + falling[second])[:, 0] - self.slack.to(plus),
                (falling[first] + rising[second])[:, 0],
            )
        )

    def _differences(self, by_part: Tensor) -> Tensor:
        return by_part[self.first.to(by_part.device)] - by_part[self.second.to(by_part.device)]

    def _on(self, part_of_cell: NDArray[np.int64], intervals: Intervals) -> Self:
        return type(self)(
            *(self.space, part_of_cell, intervals, self.gap, self.statistic, self.name, self.leak)
        )


class PartialGroupAUCs(_Pairs):
    r"""AUCs between the groups' scores inside the intervals, at most `slack` from 1/2.

    Scores are binned by fixed thresholds: with the shares of G in each bin,
    :math:`m_b = G(r(t_b)) - G(r(t_{b+1}))`, rows of the same bin count as tied. Against the AUC
    without bins the error is at most :math:`\frac12 \sum_b m_{gb} m_{hb}` for steps that are
    indicators. Hard values are exact.

    Parameters are those of the base class, with ascending thresholds in the statistic.
    """

    offsets_matter = False

    def of_moments(self, sums: Tensor, counts: Tensor, aux: Tensor) -> Tensor:
        """Values from the table, (m,)."""
        rates = sums / counts[:, None]
        everybody, nobody = torch.ones_like(rates[:, :1]), torch.zeros_like(rates[:, :1])
        bins = torch.cat((everybody, rates, nobody), dim=1)
        aucs = auc_inside(share(bins, self.lower.to(sums), self.upper.to(sums)))
        return self._of_aucs(aucs)

    def hard_values(
        self, scores: Tensor, y: Tensor, group: Tensor, weight: Tensor, aux: Tensor
    ) -> Tensor:
        """Exact AUCs from sorted scores."""
        shares = self.intervals.share(self._ranks(scores, y, group, weight).rank)
        return self._of_aucs(torch.as_tensor(auc_inside(shares)).to(scores))

    def _of_aucs(self, aucs: Tensor) -> Tensor:
        pairs = aucs[self.first.to(aucs.device), self.second.to(aucs.device)]
        return pairs - 0.5 - self.slack.to(aucs)

    def _on(self, part_of_cell: NDArray[np.int64], intervals: Intervals) -> Self:
        return type(self)(self.space, part_of_cell, intervals, self.gap, self.statistic, self.name)


def _convex_rates(
    constraint: _WithinIntervals, scores: Tensor, y: Tensor, group: Tensor, weight: Tensor
) -> list[Tensor]:
    """Means S+ and S- of the convex parts of the steps, each (n_parts, n_columns)."""
    counts = constraint.counts(y, group, weight)[:, None]
    parts = constraint.statistic.convex(scores)
    return [constraint._sum(rows * weight[:, None], y, group) / counts for rows in parts]
