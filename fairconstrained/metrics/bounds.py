"""Intervals and bounds for proportions, their differences, AUCs and distribution functions.

Wilson's interval covers with the stated probability on average over rates and sizes; Clopper and
Pearson's covers at least that for *every* rate and size, and pays for it in length. Reports use the
first, certificates the second. Bounds of gaps and caps hold for any distribution and any number of
rows: see ``certify``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations, permutations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import bdtr
from scipy.stats import beta, norm

from fairconstrained.arrays import Array, Floats, Ints, bisected
from fairconstrained.metrics.auc import AUCGap
from fairconstrained.metrics.inputs import Counts
from fairconstrained.metrics.partial import Scored
from fairconstrained.percentiles import Intervals, auc_inside
from fairconstrained.rate_definitions import Rates

# Cells of the grid of possible rates. The bound of a cell is taken at two of its corners, so
# smaller cells give tighter bounds.
N_CELLS = 64
# Values of the count that is summed over: every likely value for up to 80,000 rows, and for more
# rows blocks of neighbours, whose last value bounds the others.
N_POINTS = 2048
# Coarse blocks first: they are valid too, and leave few cells to be summed over once more.
N_COARSE = 64
# Standard deviations of Y around its mean that are summed over. The rest has a probability below
# 1e-11, which is added to the bound.
N_DEVIATIONS = 7.0


def wilson(hits: ArrayLike, rows: ArrayLike, confidence: float = 0.95) -> tuple[Array, Array]:
    """Return the score interval of a rate (Wilson 1927): p with |hits / n - p| within z sd(p).

    Rows may be fractions; without rows both ends are nan. Recommended by Brown, Cai and DasGupta,
    "Interval estimation for a binomial proportion", Statistical Science 16 (2001).
    """
    n = _positive(rows)
    p, z = np.asarray(hits, dtype=float) / n, norm.ppf(0.5 + confidence / 2)
    centre = (p + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
    # Without hits the lower end is zero, up to rounding; likewise the upper one.
    return np.clip(centre - half, 0.0, p), np.clip(centre + half, p, 1.0)


def clopper_pearson(hits: ArrayLike, rows: ArrayLike, alpha: ArrayLike) -> tuple[Array, Array]:
    """Return exact bounds of a proportion, each at level alpha (Clopper and Pearson 1934).

    Both hold with probability at least 1 - 2 alpha. Without rows they are 0 and 1.
    """
    k, n = np.asarray(hits, dtype=float), np.asarray(rows, dtype=float)
    with np.errstate(invalid="ignore"):
        low = np.where(k > 0, beta.ppf(alpha, k, n - k + 1), 0.0)
        high = np.where(k < n, beta.isf(alpha, k + 1, n - k), 1.0)
    return low, high


def newcombe_auc(
    auc: ArrayLike, positives: ArrayLike, negatives: ArrayLike, confidence: float = 0.95
) -> tuple[Array, Array]:
    r"""Return the score interval of an AUC: the values a with \|AUC - a\| within z sd(a).

    With Hanley and McNeil's variance, whose sizes Newcombe replaces by their mean,

    .. math:: \frac{a (1 - a)}{m n} \Big( 1 + \big( \tfrac{m + n}{2} - 1 \big)
              \big( \tfrac{1 - a}{2 - a} + \tfrac{a}{1 + a} \big) \Big),

    an AUC of 1 on a few rows still has an interval (Newcombe, "Confidence intervals for an effect
    size measure based on the Mann-Whitney statistic, part 2", Statistics in Medicine 25, 2006,
    method 5). Where there is no AUC both ends are nan.
    """
    m, n = _positive(positives), _positive(negatives)
    observed = np.asarray(auc, dtype=float) + 0.0 * (m + n)
    z = norm.ppf(0.5 + confidence / 2)

    def edge(outer: float) -> Array:
        """Find the end of the interval between the AUC and an outer value, by bisection."""

        def inside(a: Array) -> Any:
            more = (0.5 * (m + n) - 1.0) * ((1 - a) / (2 - a) + a / (1 + a))
            return np.square(observed - a) <= z**2 * a * (1 - a) * (1 + more) / (m * n)

        near, far = bisected(inside, observed, np.full_like(observed, outer), 50)
        return np.asarray(0.5 * (near + far))

    return edge(0.0), edge(1.0)


def distribution_band(rows: ArrayLike, alpha: float) -> Array:
    r"""Bound the largest distance of an empirical distribution function from the true one.

    :math:`\sqrt{\log(2 / \alpha) / (2 n)}` (Dvoretzky, Kiefer and Wolfowitz 1956, with Massart's
    constant, 1990), for any distribution and any n, with probability 1 - alpha.
    """
    return np.asarray(np.sqrt(np.log(2.0 / alpha) / (2.0 * np.asarray(rows, dtype=float))))


def _positive(rows: ArrayLike) -> Array:
    n = np.asarray(rows, dtype=float)
    return np.where(n > 0, n, np.nan)


# --- differences and ratios of two proportions ----------------------------------------------------


def excludes_difference(
    hits: tuple[int, int], rows: tuple[int, int], delta: float, alpha: float, factor: float = 1.0
) -> bool:
    r"""Test at level alpha whether the difference of two rates is below delta.

    The p-value of an observed difference d is at most

    .. math:: \sup_{p_2} \; P(c X / n_1 - Y / n_2 \leq d) + \gamma , \quad
              X \sim \mathrm{Bin}(n_1, (p_2 + \delta) / c), \; Y \sim \mathrm{Bin}(n_2, p_2),

    with a factor c, which is 1 for a difference, and the ratio to be tested with a delta of zero,
    over the rates that lie in Clopper-Pearson intervals which fail with probability :math:`\gamma`
    (Berger and Boos 1994). It falls with p_1 and grows with p_2, so that on a cell of a grid the
    rates at two of its corners bound it. A union bound over both rates would be wider by half.
    """
    (k1, k2), (n1, n2), gamma = hits, rows, alpha / 50
    observed = factor * k1 / n1 - k2 / n2
    if delta <= observed:
        return False
    hoeffding = float(np.exp(-2.0 * (delta - observed) ** 2 / (factor**2 / n1 + 1.0 / n2)))
    if hoeffding + gamma <= alpha:  # larger than the probability at any rates: enough
        return True
    lows, highs = clopper_pearson([k1, k2], [n1, n2], gamma / 4)
    low = max(lows[1], factor * lows[0] - delta, 0.0)
    high = min(highs[1], factor * highs[0] - delta, factor - delta)
    if low > high:
        return True
    edges = np.linspace(low, high, N_CELLS + 1)
    corners = np.clip(((edges[:-1] + delta) / factor, edges[1:]), 0.0, 1.0)

    def p_values(cells: Any, n_points: int) -> Floats:
        return _at_most(observed, rows, corners[:, cells], (factor, 1.0), n_points) + gamma

    coarse = p_values(slice(None), N_COARSE)
    doubtful = np.argsort(-coarse)[: np.count_nonzero(coarse > alpha)]
    starts = range(0, len(doubtful), 8)  # the likeliest first: most often they decide
    return not any((p_values(doubtful[i : i + 8], N_POINTS) > alpha).any() for i in starts)


def excludes_shortfall(
    hits: tuple[int, int], rows: tuple[int, int], shortfall: float, alpha: float
) -> bool:
    """Test at level alpha whether the second rate is more than 1 - shortfall times the first."""
    # No rate is below zero.
    return shortfall >= 1.0 or excludes_difference(hits, rows, 0.0, alpha, 1.0 - shortfall)


class Comparison(NamedTuple):
    """A comparison of two rates, at most 1, which decreases in the second rate."""

    of_rates: Callable[[float, float], float]
    #: Tests, from hits, rows, a value and a level, whether the true comparison is below the value.
    excludes: Callable[[tuple[int, int], tuple[int, int], float, float], bool]
    words: str  # of groups g and h
    method: str

    def bound(self, hits: tuple[int, int], rows: tuple[int, int], alpha: float) -> float:
        """Bound the comparison from above with probability 1 - alpha; 1 if a rate has no rows."""
        if min(rows) == 0:
            return 1.0
        observed = self.of_rates(hits[0] / rows[0], hits[1] / rows[1])

        def possible(value: float) -> bool:
            return not self.excludes(hits, rows, value, alpha)

        return float(bisected(possible, observed, 1.0, 12)[1])


DIFFERENCE = Comparison(
    lambda first, second: first - second,
    excludes_difference,
    "{g} vs {h}",
    "exact test of the difference of two binomial proportions for each pair of groups "
    "(unconditional, Berger and Boos 1994)",
)
# The fraction by which the second rate falls short of the first: one minus their ratio.
SHORTFALL = Comparison(
    lambda first, second: 1.0 - second / first if first > 0 else 0.0,
    excludes_shortfall,
    "{h} falls short of {g}",
    "exact test of the ratio of two binomial proportions for each pair of groups "
    "(unconditional, Berger and Boos 1994)",
)


def _at_most(
    observed: float,
    n: tuple[int, int],
    p: Array,
    factors: tuple[float, float],
    n_points: int,
) -> Floats:
    """Bound P(c X / n1 - d Y / n2 <= observed) for pairs of rates, (2, m), and factors c, d.

    The result is exact up to rounding if Y has at most `n_points` likely values. Otherwise
    neighbours form blocks: P(X ...) grows with Y, so that its value at the end of a block bounds
    the others.
    """
    (n1, n2), (p1, p2), (c, d) = n, p, factors
    if n2 > n1:  # sum over the smaller one: failures of Y and X change places
        return _at_most(observed + d - c, (n2, n1), 1.0 - p[::-1], (d, c), n_points)
    deviation = np.sqrt(n2 * p2 * (1.0 - p2)).max()
    width = int(N_DEVIATIONS * deviation) + 20
    size = -(-(2 * width + 1) // n_points)
    last = np.rint(n2 * p2)[:, None] + np.arange(-width, width + size, size)  # of each block
    ends = np.clip(last, 0, n2)
    mass = np.diff(bdtr(ends, n2, p2[:, None]) * (last >= 0), axis=1, prepend=0.0)
    most = np.floor(n1 * (observed + d * ends / n2) / c + 1e-9)
    below = np.where(most < 0, 0.0, bdtr(np.clip(most, 0, n1), n1, p1[:, None]))
    return np.asarray((mass * below).sum(axis=1) + 1e-11)


# --- gaps and caps --------------------------------------------------------------------------------


class Bound(NamedTuple):
    """Estimate and upper confidence bound of a violation."""

    estimate: float  # the criterion on these rows
    upper: float  # its bound
    binding: str  # which difference or rate the bound comes from
    method: str
    rates: list[dict[str, Any]]  # each with its simultaneous bounds
    assumptions: tuple[str, ...] = ()  # of this bound, beyond those of every certificate


NOTHING, NAN = "no rates to compare", float("nan")


def rate_facts(
    events: Sequence[str], groups: Sequence[str], cells: Array, **columns: Array
) -> list[dict[str, Any]]:
    """Return a record for each cell, with its group, its event and its entries in the columns."""
    return [
        {"event": events[e], "group": groups[g]}
        | {name: values[g, e].item() for name, values in columns.items()}
        for g, e in cells
    ]


class _Counted:
    """Rates (n_groups, n_events), with whole counts for bounds; cells left out count no rows."""

    def __init__(self, counts: Counts, notion: Rates, kept: Any = True) -> None:
        rates = counts.rates(notion)
        self.events, self.groups = list(rates.events), rates.groups
        hits, rows = (np.where(kept, weight, 0.0) for weight in rates[:2])
        self.hits, self.rows = (np.rint(weight).astype(np.int64) for weight in (hits, rows))
        self.values = hits / np.where(rows > 0, rows, np.nan)

    def compared(self, g: int, h: int, e: int, words: str) -> str:
        """Describe the comparison of two groups' rates of one event."""
        groups = words.format(g=f"group {self.groups[g]}", h=f"group {self.groups[h]}")
        return f"{groups}, {self.events[e]}"

    def bounds(self, alpha: float) -> list[dict[str, Any]]:
        """Return all rates, with intervals that all hold at once with probability 1 - alpha."""
        cells = np.argwhere(self.rows.T > 0)[:, ::-1]
        low, high = clopper_pearson(self.hits, self.rows, alpha / (2 * max(len(cells), 1)))
        columns = {"rows": self.rows, "hits": self.hits, "rate": self.values}
        return rate_facts(self.events, self.groups, cells, **columns, low=low, high=high)


