r"""Audits: what epsilon do the outputs of a mechanism give away?

Someone who must tell, from one output, which of two neighbouring data sets it was trained on, errs
with rates that :math:`(\epsilon, \delta)`-differential privacy bounds from below:

.. math:: \mathrm{TPR} \le e^\epsilon\, \mathrm{FPR} + \delta .

Rates counted over many trainings therefore bound epsilon from below [1]_. An audit proves a promise
wrong, never right.

References
----------
.. [1] Jagielski, Ullman and Oprea (2020), "Auditing Differentially Private Machine Learning".
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import beta

__all__ = ["epsilon_lower_bound"]

_CANDIDATES = 200


def epsilon_lower_bound(
    without: ArrayLike, with_row: ArrayLike, *, delta: float, confidence: float = 0.99
) -> float:
    """Lower bound on epsilon from a statistic of many outputs on two neighbouring data sets.

    The threshold of the test is chosen on one half of the outputs; the other half counts, with
    Clopper-Pearson intervals, so that the bound holds with the given confidence.

    Parameters
    ----------
    without, with_row : array-like of shape (n_trainings,)
        The statistic of each output, on the data without and with the row in question; more
        informative statistics give larger bounds.
    delta : float
        The delta of the promise.
    confidence : float, default=0.99
        Probability that the true epsilon is not below the bound.

    Returns
    -------
    float
        At least 0.

    Examples
    --------
    One release of a sum with Gaussian noise of multiplier 1 costs epsilon = 4.38 at delta 1e-5:

    >>> import numpy as np
    >>> from fairconstrained.privacy import Gaussian, Phase, privacy_spent
    >>> from fairconstrained.privacy.audit import epsilon_lower_bound
    >>> rng = np.random.default_rng(0)
    >>> sums, sums_with_row = rng.normal(0, 1, 100_000), rng.normal(1, 1, 100_000)
    >>> bound = epsilon_lower_bound(sums, sums_with_row, delta=1e-5)
    >>> claim = privacy_spent([Phase([Gaussian(1.0)])], delta=1e-5)
    >>> print(f"{bound:.1f} <= {claim:.1f}")
    2.6 <= 4.4
    """
    halves = [np.asarray(values, dtype=float) for values in (without, with_row)]
    choosing, counting = ([half[i::2] for half in halves] for i in (0, 1))
    bounds = [0.0]
    for sign in (1.0, -1.0):  # outputs above the threshold are told to have the row, or below
        null, alternative = (sign * half for half in choosing)
        thresholds = np.quantile(np.concatenate((null, alternative)), _quantiles(len(null)))
        for told, other in ((0, 1), (1, 0)):
            rates = [[np.mean(sign * half > t) for half in choosing] for t in thresholds]
            guess = [_bound(r[other], r[told], delta, len(null), confidence) for r in rates]
            t = thresholds[int(np.argmax(guess))]
            fpr, tpr = (float(np.mean(sign * counting[i] > t)) for i in (told, other))
            # Four tests: each has a quarter of the risk.
            risk = 1 - (1 - confidence) / 4
            bounds.append(_bound(tpr, fpr, delta, len(counting[0]), risk))
    return max(bounds)


def _quantiles(n: int) -> NDArray[np.float64]:
    return np.linspace(min(10 / n, 0.1), 1 - min(10 / n, 0.1), _CANDIDATES)


def _bound(tpr: float, fpr: float, delta: float, n: int, confidence: float) -> float:
    risk = (1 - confidence) / 2
    hits, alarms = round(tpr * n), round(fpr * n)
    least_tpr = beta.ppf(risk, hits, n - hits + 1) if hits else 0.0
    most_fpr = beta.ppf(1 - risk, alarms + 1, n - alarms) if alarms < n else 1.0
    return math.log((least_tpr - delta) / most_fpr) if least_tpr > delta else 0.0
