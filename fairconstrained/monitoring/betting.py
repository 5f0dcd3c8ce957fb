r"""Evidence that may be looked at after every row: bets against the claim that a rule is kept.

A *payoff* of outcomes has a mean of at most zero if the rule is kept, and is never below -1. Who
bets a fraction :math:`\lambda < 1` of his wealth on it, again and again, has after t payoffs

.. math:: W_t(\lambda) = \prod_{s \leq t} (1 + \lambda\, d_s),

which is not expected to grow if the rule is kept: :math:`P(\exists t: W_t \geq 1 / \alpha) \leq
\alpha` (Ville 1939), however often one looks. So is every mixture of such wealths over bets,
comparisons and times to begin. Caps bet on each row, gaps and ratios on pairs of rows within
windows of at most eight rows of two groups, 64 rows long at most: see :class:`Comparison`.

Sources: Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting", JRSS B
86 (2024); Chugg, Cortes-Gomez, Wilder and Ramdas, "Auditing fairness by betting", NeurIPS 2023.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import comb

from fairconstrained.arrays import Array, Floats, Ints, bisected

# Paper: one bet, which follows the payoffs (online Newton steps); here: a mixture of constant ones,
# because its wealth is a function of how often each payoff came: parts merge, and any slack can be
# tested afterwards. The best bet is the excess over the slack divided by the variance.
BETS = 0.96 * 0.5 ** np.arange(8)
SHARES = np.exp(-0.5 * (np.log(BETS / 0.36) / 0.7) ** 2)
SHARES /= SHARES.sum()
# Share of the stake that is bet from the start. The rest is bet later, because early bets have lost
# much where a rule is broken after a long time.
FROM_THE_START = 0.9
# Payoffs after which half of that rest is bet; after three times as many a quarter is left.
LATER = 500.0
# Rows of two groups in a window: a shorter one learns less from them, a longer one assumes that
# rates stay constant for longer (decisions: monitors compare rows of the same time).
WINDOW = 8
# Rows of the stream from the first of a window to the last: eight rows of two small groups, or of a
# rare label, would otherwise be hundreds of rows apart, and seasons would count as gaps.
LENGTH = 64
# From so many rows of two groups in a call on, they are compared with each other only: a day, say,
# has its own rates and fractions. With fewer rows more than a quarter of the evidence is lost.
TOGETHER = 4
# Ends of intervals are right to 2^-14, .00006.
_HALVINGS = 14
# Payoffs at a time: their wealth by bet and claim takes a few MB.
_SLICE = 10_000
# Logarithm of wealth: beyond e^600 nothing changes any more, and double precision ends at e^709.
_LOG_MOST = 600.0

# All possible windows with rows of both groups: number of rows, rows and hits of the first group,
# hits of the second.
_SIZE, _ROWS, _FIRST, _SECOND = np.array(
    [
        (size, rows, first, second)
        for size in range(2, WINDOW + 1)
        for rows in range(1, size)
        for first in range(rows + 1)
        for second in range(size - rows + 1)
    ]
).T
_CELLS = np.zeros((WINDOW + 1,) * 4, dtype=np.int64)
_CELLS[_SIZE, _ROWS, _FIRST, _SECOND] = np.arange(len(_ROWS))
_SWAPPED = _CELLS[_SIZE, _SIZE - _ROWS, _SECOND, _FIRST]  # the groups change places


class _Outcomes(NamedTuple):
    """The payoffs of each cell, whose growth is a mean over terms: over products of payoffs."""

    cell: Ints  # of each term, rising
    chance: Floats  # of the term in its cell
    times: Ints  # (n_terms, n_payoffs): how often each payoff comes
    part: Floats  # of the bet that is on each payoff

    def select(self, some: NDArray[np.bool_]) -> _Outcomes:
        """Select the terms of some cells, and renumber the cells."""
        number, terms = np.cumsum(some) - 1, some[self.cell]
        chance, times, part = self.chance[terms], self.times[terms], self.part[terms]
        return _Outcomes(number[self.cell[terms]], chance, times, part)

    def log_factors(self, payoffs: Floats) -> Floats:
        """Return the log growth of each bet on each claim in each cell, (n_cells, n_claims * 8)."""
        parts, place = np.unique(self.part, return_inverse=True)
        # (n_parts, n_payoffs, n_claims, n_bets)
        one = np.log1p(payoffs.T[:, :, None] * np.multiply.outer(parts, BETS)[:, None, None])
        logs = np.einsum("tp,tpcb->tcb", self.times, one[place])
        first = np.flatnonzero(np.diff(self.cell, prepend=-1))
        growth = np.log(np.add.reduceat(self.chance[:, None, None] * np.exp(logs), first))
        return np.asarray(growth.reshape(len(growth), -1))


def _matchings() -> _Outcomes:
    """Return the numbers of pairs (0, 0), (0, 1), (1, 0), (1, 1) in random matchings of a window.

    Their chances are hypergeometric: first of i and j hits among the k matched rows of each group,
    then of the number of pairs in which both are hits.
    """
    terms = []
    for cell, (size, n, a, b) in enumerate(zip(_SIZE, _ROWS, _FIRST, _SECOND, strict=True)):
        m = size - n
        k = min(n, m)
        for i, j, both in product(range(k + 1), repeat=3):
            ways = comb([a, n - a, b, m - b, i, k - i], [i, k - i, j, k - j, both, j - both])
            if (chance := ways.prod() / comb([n, m, k], [k, k, j]).prod()) > 0:
                times = k - i - j + both, j - both, i - both, both
                terms.append((cell, chance, times, max(n, m) / size))
    return _Outcomes(*map(np.array, zip(*terms, strict=True)))


# By the number of payoffs: a row has two outcomes, and a pair of rows has four.
_OUTCOMES = {
    2: _Outcomes(np.arange(2), np.ones(2), np.eye(2, dtype=np.int64), np.ones(2)),
    4: _matchings(),
}

# Payoffs (n_claims, 2 or 4), with means of at most zero if the violation is at most v.
Payoffs = Callable[[float], Floats]


def gap_payoffs(v: float) -> Floats:
    """Return payoffs against a gap of at most v, of either group's rate less the other's."""
    return np.array([[0, -1, 1, 0], [0, 1, -1, 0]]) / (1.0 + v) - v / (1.0 + v)


def ratio_payoffs(v: float) -> Floats:
    """Return payoffs against ratios of at least 1 - v, of either group's rate to the other's."""
    return np.array([[0.0, -1.0, 1.0 - v, -v], [0.0, 1.0 - v, -1.0, -v]])


def cap_payoffs(v: float) -> Floats:
    """Return payoffs against a rate of at most v, of one row."""
    return np.array([[-v, 1.0 - v]])


def mixtures(counts: Array, growth: Floats) -> Floats:
    """Return the wealth of the mixture of bets on each claim, (..., n_claims)."""
    logs = np.minimum(counts @ growth, _LOG_MOST)
    return np.asarray(np.exp(logs).reshape(*logs.shape[:-1], -1, len(BETS)) @ SHARES)


class Bets(NamedTuple):
    """Growth of each bet on each claim in each cell, and its share of the stake."""

    growth: Floats  # logarithms, (n_cells, n_claims * 8)
    shares: Floats  # (n_claims * 8,)

    @classmethod
    def on(cls, payoffs: Floats) -> Bets:
        """Return the mixture of bets on claims with the given payoffs."""
        growth = _OUTCOMES[payoffs.shape[1]].log_factors(payoffs)
        return cls(growth, np.tile(SHARES, len(payoffs)) / len(payoffs))


class Comparison:
    r"""The wealth of bets on windows of rows of two groups, or on rows of one.

    Rows of the two groups, in the order in which they come, are cut into windows of eight; one that
    would be longer than 64 rows of the stream has fewer, and so may the last one of a call. Rows of
    calls with less than four such rows wait until a window is full.
    The n rows of group g and the m of group h in a window are matched at random into k pairs, as
    many as there are rows of the smaller one. A bet is on all pairs, and its growth is the mean
    over matchings:

    .. math:: G(\lambda) = \operatorname{mean} \prod_{\text{pairs } i \in g, \, j \in h}
              \Big( 1 + \lambda \, \frac{\max(n, m)}{n + m} \, d_{ij} \Big), \quad
              d_{ij} = \frac{x_i - x_j - v}{1 + v} \geq -1 .

    *Its mean.* Let row t be of group g with probability :math:`\pi_t`, with rates
    :math:`p_g(t)` and :math:`p_h(t)` that differ by at most v, all of them given the windows
    before. Given n and which two rows make up each pair, but not which of them is of which group,
    the pairs are independent. Row i is then of group g, and j of h, with probability

    .. math:: \frac{\pi_i (1 - \pi_j)}{\pi_i (1 - \pi_j) + \pi_j (1 - \pi_i)}
              = \frac{1 + \varepsilon_{ij}}{2}, \quad \varepsilon_{ij}
              = \frac{\pi_i - \pi_j}{\pi_i (1 - \pi_j) + \pi_j (1 - \pi_i)} .

    Since :math:`p_g(i) - p_h(j) - v \leq p_h(i) - p_h(j)`, and the same with i and j exchanged, no
    factor is expected to be larger than :math:`1 + \lambda\, \varepsilon_{ij}\, (p_h(i) - p_h(j))`
    :math:`\max(n, m) / (n + m) / (1 + v)`. It is one if *either* the composition *or* the rates
    stay as they are within the window: the wealth is then a supermartingale, however both move from
    window to window, and so from one call with four rows or more to the next. Of smooth movements
    of both, a cycle of n windows for example, the surplus is of the order :math:`1 / n^2`; a sudden
    change of both meets one window. If rates are constant within the window nothing is assumed of
    the order of the groups.

    To first order G is a bet on n m times the difference of the two rates in the window, the weight
    of Cochran, Mantel and Haenszel. For ratios the same holds with :math:`(1 - v) p_g` in place of
    :math:`p_g`, and 0 in place of v.
    """

    def __init__(self, bets: Bets, batch: int = 0) -> None:
        self.bets = bets
        self.batch = batch  # of groups: 0 for the first ones
        self.wealth = 1.0  # of the mixture over bets, claims and times to begin
        self.counts = np.zeros(len(bets.growth))
        # Outcomes, groups and places in the stream of less than a window.
        self.waiting = np.zeros((3, 0), dtype=np.int64)
        self.unspent = 1.0
        self.late = np.zeros_like(bets.shares)  # wealth of bets that began later

    def windows(self, outcomes: Array, first: Array, places: Array) -> Ints:
        """Return the cells of the windows that the rows of one call complete.

        `outcomes` are zeros and ones, `first` says which rows are of the first group, and `places`,
        which rise, where they are in the stream.
        """
        rows = np.array((outcomes, first, places), dtype=np.int64)
        waiting, self.waiting = self.waiting, rows[:, :0]
        if rows.shape[1] >= TOGETHER:
            return np.concatenate([_cells(part, _starts(part[2])) for part in (waiting, rows)])
        rows = np.concatenate((waiting, rows), axis=1)
        starts = _starts(rows[2])
        if len(starts) and rows.shape[1] - starts[-1] < WINDOW:
            rows, self.waiting = np.split(rows, [starts.pop()], axis=1)
        return _cells(rows, starts)

    def bet(self, cells: Array) -> None:
        """Let all bets win or lose on the cells, and begin new bets with each cell."""
        for start in range(0, len(cells), _SLICE):
            some = cells[start : start + _SLICE]
            new, self.unspent = self.begun(len(some))
            new[0] += self.late
            to_come = np.cumsum(self.bets.growth[some][::-1], axis=0)[::-1]
            self.late = (new * np.exp(np.minimum(to_come, _LOG_MOST / 2))).sum(axis=0)
            self.late = np.minimum(self.late, np.exp(_LOG_MOST / 2))
            self.counts += np.bincount(some, minlength=len(self.counts))
        if len(cells):
            self._count()

    def _count(self) -> None:
        early = np.exp(np.minimum(self.counts @ self.bets.growth, _LOG_MOST))
        late = self.unspent + self.late.sum()
        self.wealth = float(
            FROM_THE_START * (self.bets.shares @ early) + (1.0 - FROM_THE_START) * late
        )

    def begun(self, n_payoffs: int) -> tuple[Floats, float]:
        """Return the stakes of new bets on each of the next payoffs, and the stake that is left."""
        done = LATER + float(self.counts.sum())
        left = self.unspent * done / (done + np.arange(n_payoffs + 1))
        return (left[:-1] - left[1:])[:, None] * self.bets.shares, float(left[-1])

    def merge(self, other: Comparison, swapped: bool) -> None:
        """Add the windows of another comparison; its rows that wait for a full window are lost.

        Wealths of one bet on separate windows multiply: counts add. Bets that began later depend on
        an order that the parts do not have: their mean is taken.
        """
        self.counts += other.counts[_SWAPPED] if swapped else other.counts
        late = other.late.reshape(-1, len(BETS))
        self.late = 0.5 * (self.late + (late[::-1] if swapped else late).ravel())
        self.unspent = 0.5 * (self.unspent + other.unspent)
        self._count()


def _starts(places: Ints) -> list[int]:
    """Cut rows into windows, and return where each begins."""
    beyond = np.searchsorted(places, places + LENGTH)  # the first row that is too far from each
    starts, row = [], 0
    while row < len(places):
        starts.append(row)
        row = min(row + WINDOW, int(beyond[row]))
    return starts


def _cells(rows: Ints, starts: list[int]) -> Ints:
    """Return the cells of the windows with rows of both groups."""
    outcomes, first, _ = rows
    columns = np.ones_like(first), first, outcomes * first, outcomes * (1 - first)
    at = np.array(starts, dtype=np.int64)
    size, n, ones, others = (np.add.reduceat(column, at) for column in columns)
    both = (n > 0) & (n < size)
    return np.asarray(_CELLS[size, n, ones, others][both])


def interval(counts: Array, shares: Floats, payoffs: Payoffs, alpha: float) -> tuple[float, float]:
    """Bound the largest violation of the comparisons; the bounds hold at all times together.

    The upper bound needs no correction for their number: it is wrong only if it is wrong about the
    largest.
    """
    some = np.asarray(counts.any(axis=0))
    if not some.any():
        return 0.0, 1.0
    outcomes, counts = _OUTCOMES[payoffs(0.0).shape[1]].select(some), counts[:, some]

    def exceeds(v: float) -> bool:
        wealth = mixtures(counts, outcomes.log_factors(payoffs(v)))
        return bool(shares @ wealth.mean(axis=1) >= 2.0 / alpha)

    def stays_below(v: float) -> bool:
        return bool(mixtures(counts, outcomes.log_factors(-payoffs(v))).min() >= 2.0 / alpha)

    low, _ = bisected(exceeds, 0.0, 1.0, _HALVINGS)
    left, _ = bisected(lambda w: stays_below(1.0 - w), 0.0, 1.0, _HALVINGS)
    return float(low), float(1.0 - left)


def rate_bounds(hits: Array, rows: Array, alpha: float) -> tuple[Floats, Floats]:
    """Bound each rate; the bounds hold at all times together, with probability 1 - alpha."""

    def bound(sign: float) -> Floats:
        """Return the farthest rate on one side of the observed rate that is not refuted."""
        with np.errstate(invalid="ignore", divide="ignore"):
            near = np.where(rows > 0, hits / rows, 0.5)

        def possible(p: Floats) -> Any:
            won = np.log1p(np.multiply.outer(sign * (1.0 - p), BETS))
            lost = np.log1p(np.multiply.outer(-sign * p, BETS))
            logs = np.minimum(hits[..., None] * won + (rows - hits)[..., None] * lost, _LOG_MOST)
            return np.exp(logs) @ SHARES < 2.0 / alpha

        far = np.full_like(near, 0.5 - 0.5 * sign)
        return np.asarray(bisected(possible, near, far, _HALVINGS)[1])

    return bound(1.0), bound(-1.0)