def parity_bound(
    counts: Counts, notion: Rates, alpha: float, kept: Array, comparison: Comparison, sets: Ints
) -> Bound:
    """Bound the worst comparison of any event's rate between two groups of the same set.

    Cells that are `kept` count; `sets` has the number of each group's set.
    """
    counted, pairs = _Counted(counts, notion, kept), _compared_pairs(kept, sets)
    # Pairs whose bounds are likely to be large come first, so that the others need one test each.
    p = (counted.hits + 1) / (counted.rows + 2)
    variance = p * (1 - p) / (counted.rows + 1)
    likely = p[:, None] - p + norm.isf(alpha) * np.sqrt(variance[:, None] + variance)
    upper, binding = 0.0, NOTHING
    for g, h, e in sorted(pairs, key=likely.__getitem__, reverse=True):
        hits = int(counted.hits[g, e]), int(counted.hits[h, e])
        rows = int(counted.rows[g, e]), int(counted.rows[h, e])
        if min(rows) and comparison.excludes(hits, rows, upper, alpha):
            continue  # its bound is not larger
        bound = comparison.bound(hits, rows, alpha)
        if bound > upper:
            upper, binding = bound, counted.compared(g, h, e, comparison.words)
    if len({e for *_, e in pairs}) < len(counted.events):  # an event without pairs is not certified
        upper, binding = 1.0, NOTHING
    method = f"{comparison.method}; rates: Clopper-Pearson, jointly"
    estimate = worst_value(*counts.rates(notion)[:2], kept, comparison, sets)
    return Bound(estimate, upper, binding, method, counted.bounds(alpha))


