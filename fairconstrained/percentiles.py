r"""Intervals of percentiles, and the exact distribution of scores in each of several sets of rows.

The *rank* of a threshold in a set is the weighted fraction of the set's rows that score higher, so
rank 0 is the top. Take an interval :math:`[\alpha, \beta)` of ranks, or a union of intervals of
total length L. Among the rows of the set whose ranks lie inside, the fraction that scores above a
threshold of rank r is

.. math:: G(r) = \frac1L \sum_l \min(r, \beta_l) - \min(r, \alpha_l) .

This is the conditional complementary distribution function of the partial-parity paper, Definition
4.2. A block of tied scores that crosses an end of an interval counts with the fraction that is
inside, as if ties were broken at random. Metrics and constraints both read their intervals here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairconstrained.arrays import Floats, is_number
from fairconstrained.inputs.groups import group_name
from fairconstrained.numerics import ROUNDING

Numbers = Any  # an array or a tensor; the functions below accept both


class Intervals(NamedTuple):
    """A union of intervals of ranks for each of several groups, padded with empty ones."""

    lower: Floats  # (n_groups, n_pieces)
    upper: Floats

    @property
    def lengths(self) -> Floats:
        """Return the total length for each group."""
        return np.asarray((self.upper - self.lower).sum(axis=1))

    def take(self, index: Any) -> Intervals:
        """Select the intervals of some groups, in the given order."""
        return Intervals(self.lower[index], self.upper[index])

    def fraction(self, rank: Floats) -> Floats:
        """Evaluate G at ranks of each group, (n_groups, m)."""
        return np.asarray(fraction_inside(rank, self.lower, self.upper))

    def may_contain(self, low: Floats, high: Floats) -> NDArray[np.bool_]:
        """Return whether ranks between two bounds, (n_groups, m), can lie in the intervals.

        Ties can jump over a whole interval: the ranks on both sides of it then count as inside.
        With the bounds swapped: whether the ranks certainly lie in the intervals.
        """
        lower, upper = self.lower[:, None], self.upper[:, None]
        nonempty = upper > lower
        inside = np.any((high[..., None] >= lower) & (low[..., None] < upper) & nonempty, axis=-1)
        before, after = high[:, :-1, None], low[:, 1:, None]
        jumped = ((before >= upper) & (after < lower) & nonempty).any(axis=-1)
        inside[:, :-1] |= jumped
        inside[:, 1:] |= jumped
        return np.asarray(inside)

    def rank(self, fraction: Floats) -> tuple[Floats, Floats]:
        """Find the lowest and highest rank at which G has given values, each (n_groups, m).

        They differ where a value falls in a gap between two intervals.
        """
        ranks = np.empty((2, len(self.lower), len(fraction)))
        for i, union in enumerate(zip(*self, strict=True)):
            ranks[:, i] = [_inverse(*union, fraction, side) for side in ("left", "right")]
        return ranks[0], ranks[1]


def _inverse(lower: Floats, upper: Floats, fraction: Floats, side: Any) -> Floats:
    """Find the ranks at which G has given values, on one side of gaps between intervals."""
    pieces = upper > lower
    ends = np.cumsum(upper[pieces] - lower[pieces])
    target = fraction * ends[-1]
    # Sums of lengths have rounding errors: a target this close to an end counts as the end.
    rounding = ROUNDING * ends[-1] * (1 if side == "right" else -1)
    piece = np.searchsorted(ends, target + rounding, side).clip(max=len(ends) - 1)
    return np.asarray(upper[pieces][piece] - (ends[piece] - target))


def fraction_inside(rank: Numbers, lower: Numbers, upper: Numbers) -> Numbers:
    """Evaluate G at ranks (n_sets, m) for unions of intervals (n_sets, n_pieces)."""
    low, high = lower[:, None], upper[:, None]
    return (rank[..., None].clip(low, high) - low).sum(-1) / (upper - lower).sum(-1)[:, None]


def auc_inside(fraction: Numbers) -> Numbers:
    r"""Return AUCs of all pairs of sets within the interval, (n_sets, n_sets); ties count one half.

    The argument holds G at thresholds in ascending order, (n_sets, m), so its rows fall from 1 to
    0. Entry (g, h) is :math:`P(z > z') + P(z = z') / 2` for z from set g and z' from set h. Scores
    between the same two thresholds count as tied.
    """
    left, right = fraction[:, :-1], fraction[:, 1:]
    inside, middle = left - right, 0.5 * (left + right)
    # Above a row of g rank all rows of h in higher bins, and half of those in its bin.
    return 1.0 - inside @ middle.T


def read_intervals(interval: Any, groups: Sequence[Any]) -> Intervals:
    """Check the parameter `interval` of estimators and metrics, and convert it to one form.

    It is a pair ``(alpha, beta)`` with 0 <= alpha < beta <= 1, a list of such pairs that do not
    overlap, or a dict with one of these for every group, by its label or its name in messages.
    """
    if isinstance(interval, Mapping):
        unions = [_union(value) for value in _by_group(interval, groups)]
    else:
        unions = [_union(interval)] * len(groups)
    n_pieces = max((len(union) for union in unions), default=1)
    # The padding [1, 1] is empty, and keeps the pieces in order.
    pieces = np.ones((len(unions), n_pieces, 2))
    for row, union in zip(pieces, unions, strict=True):
        row[: len(union)] = union
    return Intervals(pieces[..., 0], pieces[..., 1])


def _by_group(interval: Mapping[Any, Any], groups: Sequence[Any]) -> list[Any]:
    # A crossed group may be written as a tuple, or as messages name it.
    known = [{group, group_name(group)} for group in groups]
    strange = [key for key in interval if not any(key in names for names in known)]
    if strange:
        raise ValueError(
            f"interval names groups that the data do not have: {strange}; they have "
            f"{[group_name(group) for group in groups]}."
        )
    chosen = []
    for group in groups:
        key = group if group in interval else group_name(group)
        if key not in interval:
            lacks = f"there is none for {key}."
            raise ValueError(f"interval must have an entry for every group; {lacks}")
        chosen.append(interval[key])
    return chosen


def _union(value: Any) -> list[tuple[float, float]]:
    several = _is_sequence(value) and len(value) > 0 and all(map(_is_sequence, value))
    pairs = [_pair(pair) for pair in (value if several else [value])]
    pairs.sort()
    for first, second in pairwise(pairs):
        if first[1] > second[0]:
            raise ValueError(f"interval has overlapping parts: {first} and {second}.")
    return pairs


def _pair(value: Any) -> tuple[float, float]:
    numbers = _is_sequence(value) and len(value) == 2 and all(map(is_number, value))
    if not numbers or not 0 <= value[0] < value[1] <= 1:
        raise ValueError(
            "interval must be a pair (alpha, beta) with 0 <= alpha < beta <= 1, a list of such "
            f"pairs that do not overlap, or a dict of them by group; got {value!r}."
        )
    return float(value[0]), float(value[1])


def _is_sequence(value: Any) -> bool:
    return isinstance(value, (Sequence, np.ndarray)) and not isinstance(value, (str, bytes))


class Ranks(NamedTuple):
    """Ranks of all thresholds, which are minus infinity and the distinct scores."""

    thresholds: Floats  # (1 + U,), ascending
    rank: Floats  # (n_sets, 1 + U): weighted fraction above each; nan for sets without weight


def rank_of_scores(scores: ArrayLike, index: ArrayLike, weight: ArrayLike, n_sets: int) -> Ranks:
    """Compute the ranks of thresholds in several sets of rows, given by `index`, with one sort."""
    # Equal scores have one rank, so that ties are exact.
    distinct, position = np.unique(np.asarray(scores, dtype=float), return_inverse=True)
    cell = np.asarray(index) * len(distinct) + position.reshape(-1)
    mass = np.bincount(cell, weights=np.asarray(weight), minlength=n_sets * len(distinct))
    above = np.zeros((n_sets, 1 + len(distinct)))
    above[:, :-1] = np.cumsum(mass.reshape(n_sets, -1)[:, ::-1], axis=1)[:, ::-1]
    total = np.where(above[:, :1] > 0, above[:, :1], np.nan)
    return Ranks(np.concatenate(([-np.inf], distinct)), above / total)
