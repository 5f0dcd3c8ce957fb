r"""Upper bounds of gaps and caps that hold for any distribution and any number of rows.

A gap is the largest of several differences, and a bound of it fails only if the bound of the
largest one does: :math:`P(\max_j U_j < \max_j d_j) \leq P(U_{j^*} < d_{j^*})`. So each difference
is bounded with the full confidence, and many groups or events cost nothing (an intersection-union
test, Berger 1982).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations, permutations
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import norm

from fairconstrained.arrays import Array
from fairconstrained.auc import COMPARISONS, auc_differences, win_table
from fairconstrained.metrics.bounds import (
    clopper_pearson,
    difference_bound,
    difference_p_value,
    distribution_band,
)
from fairconstrained.metrics.inputs import Counts
from fairconstrained.percentiles import (
    Intervals,
    auc_inside,
    fraction_inside,
    may_be_inside,
    rank_of_scores,
)
from fairconstrained.rates import Rates


class Bound(NamedTuple):
    """Estimate and upper confidence bound of a violation."""

    estimate: float  # the notion on these rows
    upper: float  # its bound
    binding: str  # which difference or rate the bound comes from
    method: str
    rates: list[dict[str, Any]]  # each with its simultaneous bounds
    assumptions: tuple[str, ...] = ()  # of this bound, beyond those of every certificate


NOTHING = "no rates to compare"

# --- rates ----------------------------------------------------------------------------------------


class _Counted(NamedTuple):
    """Rates (n_groups, n_events) as whole numbers; cells that are left out have no rows."""

    hits: Array
    rows: Array
    events: list[str]
    groups: list[str]


def _counted(counts: Counts, notion: Rates, kept: Array) -> _Counted:
    events = [rate.event + rate.given for rate in counts.definitions(notion)]
    rates = counts.rates(notion)
    hits, rows = (
        np.where(kept, np.rint(weight).astype(np.int64), 0) for weight in (rates.hits, rates.rows)
    )
    return _Counted(hits, rows, events, rates.groups)


def parity_bound(counts: Counts, notion: Rates, alpha: float, kept: Array) -> Bound:
    """Bound the largest difference between groups in any event's rate; `kept` cells count."""
    found = _counted(counts, notion, kept)
    pairs = [
        (g, h, e)
        for e in range(len(found.events))
        for g, h in permutations(range(len(found.groups)), 2)
        if kept[g, e] and kept[h, e]
    ]
    estimates = [_rate(found, g, e) - _rate(found, h, e) for g, h, e in pairs]
    upper, binding = _largest_difference(found, pairs, alpha)
    if len({e for *_, e in pairs}) < len(found.events):  # what was not looked at is not kept
        upper, binding = 1.0, NOTHING
    return Bound(
        max(estimates, default=float("nan")),
        upper,
        binding,
        "exact test of the difference of two binomial proportions for each pair of groups "
        "(unconditional, Berger and Boos 1994); rates: Clopper-Pearson, jointly",
        _rate_bounds(found, alpha),
    )


def cap_bound(counts: Counts, notion: Rates, alpha: float, kept: Array) -> Bound:
    """Bound the largest rate of any group."""
    found = _counted(counts, notion, kept)
    upper, binding = 0.0, NOTHING
    highs = clopper_pearson(found.hits, found.rows, alpha)[1]
    cells = [tuple(cell) for cell in np.argwhere(found.rows > 0)]
    for g, e in cells:
        if highs[g, e] > upper:
            upper, binding = float(highs[g, e]), f"{found.events[e]}, group {found.groups[g]}"
    return Bound(
        max((_rate(found, *cell) for cell in cells), default=float("nan")),
        upper if cells else 1.0,
        binding,
        "exact binomial bound (Clopper and Pearson 1934); rates: the same, jointly",
        _rate_bounds(found, alpha),
    )


def _rate(found: _Counted, g: int, e: int) -> float:
    return float(found.hits[g, e] / found.rows[g, e]) if found.rows[g, e] else float("nan")


def _largest_difference(
    found: _Counted, pairs: Sequence[tuple[int, int, int]], alpha: float
) -> tuple[float, str]:
    """The largest bound: first where it is likely, so that the others need one test each."""

    def numbers(g: int, h: int, e: int) -> tuple[tuple[int, int], tuple[int, int]]:
        hits, rows = found.hits[:, e], found.rows[:, e]
        return (int(hits[g]), int(hits[h])), (int(rows[g]), int(rows[h]))

    def likely(pair: tuple[int, int, int]) -> float:
        (k1, k2), (n1, n2) = numbers(*pair)
        p, q = (k1 + 1) / (n1 + 2), (k2 + 1) / (n2 + 2)
        error = np.sqrt(p * (1 - p) / (n1 + 1) + q * (1 - q) / (n2 + 1))
        return float(p - q + norm.isf(alpha) * error)

    upper, binding = 0.0, NOTHING
    for pair in sorted(pairs, key=likely, reverse=True):
        hits, rows = numbers(*pair)
        if min(rows) and difference_p_value(hits, rows, upper, alpha / 50) <= alpha:
            continue  # its bound is not larger
        bound = difference_bound(hits, rows, alpha)
        if bound > upper:
            g, h, e = pair
            upper = bound
            binding = f"{found.events[e]}: group {found.groups[g]} less group {found.groups[h]}"
    return upper, binding