def _compared_pairs(kept: Array, sets: Ints) -> list[tuple[int, int, int]]:
    """Return the pairs of compared groups of one set, in both orders, each with its event."""
    return [
        (g, h, e)
        for e in range(kept.shape[1])
        for g, h in permutations(np.flatnonzero(kept[:, e]).tolist(), 2)
        if sets[g] == sets[h]
    ]


def worst_value(
    hits: Array, rows: Array, compared: Array, comparison: Comparison | None, sets: Any = 0
) -> float:
    """Return the worst comparison of rates, (n_groups, n_events), or without one the largest rate.

    Cells that are `compared` count, and groups of the same set are compared; nan if there are none.
    """
    values, sets = hits / np.where(compared, rows, np.nan), np.broadcast_to(sets, len(compared))
    together = [
        values[inside & (sets == one), event]
        for event, inside in enumerate(compared.T)
        for one in np.unique(sets)
    ]
    if comparison is None:
        return max((float(rates.max()) for rates in together if len(rates)), default=NAN)
    ends = [(float(rates.max()), float(rates.min())) for rates in together if len(rates) > 1]
    # Rates of zero have no ratio.
    some = (pair for pair in ends if comparison is DIFFERENCE or pair[0] > 0)
    return max((comparison.of_rates(*pair) for pair in some), default=NAN)


