r"""Exact bounds of the difference of two proportions, by tests of every difference.

The hypothesis :math:`p_1 - p_2 \geq \delta` is rejected where the observed difference d is too
small:

.. math:: \sup_{p_2} \; P(X / n_1 - Y / n_2 \leq d) + \gamma , \quad
          X \sim \mathrm{Bin}(n_1, p_2 + \delta), \; Y \sim \mathrm{Bin}(n_2, p_2),

over the rates that lie in Clopper-Pearson intervals which fail with probability :math:`\gamma`
(Berger and Boos 1994). The probability falls with p_1 and grows with p_2, so that on a cell of a
grid the rates at two of its corners bound it: nothing is lost between grid points. A bound for each
rate and a union bound would be exact as well, and wider by half.
"""

from __future__ import annotations

import numpy as np
from scipy.special import bdtr, gammaln, xlog1py, xlogy

from fairconstrained.arrays import Floats
from fairconstrained.metrics.bounds import clopper_pearson

N_CELLS = 64  # of the rates that are possible
N_DEVIATIONS = 7.0  # standard deviations of Y around its mean, which leave out less than 1e-11


def difference_p_value(
    hits: tuple[int, int], rows: tuple[int, int], delta: float, gamma: float
) -> float:
    """Largest probability of so small a difference if the first rate exceeds the second by delta.

    The probability `gamma` with which the restriction of the rates may fail is added.
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