def _rate_bounds(found: _Counted, alpha: float) -> list[dict[str, Any]]:
    """All rates, with intervals that hold together with probability 1 - alpha."""
    counted = found.rows > 0
    low, high = clopper_pearson(found.hits, found.rows, alpha / (2 * max(int(counted.sum()), 1)))
    return [
        {
            "event": event,
            "group": group,
            "rows": int(found.rows[g, e]),
            "hits": int(found.hits[g, e]),
            "rate": _rate(found, g, e),
            "low": float(low[g, e]),
            "high": float(high[g, e]),
        }
        for e, event in enumerate(found.events)
        for g, group in enumerate(found.groups)
        if counted[g, e]
    ]


def partial_parity_bound(
    counts: Counts, notion: Rates, intervals: Intervals, alpha: float
) -> Bound:
    """Bound the largest difference in the rates of decisions inside an interval of ranks.

    The rate inside grows with the rate of all rows, so that bounds of one are bounds of the other.
    """
    found = _counted(counts, notion, np.array(True))
    rates = found.hits / np.where(found.rows > 0, found.rows, np.nan)
    bounds = clopper_pearson(found.hits, found.rows, alpha / 2)
    low, middle, high = (fraction_inside(r, *intervals) for r in (bounds[0], rates, bounds[1]))
    upper, binding = 0.0, NOTHING
    for g, h in permutations(range(len(found.groups)), 2):
        worst = int((high[g] - low[h]).argmax())
        if high[g, worst] - low[h, worst] > upper:
            upper = float(high[g, worst] - low[h, worst])
            event, groups = found.events[worst], found.groups
            binding = f"{event}: group {groups[g]} less group {groups[h]}"
    return Bound(
        float(np.ptp(middle, axis=0).max()),
        upper,
        binding,
        "exact binomial bounds (Clopper and Pearson 1934) of each pair of rates",
        _rate_bounds(found, alpha),
    )


# --- AUCs -----------------------------------------------------------------------------------------


def auc_bound(
    scores: Array, positive: Array, group: Array, groups: list[str], name: str, alpha: float
) -> Bound:
    r"""Bound the largest absolute AUC comparison, by bounded differences.

    A row of a set with m rows moves an AUC by at most 1 / m: deviations t have probability at most
    :math:`\exp(-2 t^2 / \sum c_i^2)` (McDiarmid 1989). For one AUC of two separate sets Hoeffding's
    bound (1963, section 5) of U-statistics, :math:`\exp(-2 \min(m, n) t^2)`, is never wider.

    Both are given the sizes m of the sets. An AUC against all groups is then one against a mixture
    in which each group has its fraction of these rows.
    """
    n_groups = len(groups)
    cell = np.where(positive, n_groups, 0) + group
    n_cells = 2 * n_groups
    sets = COMPARISONS[name](n_groups).reshape(-1, 4, n_cells)
    rows: Array = np.bincount(cell, minlength=n_cells).astype(float)
    table = win_table(scores, cell, np.ones(len(scores)), n_cells)
    estimates = auc_differences(table, rows, sets)
    moves = np.array([_moves(four, rows) for four in sets])
    uppers = np.abs(estimates) + np.sqrt(moves * np.log(1 / alpha) / 2)
    uppers = np.where(np.isnan(estimates), 1.0, uppers)
    joint = np.sqrt(moves * np.log(2 * len(sets) / alpha) / 2)  # both sides of all comparisons
    pairs = list(combinations(groups, 2))
    against = [f"group {g} and group {h}" for g, h in pairs]
    if name in _AGAINST_ALL:
        against = [f"group {g} and all groups" for g in groups]
    worst = int(uppers.argmax())
    rates = [
        {"event": name, "group": text, "rate": a, "low": max(a - w, -1.0), "high": min(a + w, 1.0)}
        for text, a, w in zip(against, estimates.tolist(), joint.tolist(), strict=True)
    ]
    return Bound(
        float(np.abs(estimates).max()),
        min(float(uppers[worst]), 1.0),
        against[worst],
        "bounded differences of U-statistics (Hoeffding 1963, McDiarmid 1989)",
        rates,
        _OF_MIXTURES if name in _AGAINST_ALL else (),
    )


_AGAINST_ALL = ("positive_equality_gap", "negative_equality_gap", "bpsn_bnsp")
_OF_MIXTURES = (
    "each group's fraction of the samples with one label is the same here and in the population.",
)


