r"""Evidence that may be looked at after every row: bets against the claim that a rule is kept.

A *payoff* of outcomes has a mean of at most zero if the rule is kept: of two rows of different
groups, for example, :math:`x_g - x_h - \text{slack}`. Who bets a fraction :math:`\lambda` of his
wealth on it, again and again, has after t payoffs

.. math:: W_t(\lambda) = \prod_{s \leq t} (1 + \lambda\, d_s),

which is not expected to grow if the rule is kept: :math:`P(\exists t: W_t \geq 1 / \alpha) \leq
\alpha` (Ville 1939), however often one looks. So is every mixture of such wealths over bets,
comparisons and times to begin.

Sources: Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting", JRSS B
86 (2024); Chugg, Cortes-Gomez, Wilder and Ramdas, "Auditing fairness by betting", NeurIPS 2023.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fairconstrained.arrays import Array, Floats, bisected

# Paper: one bet, which follows the payoffs (online Newton steps); here: a mixture of constant ones,
# because its wealth is a function of how often each payoff came: parts merge, and any slack can be
# tested afterwards. The best bet is the excess over the slack divided by the variance, most often
# near 0.15.
BETS = 0.48 * 0.5 ** np.arange(7)
SHARES = np.exp(-0.5 * np.log(BETS / 0.15) ** 2)
SHARES /= SHARES.sum()
FROM_THE_START = 0.9  # of the stake; the rest is bet later, in case that the rule is broken later
LATER = 1000.0  # payoffs after which half of that rest is bet
PARTS = 12  # means of one to four outcomes are multiples of 1/12
MOST_PER_BLOCK = 4  # rows of the larger group against one of the smaller
RESERVE = 32  # waiting rows of one group that are not needed to make blocks larger
MOST_WAITING = 1000
_HALVINGS = 14
_SLICE = 10_000  # payoffs at a time
_LOG_MOST = 600.0  # of wealth; beyond it nothing changes any more

# Mean outcomes of the first and the second group in every kind of block, (n_cells,).
_FIRST, _SECOND = (part.ravel() / PARTS for part in np.mgrid[: PARTS + 1, : PARTS + 1])

# Payoffs (n_claims, n_cells), with means of at most zero if the violation is at most v.
Payoffs = Callable[[float], Floats]


def of_gap(v: float) -> Floats:
    """Of either group's rate less the other's."""
    return np.stack((_FIRST - _SECOND - v, _SECOND - _FIRST - v))


def of_ratio(v: float) -> Floats:
    """Of one minus either group's rate divided by the other's."""
    return np.stack(((1.0 - v) * _FIRST - _SECOND, (1.0 - v) * _SECOND - _FIRST))


def of_cap(v: float) -> Floats:
    """Of the rate of one group, which is the first."""
    return np.asarray(_FIRST - v)[None]


def log_factors(payoffs: Floats) -> Floats:
    """Logarithm of the growth by each bet on each claim in each cell, (n_cells, n_claims * 7)."""
    return np.log1p(payoffs.T[:, :, None] * BETS).reshape(payoffs.shape[1], -1)


def mixtures(counts: Array, payoffs: Floats) -> Floats:
    """Wealth of the mixture of bets on each claim, (..., n_claims)."""
    logs = np.minimum(counts @ log_factors(payoffs), _LOG_MOST)
    return np.asarray(np.exp(logs).reshape(*logs.shape[:-1], -1, len(BETS)) @ SHARES)


class Bets(NamedTuple):
    """Growth of each bet on each claim in each cell, and its share of the stake."""

    growth: Floats  # logarithms, (n_cells, n_claims * 7)
    shares: Floats  # (n_claims * 7,)

    @classmethod
    def on(cls, payoffs: Floats) -> Bets:
        """The mixture on claims with these payoffs."""
        return cls(log_factors(payoffs), np.tile(SHARES, len(payoffs)) / len(payoffs))


class Comparison:
    """Blocks of rows of two groups, and the wealth of bets on them.

    Rows of the two groups come in any order. A block is one row of a group and one to four waiting
    rows of the other; which ones, depends on the groups only, so that given these the blocks are
    independent, and a difference between their means has the difference of the rates as its mean.
    """

    def __init__(self, bets: Bets) -> None:
        self.bets = bets
        self.wealth = 1.0  # of the mixture over bets, claims and times to begin
        self.counts = np.zeros(len(bets.growth))
        self.waiting = [np.zeros(0, dtype=np.int8)] * 2
        self.unspent = 1.0
        self.late = np.zeros_like(bets.shares)  # wealth of bets that began later

    def pair(self, first: Array, second: Array) -> Array:
        """Return the cells of as many blocks as these and waiting rows, zeros and ones, give."""
        rows = [np.concatenate(parts) for parts in zip(self.waiting, (first, second), strict=True)]
        small = int(len(rows[1]) < len(rows[0]))
        few, many = rows[small], rows[1 - small]
        n = len(few)
        take = min(max(len(many) - RESERVE, n), MOST_PER_BLOCK * n)
        self.waiting[small], self.waiting[1 - small] = few[:0], many[take:][-MOST_WAITING:]
        if n == 0:
            return few.astype(np.int64)
        edges = np.arange(n + 1) * take // n
        sums = np.add.reduceat(many[:take], edges[:-1], dtype=np.int64)
        parts = [PARTS * few.astype(np.int64), (PARTS * sums.T // np.diff(edges)).T]
        return np.asarray((PARTS + 1) * parts[small] + parts[1 - small])

    def single(self, outcomes: Array) -> Array:
        """Return the cells of rows of the first group, each a block by itself."""
        return PARTS * (PARTS + 1) * outcomes.astype(np.int64)

    def bet(self, cells: Array) -> None:
        """Let all bets win or lose on blocks in these cells, and begin some with every block."""
        for start in range(0, len(cells), _SLICE):
            some = cells[start : start + _SLICE]
            new, self.unspent = self.begun(len(some))
            new[0] += self.late
            to_come = np.cumsum(self.bets.growth[some][::-1], axis=0)[::-1]
            self.late = (new * np.exp(np.minimum(to_come, _LOG_MOST / 2))).sum(axis=0)
            self.late = np.minimum(self.late, np.exp(_LOG_MOST / 2))
            self.counts += np.bincount(some, minlength=len(self.counts))

        self._count()

    def _count(self) -> None:
        early = np.exp(np.minimum(self.counts @ self.bets.growth, _LOG_MOST))
        late = self.unspent + self.late.sum()
        self.wealth = float(
            FROM_THE_START * (self.bets.shares @ early) + (1.0 - FROM_THE_START) * late
        )

    def begun(self, n_blocks: int) -> tuple[Floats, float]:
        """Return what is newly bet on each of the next blocks, and what is then left."""
        done = LATER + float(self.counts.sum())
        left = self.unspent * done / (done + np.arange(n_blocks + 1))
        return (left[:-1] - left[1:])[:, None] * self.bets.shares, float(left[-1])

    def merge(self, other: Comparison, swapped: bool) -> None:
        """Add the blocks of other rows; rows that wait there are lost.

        Wealths of one bet on independent blocks multiply: counts add. Those of bets that began
        later in either part depend on an order that the parts do not have: their mean is taken.
        """
        shape = PARTS + 1, PARTS + 1
        counts = other.counts.reshape(shape)
        self.counts += (counts.T if swapped else counts).ravel()
        late = other.late.reshape(-1, len(BETS))
        self.late = 0.5 * (self.late + (late[::-1] if swapped else late).ravel())
        self.unspent = 0.5 * (self.unspent + other.unspent)
        self._count()


def interval(counts: Array, shares: Floats, payoffs: Payoffs, alpha: float) -> tuple[float, float]:
    """Bounds of the largest violation of the comparisons, which hold at all times together.

    The lower one is exceeded by no violation v of which the mixture of all comparisons has less
    than 2 / alpha. The upper one needs no correction for their number: it is wrong only if it is
    wrong about the largest.
    """
    if not counts.any():
        return 0.0, 1.0
    seen = counts.any(axis=0)
    counts = counts[:, seen]

    def exceeds(v: float) -> bool:
        return bool(shares @ mixtures(counts, payoffs(v)[:, seen]).mean(axis=1) >= 2.0 / alpha)

    def stays_below(v: float) -> bool:
        return bool(mixtures(counts, -payoffs(v)[:, seen]).min() >= 2.0 / alpha)

    low, _ = bisected(exceeds, 0.0, 1.0, _HALVINGS)
    left, _ = bisected(lambda w: stays_below(1.0 - w), 0.0, 1.0, _HALVINGS)
    return float(low), float(1.0 - left)


def rate_bounds(hits: Array, rows: Array, alpha: float) -> tuple[Floats, Floats]:
    """Bounds of each rate that hold at all times together, with probability 1 - alpha."""

    def bound(sign: float) -> Floats:
        """The farthest rate on one side of the observed one that is not refuted."""
        with np.errstate(invalid="ignore", divide="ignore"):
            near = np.where(rows > 0, hits / rows, 0.5)

        def kept(p: Floats) -> Any:
            won = np.log1p(np.multiply.outer(sign * (1.0 - p), BETS))
            lost = np.log1p(np.multiply.outer(-sign * p, BETS))
            logs = np.minimum(hits[..., None] * won + (rows - hits)[..., None] * lost, _LOG_MOST)
            return np.exp(logs) @ SHARES < 2.0 / alpha

        far = np.full_like(near, 0.5 - 0.5 * sign)
        return np.asarray(bisected(kept, near, far, _HALVINGS)[1])

    return bound(1.0), bound(-1.0)
