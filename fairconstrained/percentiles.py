r"""Intervals of percentiles, and the exact distribution of scores in each of several sets of rows.

The *rank* of a threshold in a set is the weight share of the set's rows that score higher, so that
rank 0 is the top. Given an interval :math:`[\alpha, \beta)` of ranks, or a union of them of total
length L, the share of the set's rows inside that score above a threshold of rank r is

.. math:: G(r) = \frac1L \sum_l \min(r, \beta_l) - \min(r, \alpha_l) ,

the conditional complementary distribution function of Definition 4.2 of the partial-parity paper.
A block of tied scores that reaches over an end of an interval counts by the part that is inside, as
if ties were broken at random. Metrics and constraints both read their intervals here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairconstrained.groups import group_name

__all__ = [
    "Intervals",
    "Ranks",
    "auc_inside",
    "inside_intervals",
    "rank_of_scores",
    "read_intervals",
    "share",
]

Floats = NDArray[np.float64]
Numbers = Any  # an array or a tensor: nothing that takes it needs to know which


class Intervals(NamedTuple):
    """Union of intervals of ranks for each of several groups; shorter unions have empty pieces."""

    lower: Floats  # (n_groups, n_pieces)
    upper: Floats

    @property
    def lengths(self) -> Floats:
        """Total length for each group."""
        return np.asarray((self.upper - self.lower).sum(axis=1))

    def take(self, index: Any) -> Intervals:
        """Those of these groups, in this order."""
        return Intervals(self.lower[index], self.upper[index])

    def share(self, rank: Floats) -> Floats:
        """G of the ranks in each group, (n_groups, m)."""
        return np.asarray(share(rank, self.lower, self.upper))

    def rank(self, share: Floats) -> tuple[Floats, Floats]:
        """Lowest and highest rank with these values of G, two of (n_groups, m).

        They differ where a value falls in a gap between two intervals.
        """
        sides = [
            np.stack([_inverse(*union, share, side) for union in zip(*self, strict=True)])
            for side in ("left", "right")
        ]
        return sides[0], sides[1]


def _inverse(lower: Floats, upper: Floats, share: Floats, side: Any) -> Floats:
    """Ranks at which G has these values, at one side of the gaps between intervals."""
    pieces = upper > lower
    ends = np.cumsum(upper[pieces] - lower[pieces])
    target = share * ends[-1]
    # A sum of lengths may miss the end of an interval by rounding: then it is that end.
    rounding = 1e-12 * ends[-1] * (1 if side == "right" else -1)
    piece = np.searchsorted(ends, target + rounding, side).clip(max=len(ends) - 1)
    return np.asarray(upper[pieces][piece] - (ends[piece] - target))


def share(rank: Numbers, lower: Numbers, upper: Numbers) -> Numbers:
    """G of ranks (n_sets, m) for unions of intervals (n_sets, n_pieces): arrays or tensors."""
    low, high = lower[:, None], upper[:, None]
    covered = (rank[..., None].clip(low, high) - low).sum(-1)
    return covered / (upper - lower).sum(-1)[:, None]


def auc_inside(share: Numbers) -> Numbers:
    r"""AUCs of all pairs of sets within the interval, (n_sets, n_sets), ties by half.

    From G at all thresholds in ascending order, (n_sets, m), from 1 down to 0: entry (g, h) is
    :math:`P(z > z') + P(z = z') / 2` for z out of set g and z' out of h. With thresholds that
    leave out some scores, two of the same bin count as tied.
    """
    inside, middle = share[:, :-1] - share[:, 1:], 0.5 * (share[:, :-1] + share[:, 1:])
    return 1.0 - inside @ middle.T


def read_intervals(interval: Any, groups: Sequence[Any]) -> Intervals:
    """Check what users give as `interval` and bring it to one form.

    Parameters
    ----------
    interval : pair of float, list of pairs, or dict
        ``(alpha, beta)`` with 0 <= alpha < beta <= 1; several that do not overlap; or one of these
        for every group, by the group's label (or its name in messages).
    groups : sequence
        The groups' labels.

    Returns
    -------
    Intervals

    Raises
    ------
    ValueError
        Naming the interval that is reversed, empty, outside [0, 1] or overlaps another, or the
        group without one.

    Examples
    --------
    >>> from fairconstrained.percentiles import read_intervals
    >>> read_intervals({"a": (0, 0.2), "b": [(0, 0.1), (0.5, 0.6)]}, ["a", "b"]).lengths
    array([0.2, 0.2])
    """
    if isinstance(interval, Mapping):
        unions = [_union(given) for given in _by_group(interval, groups)]
    else:
        unions = [_union(interval)] * len(groups)
    n_pieces = max((len(union) for union in unions), default=1)
    pieces = np.ones((len(unions), n_pieces, 2))
    for row, union in zip(pieces, unions, strict=True):
        row[: len(union)] = union
    return Intervals(pieces[..., 0], pieces[..., 1])


def _by_group(interval: Mapping[Any, Any], groups: Sequence[Any]) -> list[Any]:
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
            raise ValueError(
                f"interval must have an entry for every group; there is none for {key}."
            )
        chosen.append(interval[key])
    return chosen


def _union(given: Any) -> list[tuple[float, float]]:
    several = _is_sequence(given) and len(given) > 0 and all(map(_is_sequence, given))
    pairs = [_pair(pair) for pair in (given if several else [given])]
    pairs.sort()
    for first, second in pairwise(pairs):
        if first[1] > second[0]:
            raise ValueError(f"interval has overlapping parts: {first} and {second}.")
    return pairs


def _pair(given: Any) -> tuple[float, float]:
    numbers = _is_sequence(given) and len(given) == 2 and all(map(_is_number, given))
    if not numbers or not 0 <= given[0] < given[1] <= 1:
        raise ValueError(
            "interval must be a pair (alpha, beta) with 0 <= alpha < beta <= 1, a list of such "
            f"pairs that do not overlap, or a dict of them by group; got {given!r}."
        )
    return float(given[0]), float(given[1])


def _is_sequence(value: Any) -> bool:
    return isinstance(value, (Sequence, np.ndarray)) and not isinstance(value, (str, bytes))


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


class Ranks(NamedTuple):
    """Ranks of all thresholds: minus infinity, and every distinct score."""

    thresholds: Floats  # (1 + U,), ascending
    rank: Floats  # (n_sets, 1 + U): weight share of a set's rows above each; nan without weight


def rank_of_scores(scores: ArrayLike, index: ArrayLike, weight: ArrayLike, n_sets: int) -> Ranks:
    """Ranks in each of several sets of rows, from one sort.

    Parameters
    ----------
    scores : array-like of shape (n,)
    index : array-like of shape (n,)
        The set of each row, from 0 to n_sets - 1.
    weight : array-like of shape (n,)
    n_sets : int

    Examples
    --------
    >>> from fairconstrained.percentiles import rank_of_scores
    >>> rank_of_scores([3.0, 1.0, 2.0, 2.0], [0, 0, 0, 1], [1.0, 1.0, 2.0, 1.0], 2).rank
    array([[1.  , 0.75, 0.25, 0.  ],
           [1.  , 1.  , 0.  , 0.  ]])
    """
    distinct, position = np.unique(np.asarray(scores, dtype=float), return_inverse=True)
    cell = np.asarray(index) * len(distinct) + position.reshape(-1)
    mass = np.bincount(cell, weights=np.asarray(weight), minlength=n_sets * len(distinct))
    above = np.zeros((n_sets, 1 + len(distinct)))
    above[:, :-1] = np.cumsum(mass.reshape(n_sets, -1)[:, ::-1], axis=1)[:, ::-1]
    total = np.where(above[:, :1] > 0, above[:, :1], np.nan)
    return Ranks(np.concatenate(([-np.inf], distinct)), above / total)


def inside_intervals(rank: Floats, intervals: Intervals) -> NDArray[np.bool_]:
    """Which ranks, descending in each row, lie in the interval; ties may jump over all of it."""
    low, high = intervals.lower[:, None], intervals.upper[:, None]
    inside = np.any((rank[..., None] >= low) & (rank[..., None] < high), axis=-1)
    before, after = rank[:, :-1, None], rank[:, 1:, None]
    jumped = ((before >= high) & (after < low) & (high > low)).any(axis=-1)
    inside[:, :-1] |= jumped
    inside[:, 1:] |= jumped
    return np.asarray(inside)