def _moves(four: Array, rows: Array) -> float:
    """Sum of the squares of what single rows can change in AUC(G1, G1') - AUC(G2, G2')."""
    pairs = [p for p in (four[:2], four[2:]) if not np.array_equal(p[0], p[1])]  # else 1/2 for sure
    with np.errstate(divide="ignore", invalid="ignore"):
        if len(pairs) == 1 and not (pairs[0][0] * pairs[0][1]).any():
            return float(1.0 / (pairs[0] @ rows).min())
        change = sum(s / (s @ rows) for pair in pairs for s in pair)
        return float(np.nan_to_num(rows * change**2, nan=np.inf).sum())


# --- distributions of scores ----------------------------------------------------------------------


class _Band(NamedTuple):
    """Ranks between their bounds, (n_groups, m), falling from 1 to 0 for certain.

    A column is the ranks at all thresholds between two neighbouring scores.
    """

    low: Array
    rank: Array
    high: Array
    intervals: Intervals

    def inside(self) -> tuple[Array, Array, Array]:
        """Fractions inside the interval above these thresholds."""
        lower, upper = self.intervals
        low, middle, high = (
            fraction_inside(r, lower, upper) for r in (self.low, self.rank, self.high)
        )
        return low, middle, high


def _band(rank: Array, rows: Array, alpha: float, intervals: Intervals) -> _Band:
    """The bands of Dvoretzky, Kiefer and Wolfowitz, each with probability 1 - alpha."""
    half = distribution_band(rows, alpha)[:, None]
    ends = ((0, 0), (1, 1))  # at minus and plus infinity, beyond all scores there can be
    low, middle, high = (
        np.pad(ranks, ends, constant_values=((0, 0), (1.0, 0.0)))
        for ranks in (np.clip(rank - half, 0.0, 1.0), rank, np.clip(rank + half, 0.0, 1.0))
    )
    return _Band(low, middle, high, intervals)


def _statistical_parity(band: _Band) -> tuple[Array, Array]:
    low, middle, high = band.inside()
    return _gaps(middle, middle).max(axis=2), _gaps(high, low).max(axis=2)


def _rank_parity(band: _Band) -> tuple[Array, Array]:
    low, middle, high, intervals = band
    found = []
    for bottom, top in ((middle, middle), (low, high)):
        inside = may_be_inside(bottom, top, intervals)
        either = inside[:, None] | inside[None]
        found.append(np.where(either, _gaps(top, bottom), 0.0).max(axis=2))
    return found[0], found[1]


def _group_auc(band: _Band) -> tuple[Array, Array]:
    """AUC(g, h) - 1/2 grows with the scores of g and falls with those of h."""
    low, middle, high = band.inside()
    bound = np.zeros((len(low), len(low)))
    for g, h in permutations(range(len(low)), 2):
        bound[g, h] = auc_inside(np.stack((high[g], low[h])))[0, 1] - 0.5
    return auc_inside(middle) - 0.5, bound


def _gaps(upper: Array, lower: Array) -> Array:
    return np.asarray(upper[:, None] - lower[None])


# The gaps of all pairs of groups and their upper bounds, and which sides of the bands these need.
# Of a band whose sides have changed places it gives lower bounds.
DISTRIBUTIONS: Mapping[str, tuple[Callable[[_Band], tuple[Array, Array]], int]] = {
    "statistical_parity": (_statistical_parity, 1),
    "rank_parity": (_rank_parity, 2),
    "group_auc": (_group_auc, 1),
}


def distribution_bound(
    scores: Array, group: Array, groups: list[str], intervals: Intervals, name: str, alpha: float
) -> Bound:
    """Bound the largest gap between two groups' distributions inside the interval.

    The bands of the two groups hold at all thresholds at once (Dvoretzky, Kiefer and Wolfowitz):
    one side of each, with probability 1 - alpha / 2, or both where ranks say what is inside. For
    the bounds of all gaps together both sides of all groups' bands hold.
    """
    gap, sides = DISTRIBUTIONS[name]
    rank = rank_of_scores(scores, group, np.ones(len(scores)), len(groups)).rank
    rows = np.bincount(group, minlength=len(groups))
    gaps, bounds = gap(_band(rank, rows, alpha / sides, intervals))
    np.fill_diagonal(bounds, 0.0)
    g, h = np.unravel_index(int(bounds.argmax()), bounds.shape)
    joint = _band(rank, rows, alpha / len(groups), intervals)
    highs, lows = (gap(band)[1] for band in (joint, joint._replace(low=joint.high, high=joint.low)))
    rates = [
        {
            "event": name,
            "group": f"group {groups[a]} less group {groups[b]}",
            "rate": float(gaps[a, b]),
            "low": float(lows[a, b]),
            "high": float(highs[a, b]),
        }
        for a, b in permutations(range(len(groups)), 2)
    ]
    return Bound(
        float(gaps.max()),
        min(float(bounds.max()), 1.0),
        f"group {groups[g]} less group {groups[h]}",
        "bands of distribution functions (Dvoretzky, Kiefer and Wolfowitz 1956, Massart 1990)",
        rates,
    )
