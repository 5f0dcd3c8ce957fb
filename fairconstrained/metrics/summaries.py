"""Summaries of components, such as the largest range of rates, and how they are tested.

A summary has a size, which is zero for a fair model, a statistic that tests one size, and the
components nearest to the observed ones at which it has this size. Components are (n_groups,
n_events), or (n_components, 1), and draws of them have one axis more. Their errors have a variance
and are drawn wherever the truth is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import bdtr, ndtr, rel_entr
from scipy.stats import norm

from fairconstrained.arrays import Floats, Ints, bisected
from fairconstrained.metrics.bounds import wilson
from fairconstrained.numerics import ROUNDING

# Variance of the number of hits, n p (1 - p): below it quantiles are exact, above it they are by
# the expansion of Cornish and Fisher.
FEW = 10.0
# Pairs of groups whose likelihoods are compared: the nearest, by their standard errors.
MOST_PAIRS = 1_000


class Pairs(NamedTuple):
    """Pairs of groups, by their places; each is compared by one event."""

    above: Ints
    below: Ints
    event: Ints


class Proportions:
    """Binomial errors of rates, with whole numbers of rows; events may be dependent."""

    support = (0.0, 1.0)

    def __init__(self, rows: Floats, noise: Floats) -> None:
        self.rows = np.maximum(np.round(rows), 1.0)  # (n_groups, n_events)
        # Normal ones of variance one, (n_groups, n_events, n_draws).
        self.noise = noise / np.maximum(noise.std(axis=-1, keepdims=True), 1e-300)
        self.level = ndtr(self.noise)

    def variance(self, centre: Floats) -> Floats:
        """Return variances, with half a row added to each outcome so that none is zero."""
        p = (self.rows * centre + 0.5) / (self.rows + 1.0)
        return np.asarray(p * (1.0 - p) / self.rows)

    def estimates(self, centre: Floats) -> Floats:
        """Draw estimates, (n_groups, n_events, n_draws), of true rates `centre`.

        These are quantiles at the noise's levels: exact for few hits, by Cornish and Fisher for
        many.
        """
        rows, p = self.rows[:, :, None], centre[:, :, None]
        deviation = np.sqrt(np.maximum(rows * p * (1.0 - p), 1e-12))
        skew = (1.0 - 2.0 * p) / deviation
        hits = rows * p + deviation * (self.noise + skew * (self.noise**2 - 1.0) / 6.0)
        for cell in np.argwhere(deviation[:, :, 0] ** 2 < FEW):
            g, e = cell
            n = int(self.rows[g, e])
            below = bdtr(np.arange(n), n, centre[g, e])
            hits[g, e] = np.searchsorted(below, self.level[g, e])
        return np.asarray(np.clip(hits / rows, 0.0, 1.0))

    def pairs(self, at: Pairs, x: Floats, y: Floats, a: float, b: float) -> tuple[Floats, Floats]:
        """Return the likeliest x of each pair with a x - y = b, and its divergence from the data.

        Bisection makes it exact: with few hits the two groups of a pair do not share alike in
        their difference, as normal errors would have it.
        """
        above, below = (self.rows[group, at.event] for group in (at.above, at.below))

        def grows(one: Floats) -> Any:
            other = a * one - b
            first, second = one * (1.0 - one), other * (1.0 - other)
            return above * (x - one) * second + a * below * (y - other) * first > 0.0

        ends = np.full_like(x, b / a), np.full_like(x, min(1.0, (1.0 + b) / a))
        likeliest = 0.5 * sum(bisected(grows, *ends, 20))
        one, other = (np.clip(r, ROUNDING, 1.0 - ROUNDING) for r in (likeliest, a * likeliest - b))
        far = above * (rel_entr(x, one) + rel_entr(1.0 - x, 1.0 - one))
        return likeliest, far + below * (rel_entr(y, other) + rel_entr(1.0 - y, 1.0 - other))

    def limits(self, values: Floats, z: float) -> tuple[Floats, Floats]:
        """Return bounds of each rate, z standard errors away (Wilson)."""
        return wilson(values * self.rows, self.rows, float(2.0 * ndtr(z) - 1.0))


class Normal:
    """Normal errors that do not depend on the truth, with the methods of :class:`Proportions`."""

    support = (-np.inf, np.inf)

    def __init__(self, noise: Floats) -> None:
        self.noise = noise  # (*shape, n_draws)

    def variance(self, centre: Floats) -> Floats:
        return np.asarray(self.noise.var(axis=-1))

    def estimates(self, centre: Floats) -> Floats:
        return np.asarray(centre[..., None] + self.noise)

    def pairs(self, at: Pairs, x: Floats, y: Floats, a: float, b: float) -> tuple[Floats, Floats]:
        above, below = (self.noise[group, at.event].var(axis=-1) for group in (at.above, at.below))
        missing, total = b + y - a * x, a**2 * above + below
        return x + a * above / total * missing, np.square(missing) / total

    def limits(self, values: Floats, z: float) -> tuple[Floats, Floats]:
        half = z * np.sqrt(self.variance(values))
        return values - half, values + half


Errors = Proportions | Normal


class Summary:
    """Base of the summaries."""

    def least_upper(self, n_components: int) -> float:
        """Return the share of alpha reserved for the upper end, even if it goes unused."""
        return 0.5


class Range(Summary):
    """The largest range over groups, in the worst event, of components (n_groups, n_events).

    A size is tested by all pairs of groups: by the largest of their differences less the size, each
    divided by its standard error, so that a small group does not hide two large ones.
    """

    def line(self, size: float) -> tuple[float, float]:
        """Return a and b such that components x and y differ by `size` if a x - y = b."""
        return 1.0, size

    def size(self, components: Floats) -> Floats:
        """Return the largest range of components (n_groups, n_events)."""
        return np.asarray(np.ptp(components, axis=0).max(axis=0))

    def statistic(self, components: Floats, variance: Floats, size: float) -> Floats:
        """Return the largest standardised difference, less the size, over pairs of groups.

        Components are (n_groups, n_events), or draws (n_groups, n_events, n_draws). Variances are
        rounded to powers of two, so that groups of one variance need their extremes only.
        """
        a, b = self.line(size)
        largest: list[Floats] = []
        for event, of_groups in enumerate(np.round(np.log2(variance)).T):
            levels, level = np.unique(of_groups, return_inverse=True)
            members = [components[level == k, event] for k in range(len(levels))]
            tops, bottoms = ([f(of, axis=0) for of in members] for f in (np.max, np.min))
            largest += [
                (a * tops[i] - bottoms[j] - b) / np.sqrt(a**2 * 2.0 ** levels[i] + 2.0 ** levels[j])
                for i, j in np.ndindex(len(levels), len(levels))
                if i != j or len(members[i]) > 1
            ]
        return np.asarray(functools.reduce(np.maximum, largest))

    def farthest(
        self, centre: Floats, variance: Floats, size: float, support: tuple[float, float]
    ) -> float:
        """Return the largest statistic that the small group of an outermost pair can cause.

        The other group of the pair is at its centre, since the nearest rates would follow it.
        """
        a, b = self.line(size)
        x, y, spread = centre[:, None], centre, a**2 * variance[:, None]
        excess = np.where(spread > variance, a * support[1] - y, a * x - support[0]) - b
        outermost = np.abs(a * x - y - b) < 1e-6
        outermost[np.eye(len(centre), dtype=bool)] = False
        if not outermost.any():
            return np.inf
        return float((excess / np.sqrt(spread + variance))[outermost].max())

    def nearest(self, values: Floats, errors: Errors, size: float) -> Floats:
        """Find the likeliest components of a size, by iteration since variances depend on them.

        Within each event with a larger range the outermost groups move together into a band. If
        there is none, the pair of groups for which the size is likeliest moves to its place. The
        other groups are shrunk towards their mean: with their errors they would be too far apart,
        and draws add errors once more. Where a pair moves, a group is shrunk only if that takes it
        away from both, since one that is extreme by mistake makes large sizes unlikely.
        """
        centre = values
        for _ in range(3):
            moved = self._moved(values, errors.variance(centre), size, errors)
            centre = np.clip(moved, *errors.support)
        return centre

    def _moved(
        self,
        values: Floats,
        variance: Floats,
        size: float,
        errors: Errors,
        events: Ints | None = None,
    ) -> Floats:
        a, b = self.line(size)
        events = np.arange(values.shape[1]) if events is None else events
        wide = a * values.max(axis=0) - values.min(axis=0) >= b
        moved = _shrunk(values, variance)
        if wide.any():
            moved[:, wide] = _clipped(values[:, wide], moved[:, wide], variance[:, wide], (a, b))
            return moved
        excess = a * values[:, None] - values - b  # (n_groups, n_groups, n_events)
        excess /= np.sqrt(a**2 * variance[:, None] + variance)
        excess[np.eye(len(values), dtype=bool)] = -np.inf
        n_pairs = min(MOST_PAIRS, excess[..., 0].size - len(values))
        nearest = np.argpartition(-excess, n_pairs - 1, axis=None)[:n_pairs]
        at = Pairs(*np.unravel_index(nearest, excess.shape))
        pair = values[at.above, at.event], values[at.below, at.event]
        places, far = errors.pairs(at._replace(event=events[at.event]), *pair, a, b)
        g, h, event = (place[far.argmin()] for place in at)
        x = places[far.argmin()]  # of the likeliest pair
        y = a * x - b
        one, shrunk, middle = values[:, event], moved[:, event], 0.5 * (x + y)
        nearer = np.abs(shrunk - middle) < np.abs(one - middle)
        moved[:, event] = np.clip(np.where(nearer, shrunk, one), y, x)
        moved[[g, h], event] = x, y
        return moved

    def proven(self, values: Floats, errors: Errors, alpha: float) -> float:
        """Return the largest lower bound of a pair; all of them hold at once (Bonferroni)."""
        n_groups, n_events = values.shape
        n_pairs = max(n_groups * (n_groups - 1) * n_events, 1)
        low, high = errors.limits(values, float(norm.isf(alpha / n_pairs)))
        return max(float(self._lower(values, low, high).max()), 0.0)

    def _lower(self, values: Floats, low: Floats, high: Floats) -> Floats:
        """Bound x - y below by the bounds of both (Newcombe 1998), (n_groups, n_groups, ...)."""
        half = np.sqrt(np.square(values - low)[:, None] + np.square(high - values))
        return np.asarray(values[:, None] - values - half)


class Shortfall(Range):
    """The fraction by which the smallest component falls short of the largest."""

    def line(self, size: float) -> tuple[float, float]:
        """Return a and b such that y falls short of x by `size` if a x - y = b."""
        return max(1.0 - size, 1e-9), 0.0

    def size(self, components: Floats) -> Floats:
        least, most = components.min(axis=0), components.max(axis=0)
        return np.asarray((1.0 - least / np.where(most > 0, most, 1.0)).max(axis=0))

    def _lower(self, values: Floats, low: Floats, high: Floats) -> Floats:
        """Bound 1 - y / x below by the bounds of both (Donner and Zou 2012)."""
        x, first = values[:, None], low[:, None]
        square = first * (2.0 * x - first)
        root = np.square(x * values) - square * high * (2.0 * values - high)
        highest = x * values + np.sqrt(np.maximum(root, 0.0))
        proven = first > 0.0
        return np.where(proven, 1.0 - highest / np.where(proven, square, 1.0), 0.0)


class Combined(Range):
    """The ranges of all events, combined into one number such as their mean."""

    def __init__(self, combine: Callable[[Floats], Any]) -> None:
        self.combine = combine  # ranges (n_events, ...), one after another

    def size(self, components: Floats) -> Floats:
        return np.asarray(self.combine(np.ptp(components, axis=0)))

    def statistic(self, components: Floats, variance: Floats, size: float) -> Floats:
        return self.size(components)

    def farthest(
        self, centre: Floats, variance: Floats, size: float, support: tuple[float, float]
    ) -> float:
        return np.inf  # other pairs of groups count as well

    def _moved(
        self,
        values: Floats,
        variance: Floats,
        size: float,
        errors: Errors,
        events: Ints | None = None,
    ) -> Floats:
        ranges, now = np.ptp(values, axis=0), float(self.size(values))
        wanted = ranges * (size / now) if now > 0 else np.full(len(ranges), size)
        one = Range()
        columns = (
            one._moved(values[:, [e]], variance[:, [e]], float(width), errors, np.array([e]))
            for e, width in enumerate(wanted)
        )
        return np.concatenate(list(columns), axis=1)

    def proven(self, values: Floats, errors: Errors, alpha: float) -> float:
        return 0.0  # no pair of groups bounds a combination


def _shrunk(values: Floats, variance: Floats) -> Floats:
    """Shrink columns towards their means, by DerSimonian and Laird (1986)."""
    weight = 1.0 / variance
    total = weight.sum(axis=0)
    mean = (weight * values).sum(axis=0) / total
    surplus = (weight * np.square(values - mean)).sum(axis=0) - (len(values) - 1)
    between = np.maximum(
        surplus / np.maximum(total - np.square(weight).sum(axis=0) / total, 1e-12), 0
    )
    return np.asarray(mean + between / (between + variance) * (values - mean))


def _clipped(values: Floats, inside: Floats, variance: Floats, line: tuple[float, float]) -> Floats:
    """Clip columns to the nearest bands from c to (c + b) / a, by weighted least squares.

    The cuts above and below the band balance. The balance falls with c, and is linear between the
    points where a value enters or leaves the band. Groups that are not cut get values of `inside`.
    """
    a, b = line
    points = np.sort(np.concatenate((values, a * values - b)), axis=0)
    cut = values - np.clip(values, points[:, None], (points[:, None] + b) / a)
    balance = (np.where(cut > 0, cut / a, cut) / variance).sum(axis=1)  # (n_points, n_columns)
    columns = np.arange(values.shape[1])
    first = np.maximum((balance > 0).sum(axis=0) - 1, 0)
    second = np.minimum(first + 1, len(points) - 1)
    above, below = balance[first, columns], balance[second, columns]
    part = np.where(above > 0, above / np.where(above > 0, above - below, 1.0), 0.0)
    start = points[first, columns] + part * (points[second, columns] - points[first, columns])
    is_cut = (values <= start) | (values >= (start + b) / a)
    return np.asarray(np.clip(np.where(is_cut, values, inside), start, (start + b) / a))


class Largest(Summary):
    """The largest absolute value of contrasts (n_components, 1), all zero for a fair model.

    A size is tested by the largest component less the size, in standard errors.
    """

    def fold(self, components: Floats) -> Floats:
        """Return the quantities whose largest is the size."""
        return np.abs(components)

    def shrunk(self, values: Floats, variance: Floats) -> Floats:
        """Return the components unchanged: contrasts have no common mean to be shrunk towards."""
        return values

    def size(self, components: Floats) -> Floats:
        """Return the largest of components (n_components, 1)."""
        return np.asarray(self.fold(components[:, 0]).max(axis=0))

    def statistic(self, components: Floats, variance: Floats, size: float) -> Floats:
        """Return the largest component less the size, in standard errors; or one for each draw."""
        excess = self.fold(components[:, 0]) - size
        return np.asarray((excess.T / np.sqrt(variance[:, 0])).max(axis=-1))

    def farthest(
        self, centre: Floats, variance: Floats, size: float, support: tuple[float, float]
    ) -> float:
        """Return the largest statistic that a component of this size can cause."""
        highest = np.abs(self.fold(centre[:, 0]) - size) < 1e-6
        excess = (support[1] - size) / np.sqrt(variance[:, 0])
        return float(excess[highest].max()) if highest.any() else np.inf

    def nearest(self, values: Floats, errors: Errors, size: float) -> Floats:
        """Cut components beyond the size; if there are none, raise the likeliest one to it.

        The others are shrunk; where one is raised, only if that takes them away from the size.
        """
        variance, folded = errors.variance(values), self.fold(values)
        others = self.shrunk(values, variance)
        if (folded >= size).any():
            moved = np.where(folded >= size, size, np.minimum(self.fold(others), size))
        else:
            moved = np.minimum(folded, self.fold(others))
            moved[int(((folded - size) / np.sqrt(variance)).argmax())] = size
        return np.asarray(np.where(folded == values, moved, -moved))

    def proven(self, values: Floats, errors: Errors, alpha: float) -> float:
        """Return the largest lower bound of a component; all of them hold at once (Bonferroni)."""
        low, _ = errors.limits(self.fold(values), float(norm.isf(alpha / (2 * len(values)))))
        return max(float(low.max()), 0.0)


class Highest(Largest):
    """The largest of components (n_components, 1), which have a common mean."""

    def least_upper(self, n_components: int) -> float:
        # The lower end gets the rest. With all of alpha it would be too high too often, the more
        # components there are, since the nearest ones are estimated.
        return (1.0 - 1.0 / n_components) / 3.0

    def fold(self, components: Floats) -> Floats:
        return components

    def shrunk(self, values: Floats, variance: Floats) -> Floats:
        return _shrunk(values, variance)
