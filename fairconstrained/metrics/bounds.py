r"""Intervals and bounds of one proportion, of AUCs and of distribution functions.

Wilson's interval covers with the stated probability on average over rates and sizes; Clopper and
Pearson's covers at least that for *every* rate and size, and pays for it in length. Reports use the
first, certificates the second.
"""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import beta, norm

from fairconstrained.arrays import Array


def check_confidence(confidence: Any) -> None:
    """Raise ValueError unless it is a probability that is neither 0 nor 1."""
    if (
        isinstance(confidence, bool)
        or not isinstance(confidence, Real)
        or not 0 < float(confidence) < 1
    ):
        raise ValueError(f"confidence must be a number between 0 and 1; got {confidence!r}.")


def wilson(hits: ArrayLike, rows: ArrayLike, confidence: float = 0.95) -> tuple[Array, Array]:
    r"""Score interval of a proportion (Wilson 1927): the p with |hits / n - p| within z sd(p).

    Parameters
    ----------
    hits, rows : array-like
        Also fractions of rows, such as effective numbers.
    confidence : float, default=0.95

    Returns
    -------
    low, high : ndarray
        nan where there are no rows.

    References
    ----------
    Brown, Cai and DasGupta, "Interval estimation for a binomial proportion", Statistical Science
    16 (2001), who recommend it.

    Examples
    --------
    >>> from fairconstrained.metrics.bounds import wilson
    >>> low, high = wilson(0, 10)
    >>> print(f"{low:.3f} {high:.3f}")
    0.000 0.278
    """
    n = _positive(rows)
    p, z = np.asarray(hits, dtype=float) / n, norm.ppf(0.5 + confidence / 2)
    centre = (p + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
    # Without hits the lower end is zero, up to rounding; likewise the upper one.
    return np.clip(centre - half, 0.0, p), np.clip(centre + half, p, 1.0)


def clopper_pearson(hits: ArrayLike, rows: ArrayLike, alpha: ArrayLike) -> tuple[Array, Array]:
    r"""Exact one-sided bounds of a proportion (Clopper and Pearson 1934), each at level `alpha`.

    Each holds with probability at least 1 - alpha, whatever the proportion; both together with
    1 - 2 alpha.

    Parameters
    ----------
    hits, rows : array-like of int
    alpha : array-like of float
        Probability of error of each bound.

    Returns
    -------
    low, high : ndarray
        0 and 1 where there are no rows.

    Examples
    --------
    >>> from fairconstrained.metrics.bounds import clopper_pearson
    >>> low, high = clopper_pearson(0, 59, 0.05)
    >>> print(f"{low:.3f} {high:.3f}")
    0.000 0.050
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

    an AUC of 1 on a few rows still has an interval.

    Parameters
    ----------
    auc, positives, negatives : array-like
    confidence : float, default=0.95

    Returns
    -------
    low, high : ndarray
        nan where there is no AUC.

    References
    ----------
    Newcombe, "Confidence intervals for an effect size measure based on the Mann-Whitney statistic,
    part 2", Statistics in Medicine 25 (2006), method 5.

    Examples
    --------
    >>> from fairconstrained.metrics.bounds import newcombe_auc
    >>> low, high = newcombe_auc(1.0, 10, 10)
    >>> print(f"{low:.3f} {high:.3f}")
    0.800 1.000
    """
    m, n = _positive(positives), _positive(negatives)
    observed = np.asarray(auc, dtype=float) + 0.0 * (m + n)
    z = norm.ppf(0.5 + confidence / 2)

    def outside(a: Array) -> Array:
        more = (0.5 * (m + n) - 1.0) * ((1 - a) / (2 - a) + a / (1 + a))
        return np.asarray(np.square(observed - a) > z**2 * a * (1 - a) * (1 + more) / (m * n))

    return _edge(outside, observed, 0.0), _edge(outside, observed, 1.0)


def distribution_band(rows: ArrayLike, alpha: float) -> Array:
    r"""Largest distance of an empirical distribution function from the true one, everywhere.

    :math:`\sqrt{\log(2 / \alpha) / (2 n)}` (Dvoretzky, Kiefer and Wolfowitz 1956, with Massart's
    constant, 1990), for any distribution and any n.

    Parameters
    ----------
    rows : array-like of int
    alpha : float
        Probability that it is farther away somewhere.

    Returns
    -------
    ndarray

    Examples
    --------
    >>> from fairconstrained.metrics.bounds import distribution_band
    >>> round(float(distribution_band(1000, 0.05)), 4)
    0.0429
    """
    return np.asarray(np.sqrt(np.log(2.0 / alpha) / (2.0 * np.asarray(rows, dtype=float))))


def _positive(rows: ArrayLike) -> Array:
    n = np.asarray(rows, dtype=float)
    return np.where(n > 0, n, np.nan)


def _edge(outside: Any, inner: Array, outer: float) -> Array:
    """Where a condition begins between an inner point and an outer one, by bisection."""
    near, far = inner.copy(), np.full_like(inner, outer)
    for _ in range(50):
        middle = 0.5 * (near + far)
        out = outside(middle)
        near, far = np.where(out, near, middle), np.where(out, middle, far)
    return np.asarray(np.where(np.isnan(inner), np.nan, 0.5 * (near + far)))
