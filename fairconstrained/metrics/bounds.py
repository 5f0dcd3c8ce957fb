"""Intervals and bounds of proportions, their differences, AUCs and distribution functions.

Wilson's interval covers with the stated probability on average over rates and sizes; Clopper and
Pearson's covers at least that for *every* rate and size, and pays for it in length. Reports use the
first, certificates the second.
"""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import bdtr, gammaln, xlog1py, xlogy
from scipy.stats import beta, norm

from fairconstrained.arrays import Array, Floats

N_CELLS = 64  # of the rates that are possible
N_DEVIATIONS = 7.0  # standard deviations of Y around its mean, which leave out less than 1e-11


def check_confidence(confidence: Any) -> None:
    """Raise ValueError unless it is a probability that is neither 0 nor 1."""
    if (
        isinstance(confidence, bool)
        or not isinstance(confidence, Real)
        or not 0 < float(confidence) < 1
    ):
        raise ValueError(f"confidence must be a number between 0 and 1; got {confidence!r}.")


def wilson(hits: ArrayLike, rows: ArrayLike, confidence: float = 0.95) -> tuple[Array, Array]:
    """Score interval of a proportion (Wilson 1927): the p with |hits / n - p| within z sd(p).

    Rows may be fractions, such as effective numbers; without rows both ends are nan. Brown, Cai and
    DasGupta, "Interval estimation for a binomial proportion", Statistical Science 16 (2001),
    recommend it.
    """
    n = _positive(rows)
    p, z = np.asarray(hits, dtype=float) / n, norm.ppf(0.5 + confidence / 2)
    centre = (p + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
    # Without hits the lower end is zero, up to rounding; likewise the upper one.
    return np.clip(centre - half, 0.0, p), np.clip(centre + half, p, 1.0)


def clopper_pearson(hits: ArrayLike, rows: ArrayLike, alpha: ArrayLike) -> tuple[Array, Array]:
    """Exact lower and upper bound of a proportion (Clopper and Pearson 1934), each at level alpha.

    Each holds with probability at least 1 - alpha, whatever the proportion; both together with
    1 - 2 alpha. Without rows they are 0 and 1.
    """
    k, n = np.asarray(hits, dtype=float), np.asarray(rows, dtype=float)
    with np.errstate(invalid="ignore"):
        low = np.where(k > 0, beta.ppf(alpha, k, n - k + 1), 0.0)
        high = np.where(k < n, beta.isf(alpha, k + 1, n - k), 1.0)
    return low, high


def newcombe_auc(
    auc: ArrayLike, positives: ArrayLike, negatives: ArrayLike, confidence: float = 0.95
) -> tuple[Array, Array]:
    r"""Score interval of an AUC: the values a with \|AUC - a\| within z sd(a).

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
        """Where values begin to be outside between the AUC and an outer one, by bisection."""
        near, far = observed.copy(), np.full_like(observed, outer)
        for _ in range(50):
            a = 0.5 * (near + far)
            more = (0.5 * (m + n) - 1.0) * ((1 - a) / (2 - a) + a / (1 + a))
            outside = np.square(observed - a) > z**2 * a * (1 - a) * (1 + more) / (m * n)
            near, far = np.where(outside, near, a), np.where(outside, a, far)
        return np.asarray(np.where(np.isnan(observed), np.nan, 0.5 * (near + far)))

    return edge(0.0), edge(1.0)


def distribution_band(rows: ArrayLike, alpha: float) -> Array:
    r"""Largest distance of an empirical distribution function from the true one, everywhere.

    :math:`\sqrt{\log(2 / \alpha) / (2 n)}` (Dvoretzky, Kiefer and Wolfowitz 1956, with Massart's
    constant, 1990), for any distribution and any n, with probability 1 - alpha.
    """
    return np.asarray(np.sqrt(np.log(2.0 / alpha) / (2.0 * np.asarray(rows, dtype=float))))


def _positive(rows: ArrayLike) -> Array:
    n = np.asarray(rows, dtype=float)
    return np.where(n > 0, n, np.nan)


# --- differences of two proportions ---------------------------------------------------------------


def difference_p_value(
    hits: tuple[int, int], rows: tuple[int, int], delta: float, gamma: float
) -> float:
    r"""Largest probability of a difference of at most d, the observed one, if the truth is delta.

    .. math:: \sup_{p_2} \; P(X / n_1 - Y / n_2 \leq d) + \gamma , \quad
              X \sim \mathrm{Bin}(n_1, p_2 + \delta), \; Y \sim \mathrm{Bin}(n_2, p_2),

    over the rates that lie in Clopper-Pearson intervals which fail with probability :math:`\gamma`
    (Berger and Boos 1994). It falls with p_1 and grows with p_2, so that on a cell of a grid the
    rates at two of its corners bound it. A bound for each rate and a union bound would be wider by
    half.
    """
    (k1, k2), (n1, n2) = hits, rows
    observed = k1 / n1 - k2 / n2
    if delta <= observed:
        return 1.0
    hoeffding = float(np.exp(-2.0 * (delta - observed) ** 2 / (1.0 / n1 + 1.0 / n2)))
    if hoeffding < gamma:  # larger than the probability at any rates: enough
        return hoeffding
    lows, highs = clopper_pearson([k1, k2], [n1, n2], gamma / 4)
    low, high = max(lows[1], lows[0] - delta, 0.0), min(highs[1], highs[0] - delta, 1.0 - delta)
    if low > high:
        return gamma
    edges = np.linspace(low, high, N_CELLS + 1)
    first, second = np.clip(edges[:-1] + delta, 0.0, 1.0), np.clip(edges[1:], 0.0, 1.0)
    return float(_at_most(observed, n1, n2, first, second).max()) + gamma


def difference_bound(hits: tuple[int, int], rows: tuple[int, int], alpha: float) -> float:
    """Upper bound of the first rate less the second that holds with probability 1 - alpha.

    It is 1 if one of them has no rows.
    """
    if min(rows) == 0:
        return 1.0
    low, high = hits[0] / rows[0] - hits[1] / rows[1], 1.0
    for _ in range(12):
        middle = 0.5 * (low + high)
        rejected = difference_p_value(hits, rows, middle, alpha / 50) <= alpha
        low, high = (low, middle) if rejected else (middle, high)
    return high


def _at_most(observed: float, n1: int, n2: int, p1: Floats, p2: Floats) -> Floats:
    """P(X / n1 - Y / n2 <= observed) for pairs of rates, (m,)."""
    if n2 > n1:  # sum over the smaller one: failures of Y and X change places
        return _at_most(observed, n2, n1, 1.0 - p2, 1.0 - p1)
    deviation = np.sqrt(n2 * p2 * (1.0 - p2)).max()
    width = int(N_DEVIATIONS * deviation) + 20
    y = np.rint(n2 * p2)[:, None] + np.arange(-width, width + 1)
    inside = (y >= 0) & (y <= n2)
    y = np.clip(y, 0, n2)
    log_pmf = gammaln(n2 + 1) - gammaln(y + 1) - gammaln(n2 - y + 1)
    log_pmf += xlogy(y, p2[:, None]) + xlog1py(n2 - y, -p2[:, None])
    most = np.floor(n1 * (observed + y / n2) + 1e-9)
    below = np.where(most < 0, 0.0, bdtr(np.clip(most, 0, n1), n1, p1[:, None]))
    return np.asarray((inside * np.exp(log_pmf) * below).sum(axis=1) + 1e-11)