def cap_bound(counts: Counts, notion: Rates, alpha: float, kept: Array) -> Bound:
    """Bound the largest rate of any group."""
    counted = _Counted(counts, notion, kept)
    method = "exact binomial bound (Clopper and Pearson 1934); rates: the same, jointly"
    if not counted.rows.any():
        return Bound(NAN, 1.0, NOTHING, method, [])
    highs = np.where(counted.rows > 0, clopper_pearson(counted.hits, counted.rows, alpha)[1], 0.0)
    g, e = np.unravel_index(int(highs.argmax()), highs.shape)
    upper, binding = float(highs[g, e]), f"{counted.events[e]}, group {counted.groups[g]}"
    if not counted.rows.any(axis=0).all():  # an event without rows is not certified
        upper, binding = 1.0, NOTHING
    highest = float(np.nanmax(counted.values))
    return Bound(highest, upper, binding, method, counted.bounds(alpha))


def partial_parity_bound(
    counts: Counts, notion: Rates, intervals: Intervals, alpha: float, kept: Array
) -> Bound:
    """Bound the largest difference in the rates of decisions inside an interval of ranks.

    Cells (n_groups, n_events) that are `kept` count. The rate inside grows with the rate of all
    rows, so that bounds of the second give bounds of the first.
    """
    counted = _Counted(counts, notion, kept)
    bounds = clopper_pearson(counted.hits, counted.rows, alpha / 2)
    low, high = (intervals.fraction(rates) for rates in bounds)
    compared = kept[:, None] & kept & ~np.eye(len(low), dtype=bool)[:, :, None]
    differences = np.where(compared, _gaps(high, low), 0.0)  # (n_groups, n_groups, n_events)
    g, h, e = map(int, np.unravel_index(int(differences.argmax()), differences.shape))
    inside = intervals.fraction(counted.values)
    observed = np.where(compared, _gaps(inside, inside), 0.0)
    upper, binding = float(differences[g, h, e]), counted.compared(g, h, e, DIFFERENCE.words)
    if not compared.any(axis=(0, 1)).all():  # an event without pairs is not certified
        upper, binding = 1.0, NOTHING
    return Bound(
        float(observed.max()),
        upper,
        binding if g != h else NOTHING,
        "exact binomial bounds (Clopper and Pearson 1934) of each pair of rates",
        counted.bounds(alpha),
    )


