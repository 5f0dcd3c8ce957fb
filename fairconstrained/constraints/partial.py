r"""Constraints inside intervals of ranks: parts of the rows, each with its intervals.

All values are functions of rates r, the fractions of parts that score above thresholds, through
G(r), the fraction of the rows inside the intervals that score higher
(:mod:`fairconstrained.percentiles`). Hard values are the exact metrics of
:mod:`fairconstrained.metrics`.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairconstrained import percentiles
from fairconstrained.arrays import Floats, in_rows
from fairconstrained.constraints.affine import AffineMap, Combinations
from fairconstrained.constraints.moments import NEVER_BINDS, MomentConstraint, compared_rates
from fairconstrained.constraints.steps import Above
from fairconstrained.constraints.tables import Placement, Space
from fairconstrained.numerics import ROUNDING


class WithinIntervals(MomentConstraint):
    """Base of constraints inside intervals, which compare all ordered pairs of parts of a label.

    `part` (2, n_groups) is the part of the rows of each of two labels and of each group, -1 for
    none; `intervals` has a union of intervals of ranks for each part, and `gap` is the largest gap
    allowed. Each pair has `n_thresholds` values.
    """

    statistic: Any  # Above, or ScoreBins
    _extra: ClassVar[tuple[str, ...]] = ()  # further arguments of a subclass

    def __init__(
        self,
        space: Space,
        part: NDArray[np.int64],
        intervals: percentiles.Intervals,
        gap: float,
        statistic: Any,
        name: str,
        n_thresholds: int = 1,
    ):
        super().__init__(space, torch.as_tensor(part), statistic, torch.zeros(0), name)
        self.intervals = intervals
        self.lower, self.upper = (torch.as_tensor(ends) for ends in intervals)
        self.lengths = torch.as_tensor(intervals.lengths)
        self.gap = min(gap, NEVER_BINDS)
        # The label of each part: the first of both where a part has both.
        first = [np.argwhere(cells)[0, 0] for cells in self.partition.cells()]
        self.label = np.array(first, dtype=np.int64)
        same = (self.label[:, None] == self.label) & ~np.eye(self.n_parts, dtype=bool)
        self.first, self.second = map(torch.as_tensor, np.nonzero(same))
        self._n_thresholds = n_thresholds
        # The base class has set none, since the values follow from its parts.
        self.slack = torch.full((len(self.first) * n_thresholds,), self.gap, dtype=torch.float64)

    def _made(self, **changes: Any) -> Self:
        """Copy the constraint with other arguments."""
        names = ("space", "intervals", "gap", "statistic", "name", *self._extra)
        arguments = {name: getattr(self, name) for name in names}
        return type(self)(**({"part": self.partition.part_of_cell.numpy(), **arguments} | changes))

    def without_small(self, rows: NDArray[np.int64], min_rows: int | str) -> tuple[Self, list[str]]:
        """Drop parts that are not compared, or without a whole row in their intervals."""
        cells = sp.csr_array(np.array(self.partition.cells(), dtype=int).reshape(self.n_parts, -1))
        comparison, _ = compared_rates(self.space, cells, rows, min_rows, self.slack)
        # Without a whole row in the interval a single rank decides whether there is any.
        small = ~comparison.enough | (comparison.rows * self.intervals.lengths < 1.0)
        n_kept = np.bincount(self.label[~small], minlength=2)
        # Parts that have no other part of their label left to be compared with.
        comparison = comparison._replace(alone=~small & (n_kept[self.label] < 2))
        dropped = small | comparison.alone
        if not dropped.any():
            return self, []
        # The last number is looked up by cells in no part, whose part is -1.
        numbers = np.append(np.where(dropped, -1, np.cumsum(~dropped) - 1), -1)
        part = numbers[self.partition.part_of_cell.numpy()]
        remaining = self._made(part=part, intervals=self.intervals.take(~dropped))
        alone = comparison._replace(rows=np.where(small, comparison.least, comparison.rows))
        return remaining, self._counted(small, comparison.rows) + alone.left_out(self._words)

    def coarse_parts(self, rows: NDArray[np.int64]) -> list[str]:
        """Describe parts with fewer rows in their intervals than thresholds; by default none."""
        return []

    def within(self, lower: float, upper: float) -> Self:
        """Return the constraint in another interval, the same for all parts."""
        ends = (np.full((self.n_parts, 1), end) for end in (lower, upper))
        return self._made(intervals=percentiles.Intervals(*ends))

    def ranks(self, scores: Tensor, rows: Placement) -> percentiles.Ranks:
        """Compute exact ranks in each part, with one sort."""
        # Ranks are of whole rows: a row with fractions of several parts stands in each of them.
        row, copies = rows.copies()
        part = copies.part.cpu().numpy()
        used = part < self.n_parts
        z, w = scores[row, 0].cpu().numpy(), copies.weight.cpu().numpy()
        return percentiles.rank_of_scores(z[used], part[used], w[used], self.n_parts)

    def describe(self, j: int) -> str:
        pair, threshold = divmod(j, self._n_thresholds)
        first, second = (self._words(side[pair]) for side in (self.first, self.second))
        words = f"{self.name}: {first} against {second}"
        if self._n_thresholds > 1:
            words += f" at threshold {1 + threshold} of {self._n_thresholds}"
        return words

    def convex_rates(self, scores: Tensor, rows: Placement, aux: Tensor) -> list[Tensor]:
        """Return means S+ and S- of the convex parts of the steps, each (n_parts, n_columns)."""
        counts = rows.counts()[:, None]
        steps: Any = self.statistic_at(aux)  # Above
        return [rows.sum(part) / counts for part in steps.convex(scores)]

    def _words(self, part: Any) -> str:
        return self.space.describe(self.partition.part_of_cell.numpy() == int(part))

    def _counted(self, which: NDArray[np.bool_], n: NDArray[np.int64]) -> list[str]:
        """Describe some of the parts, with their numbers of rows."""
        n = np.maximum(n, 0)  # a released number may be negative
        words, inside = "{} ({}, {:.3g} of them in the interval)", n * self.intervals.lengths
        some = np.flatnonzero(which)
        return [words.format(self._words(q), in_rows(n[q]), inside[q]) for q in some]


class PartialRates(WithinIntervals):
    r"""Equal rates above thresholds inside the intervals (problems 21, 50 and 56).

    For every ordered pair of parts of the same label, and every threshold t,

    .. math::

        \tilde G_q(r_q(t)) - \tilde G_{q'}(r_{q'}(t)) - \mathrm{slack}, \qquad
        \tilde G(r) = G(r) + \mathrm{leak} \, (r / L - G(r)) .

    Hard values use G itself. Where both rates are outside their intervals, G is flat and a violated
    constraint has no gradient. The leak adds one. Solvers that follow the hard values correct its
    bias.

    With :class:`Above` a row adds to one column for each threshold. With :class:`ScoreBins` it adds
    1 in all to the table for any number of thresholds, as private training needs. Paper: no leak.
    """

    _extra = ("leak",)

    def __init__(self, *parts: Any, leak: float, **named: Any):
        steps = named["statistic"]
        named["n_thresholds"] = steps.above(torch.zeros(1, steps.n_columns)).shape[1]
        super().__init__(*parts, **named)
        self.leak = leak
        self.difference_of_convex = isinstance(steps, Above)

    def evaluate(self, sums: Tensor, counts: Tensor, aux: Tensor) -> Tensor:
        return self._differences(sums, counts, self.leak)

    def evaluate_hard(self, sums: Tensor, counts: Tensor, aux: Tensor) -> Tensor:
        return self._differences(sums, counts, 0.0)

    def _differences(self, sums: Tensor, counts: Tensor, leak: float) -> Tensor:
        rates: Tensor = self.statistic.above(sums) / counts[:, None]
        inside: Tensor = percentiles.fraction_inside(
            rates, self.lower.to(rates), self.upper.to(rates)
        )
        leaky = inside + leak * (rates / self.lengths.to(rates)[:, None] - inside)
        first, second = self.first.to(rates.device), self.second.to(rates.device)
        return (leaky[first] - leaky[second]).reshape(-1) - self.slack.to(rates)

    def convex_parts(self, scores: Tensor, rows: Placement, aux: Tensor) -> Tensor:
        """Split by min(S+ - S-, a) = S+ + a - max(S- + a, S+) for means S of convex steps."""
        # See Appendix D.3 of the paper, where a factor 1 / n is missing.
        plus, minus = self.convex_rates(scores, rows, aux)
        scale = 1.0 / self.lengths.to(plus)[:, None]
        ends = (self.upper.to(plus), self.lower.to(plus))
        highest = [torch.maximum(minus + end, plus).sum(1, keepdim=True) for end in ends]
        leak = self.leak * scale
        # min(r, upper) - min(r, lower) = upper - lower + (max at lower) - (max at upper)
        rising = (1.0 - self.leak) * (scale * highest[1] + 1.0) + leak * plus
        falling = (1.0 - self.leak) * scale * highest[0] + leak * minus
        first, second = self.first.to(plus.device), self.second.to(plus.device)
        up, down = rising[first] + falling[second], falling[first] + rising[second]
        return torch.stack((up[:, 0] - self.slack.to(plus), down[:, 0]))


class PartialGroupAUCs(WithinIntervals):
    r"""AUCs between the scores of two parts inside the intervals, at most `gap` from 1/2.

    Fixed thresholds divide scores into bins, and rows of the same bin count as tied. Bin b holds
    the fraction :math:`m_b = G(r(t_b)) - G(r(t_{b+1}))` of a part. For steps that are indicators,
    the error of the AUC is at most :math:`\frac12 \sum_b m_{gb} m_{hb}`. Hard values are exact.
    The thresholds of the statistic ascend.
    """

    def evaluate(self, sums: Tensor, counts: Tensor, aux: Tensor) -> Tensor:
        rates = sums / counts[:, None]
        ones, zeros = torch.ones_like(rates[:, :1]), torch.zeros_like(rates[:, :1])
        edges = torch.cat((ones, rates, zeros), dim=1)
        inside = percentiles.fraction_inside(edges, self.lower.to(sums), self.upper.to(sums))
        return self._centred(percentiles.auc_inside(inside))

    def hard_values(self, scores: Tensor, rows: Placement, aux: Tensor) -> Tensor:
        inside = self.intervals.fraction(self.ranks(scores, rows).rank)
        return self._centred(torch.as_tensor(percentiles.auc_inside(inside)).to(scores))

    def _centred(self, aucs: Tensor) -> Tensor:
        pairs = aucs[self.first.to(aucs.device), self.second.to(aucs.device)]
        return pairs - 0.5 - self.slack.to(aucs)


class Grid(NamedTuple):
    """Levels at which parts are compared."""

    levels: Floats  # (n_grid,)
    least: Floats  # (n_parts, n_grid): lowest rank of each part
    most: Floats  # and highest
    units: Floats  # (n_parts,): from differences of ranks to units of the gap


class FractionsInside:
    """Comparison of parts by G, the fraction of their rows inside the intervals."""

    @staticmethod
    def grid(intervals: percentiles.Intervals, half: float, n_grid: int) -> Grid:
        """Return levels of G, and the ranks at which parts are `half` of the gap away from them."""
        # Beyond these levels a neighbourhood of half the gap reaches the end, and holds by itself.
        levels = np.linspace(half, 1.0 - half, n_grid)
        least, _ = intervals.rank(np.clip(levels - half, 0.0, 1.0))
        _, most = intervals.rank(np.clip(levels + half, 0.0, 1.0))
        return Grid(levels, least, most, 1.0 / intervals.lengths)

    @staticmethod
    def gaps(intervals: percentiles.Intervals, rank: Floats) -> tuple[Floats, Floats]:
        """Return how far each part is above and below the others at each threshold."""
        inside = intervals.fraction(rank)
        # Twice the distance from the middle of the extremes: its largest value is their difference.
        from_middle = 2.0 * inside - inside.max(axis=0) - inside.min(axis=0)
        return from_middle, -from_middle


class RanksOfThresholds:
    r"""Comparison of parts by the ranks r of all thresholds that lie in the interval of some part.

    Levels c are in :math:`[\alpha - \kappa/2, \beta + \kappa/2]`. Suppose that for every such c
    there is a threshold at which all parts have :math:`|r - c| \le \kappa/2`. Then no two parts
    differ by more than :math:`\kappa` where one of them is inside
    (:func:`fairconstrained.metrics.ccdf_gap`).
    """

    @staticmethod
    def grid(intervals: percentiles.Intervals, half: float, n_grid: int) -> Grid:
        """Return ranks as levels, spread evenly over the neighbourhoods of all intervals."""
        pieces = intervals.upper > intervals.lower
        lower = np.maximum(intervals.lower[pieces] - half, half)
        upper = np.minimum(intervals.upper[pieces] + half, 1.0 - half)
        # A thousandth of the range, which one row moves in tables of a thousand rows.
        ends = np.linspace(lower.min(initial=1.0), upper.max(initial=0.0), 1001)
        covered = (ends >= lower[..., None]) & (ends <= upper[..., None])
        # Without parts any level will do.
        candidates = ends[covered.any(axis=0) | ~pieces.any()]
        levels = candidates[np.linspace(0, len(candidates) - 1, n_grid).round().astype(int)]
        n_parts = len(intervals.lower)
        least, most = (
            np.tile(np.clip(levels + side, 0.0, 1.0), (n_parts, 1)) for side in (-half, half)
        )
        return Grid(levels, least, most, np.ones(n_parts))

    @staticmethod
    def gaps(intervals: percentiles.Intervals, rank: Floats) -> tuple[Floats, Floats]:
        """Return how far each part is above and below others, where one of the two is inside."""
        inside = intervals.may_contain(rank, rank)
        lowest = np.where(inside, rank.min(axis=0), np.where(inside, rank, 1.0).min(axis=0))
        highest = np.where(inside, rank.max(axis=0), np.where(inside, rank, 0.0).max(axis=0))
        return np.maximum(rank - lowest, 0.0), np.maximum(highest - rank, 0.0)


class PartialDistributions(WithinIntervals):
    r"""Equal distributions of scores inside the intervals: gaps of G at most `gap`.

    By Lemma 5.1 of the paper the gap is at most :math:`\kappa` if and only if for every c in
    :math:`[\kappa/2, 1 - \kappa/2]` there is a threshold :math:`\theta_c` at which all parts have
    :math:`|G - c| \le \kappa / 2`. Here c is on a grid, and the thresholds are extra variables. Let
    :math:`a_{cq}, b_{cq}` be the ranks at which G of part q is :math:`c \mp \kappa/2`. The values
    :math:`2 (r_q(\theta_c) - b_{cq}) / L_q` and :math:`2 (a_{cq} - r_q(\theta_c)) / L_q` for all c
    and q are the constraints of problem (15) of the paper, with p = a, in units of the gap.

    Hard values are exact. Every threshold belongs to the nearest :math:`\theta_c`. The hard value
    of (c, q) is the maximum over these thresholds of twice the distance by which part q is above
    (or below) the middle of the parts, minus slack. The largest hard value is the gap minus slack.

    The statistic has one column for each c. With `compared_by` :class:`RanksOfThresholds` instead
    of :class:`FractionsInside`, replace G by r above.
    """

    _extra = ("compared_by",)
    difference_of_convex = True

    def __init__(self, *parts: Any, compared_by: Any, **named: Any):
        super().__init__(*parts, **named)
        self.compared_by, self.n_aux = compared_by, self.statistic.n_columns
        grid = compared_by.grid(self.intervals, 0.5 * min(self.gap, 1.0), self.n_aux)
        self.grid = grid.levels
        self.least, self.most = torch.as_tensor(grid.least), torch.as_tensor(grid.most)
        self._scale = 2.0 * torch.as_tensor(grid.units)[:, None]
        n_values = 2 * self.n_parts * self.n_aux if self.n_parts > 1 else 0
        allowed = self.gap if self.gap < 1.0 else NEVER_BINDS  # no gap is larger than 1
        self.slack = torch.full((n_values,), allowed, dtype=torch.float64)

    def statistic_at(self, aux: Tensor) -> Above:
        return Above(aux, self.statistic.step, self.statistic.temperature)

    def loosened(self, by: float) -> Self:
        return self._made(gap=self.gap + by)

    def narrowed(self, by: Tensor) -> Self:
        """Reduce the slack by the largest of `by`, since all values share one grid."""
        return self._made(gap=max(self.gap - float(by.max()), 0.0) if len(by) else self.gap)

    def coarse_parts(self, rows: NDArray[np.int64]) -> list[str]:
        n = np.array([rows[cells].sum() for cells in self.partition.cells()])
        return self._counted(n * self.intervals.lengths < len(self.grid), n)

    def init_aux(self, scores: Tensor, rows: Placement) -> Tensor:
        """Return thresholds at which the mean rate of the parts is in the middle of its bounds."""
        # They are feasible for tied scores if all parts have the same intervals.
        # Each part counts the same, however many rows it has: the mean of their rates.
        weight = (1.0 / (self.n_parts * rows.counts())) @ rows.weights()
        target = (0.5 * (self.least + self.most)).mean(dim=0).to(scores)
        margin = 40.0 / self.statistic.temperature  # beyond it steps are 0 or 1, up to rounding
        low = scores.new_full((self.n_aux,), float(scores.min()) - margin)
        high = scores.new_full((self.n_aux,), float(scores.max()) + margin)
        theta = 0.5 * (low + high)
        for _ in range(60):  # Newton steps, or bisection if they leave the bracket
            steps = self.statistic_at(theta)
            soft = steps.soft(scores, rows.y)
            excess = weight @ soft - target
            if float(excess.abs().max()) <= ROUNDING:
                break
            low, high = torch.where(excess > 0, theta, low), torch.where(excess > 0, high, theta)
            # The mean rate falls with the threshold, hence the sign; where slopes vanish the step
            # is infinite and bisection takes over.
            newton = theta + excess / (weight @ steps.slopes(soft))
            theta = torch.where((newton > low) & (newton < high), newton, 0.5 * (low + high))
        return theta

    def evaluate(self, sums: Tensor, counts: Tensor, aux: Tensor) -> Tensor:
        """Return the values from the table, first for upper and then for lower bounds."""
        rates = sums / counts[:, None]
        return self._values(rates - self.most.to(sums), self.least.to(sums) - rates)

    def affine(self, counts: Tensor) -> AffineMap:
        """Return the values as an affine map: a rate for each part and column, with both signs."""
        shape = (self.n_parts, self.n_aux)
        rates, scale = (
            factor.expand(shape).reshape(-1).diag().cpu().numpy()
            for factor in (1.0 / counts[:, None], self._scale)
        )
        # A single part has nothing to be compared with, and no values.
        combinations = Combinations.of(np.concatenate((scale, -scale))[: len(self.slack)])
        offset = self.evaluate(counts.new_zeros(shape), counts, counts.new_zeros(0))
        return AffineMap([combinations], rates, offset, shape)

    def convex_parts(self, scores: Tensor, rows: Placement, aux: Tensor) -> Tensor:
        """Combine the convex parts of the rates, and put the bounds into the first result."""
        plus, minus = self.convex_rates(scores, rows, aux)
        first = self._values(plus - self.most.to(plus), minus + self.least.to(plus))
        return torch.stack((first, self._scaled(minus, plus)))

    def hard_values(self, scores: Tensor, rows: Placement, aux: Tensor) -> Tensor:
        """Measure exact gaps from sorted scores, each at the grid point nearest its threshold."""
        (thresholds, rank), theta = self.ranks(scores, rows), aux.detach().cpu().numpy()
        gaps = self.compared_by.gaps(self.intervals, rank)
        sides = [_largest_near(side, thresholds, theta) for side in gaps]
        values = np.concatenate([side.reshape(-1) for side in sides])[: len(self.slack)]
        return torch.as_tensor(values).to(scores) - self.slack.to(scores)

    def describe(self, j: int) -> str:
        side, rest = divmod(j, len(self.slack) // 2)
        q, c = divmod(rest, len(self.grid))
        word = ("above", "below")[side]
        return f"{self.name}: {self._words(q)} {word} the others at {self.grid[c]:.0%}"

    def _values(self, above: Tensor, below: Tensor) -> Tensor:
        return self._scaled(above, below) + min(self.gap, 1.0) - self.slack.to(above)

    def _scaled(self, above: Tensor, below: Tensor) -> Tensor:
        scale = self._scale.to(above)
        values = torch.cat(((scale * above).reshape(-1), (scale * below).reshape(-1)))
        return values[: len(self.slack)]


def _largest_near(values: Floats, thresholds: Floats, centres: Floats) -> Floats:
    """Return the largest value of each row near each centre, (n_rows, n_centres).

    Column i of `values` belongs to all thresholds from thresholds[i] up to the next one.
    """
    order = np.argsort(centres, kind="stable")
    # Every threshold belongs to the nearest centre.
    borders = 0.5 * (centres[order][1:] + centres[order][:-1])
    first = np.searchsorted(thresholds, np.concatenate(([-np.inf], borders)), "right") - 1
    stop = np.searchsorted(thresholds, np.concatenate((borders, [np.inf])), "left")
    ends = np.stack((first, stop), axis=1).reshape(-1)
    # Even results of reduceat are maxima over [first, stop), the others over the rows between.
    padded = np.pad(values, ((0, 0), (0, 1)), constant_values=-np.inf)
    largest = np.empty((len(values), len(centres)))
    largest[:, order] = np.maximum.reduceat(padded, ends, axis=1)[:, ::2]
    return largest