# --- AUCs -----------------------------------------------------------------------------------------


def auc_bound(gap: AUCGap, alpha: float) -> Bound:
    r"""Bound the largest absolute difference of AUCs, by the method of bounded differences.

    A row of a set with m rows moves an AUC by at most 1 / m: deviations t have probability at most
    :math:`\exp(-2 t^2 / \sum c_i^2)` (McDiarmid 1989). For one AUC of two separate sets Hoeffding's
    bound (1963, section 5) of U-statistics, :math:`\exp(-2 \min(m, n) t^2)`, is never wider.

    Both are given the sizes m of the sets. An AUC against all groups is then one against a mixture
    in which each group has its fraction of these rows.
    """
    (ranked, name), sets = gap, gap.sets
    groups, rows, estimates = ranked.groups, ranked.weight, ranked.differences(sets)
    moves = np.array([_moves(four, rows) for four in sets])
    uppers = np.abs(estimates) + np.sqrt(moves * np.log(1 / alpha) / 2)
    uppers = np.where(np.isnan(estimates), 1.0, uppers)
    joint = np.sqrt(moves * np.log(2 * len(sets) / alpha) / 2)  # both sides of all comparisons
    against = [f"group {g} and group {h}" for g, h in combinations(groups, 2)]
    if name in AGAINST_ALL:
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
        _OF_MIXTURES if name in AGAINST_ALL else (),
    )


AGAINST_ALL = ("positive_equality_gap", "negative_equality_gap", "bpsn_bnsp")
_OF_MIXTURES = (
    "each group's fraction of the samples with one label is the same here and in the population.",
)


def _moves(four: Array, rows: Array) -> float:
    """Sum the squares of the changes that single rows can make in AUC(G1, G1') - AUC(G2, G2')."""
    pairs = [p for p in (four[:2], four[2:]) if not np.array_equal(p[0], p[1])]  # else 1/2 for sure
    with np.errstate(divide="ignore", invalid="ignore"):
        if len(pairs) == 1 and not (pairs[0][0] * pairs[0][1]).any():
            return float(1.0 / (pairs[0] @ rows).min())
        change = sum(s / (s @ rows) for pair in pairs for s in pair)
        return float(np.nan_to_num(rows * change**2, nan=np.inf).sum())


# --- distributions of scores ----------------------------------------------------------------------


_Pairs = tuple[Array, Array]  # gaps of all pairs of groups, and upper bounds


def _band(data: Scored, alpha: float) -> tuple[Array, Array, Array]:
    """Return lower bounds, estimates and upper bounds of ranks, each (n_groups, m).

    A column holds the ranks at all thresholds between two neighbouring scores, from 1 down to 0.
    Bounds (Dvoretzky, Kiefer and Wolfowitz) hold for each group with probability 1 - alpha.
    """
    rank = data.ranks().rank
    half = distribution_band(data.rows.sums(np.ones(1)), alpha)[:, None]
    ends = ((0, 0), (1, 1))  # at minus and plus infinity, beyond all scores there can be
    low, middle, high = (
        np.pad(ranks, ends, constant_values=((0, 0), (1.0, 0.0)))
        for ranks in (np.clip(rank - half, 0.0, 1.0), rank, np.clip(rank + half, 0.0, 1.0))
    )
    return low, middle, high


def _statistical_parity(low: Array, middle: Array, high: Array, intervals: Intervals) -> _Pairs:
    low, middle, high = (intervals.fraction(rank) for rank in (low, middle, high))
    return _gaps(middle, middle).max(axis=2), _gaps(high, low).max(axis=2)


def _rank_parity(low: Array, middle: Array, high: Array, intervals: Intervals) -> _Pairs:
    gaps = []
    for bottom, top in ((middle, middle), (low, high)):
        inside = intervals.may_contain(bottom, top)
        either = inside[:, None] | inside[None]
        gaps.append(np.where(either, _gaps(top, bottom), 0.0).max(axis=2))
    return gaps[0], gaps[1]


def _group_auc(low: Array, middle: Array, high: Array, intervals: Intervals) -> tuple[Array, Array]:
    """Return AUC(g, h) - 1/2 and its bound: the scores of g as high, of h as low as possible."""
    low, middle, high = (intervals.fraction(rank) for rank in (low, middle, high))
    bound = np.zeros((len(low), len(low)))
    for g, h in permutations(range(len(low)), 2):
        bound[g, h] = auc_inside(np.stack((high[g], low[h])))[0, 1] - 0.5
    return auc_inside(middle) - 0.5, bound


def _gaps(upper: Array, lower: Array) -> Array:
    return np.asarray(upper[:, None] - lower[None])


# Functions that return gaps and their upper bounds, and the number of sides of each band that they
# use. If the sides of a band are swapped, they return lower bounds.
DISTRIBUTIONS: Mapping[str, tuple[Callable[..., _Pairs], int]] = {
    "statistical_parity": (_statistical_parity, 1),
    "rank_parity": (_rank_parity, 2),
    "group_auc": (_group_auc, 1),
}


def distribution_bound(data: Scored, name: str, alpha: float) -> Bound:
    """Bound the largest gap between two groups' distributions inside the interval.

    The bands of the two groups hold at all thresholds at once (Dvoretzky, Kiefer and Wolfowitz):
    one side of each, with probability 1 - alpha / 2, or both where ranks say what is inside. For
    the bounds of all gaps together both sides of all groups' bands hold.
    """
    gap, sides = DISTRIBUTIONS[name]
    groups = data.rows.names
    gaps, bounds = gap(*_band(data, alpha / sides), data.intervals)
    np.fill_diagonal(bounds, 0.0)
    g, h = np.unravel_index(int(bounds.argmax()), bounds.shape)
    low, rank, high = _band(data, alpha / len(groups))
    (_, highs), (_, lows) = (
        gap(*of, data.intervals) for of in ((low, rank, high), (high, rank, low))
    )
    rates = [
        {
            "event": name,
            "group": f"group {groups[a]} vs group {groups[b]}",
            "rate": float(gaps[a, b]),
            "low": float(lows[a, b]),
            "high": float(highs[a, b]),
        }
        for a, b in permutations(range(len(groups)), 2)
    ]
    return Bound(
        float(gaps.max()),
        min(float(bounds.max()), 1.0),
        f"group {groups[g]} vs group {groups[h]}",
        "bands of distribution functions (Dvoretzky, Kiefer and Wolfowitz 1956, Massart 1990)",
        rates,
    )
