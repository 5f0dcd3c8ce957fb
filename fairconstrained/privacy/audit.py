r"""Audits: lower bounds of epsilon from the outputs of a mechanism.

A test decides from one output which of two neighbouring data sets it was computed from. Under
:math:`(\epsilon, \delta)`-differential privacy :math:`\mathrm{TPR} \le e^\epsilon\, \mathrm{FPR}
+ \delta`. Rates counted over many trainings therefore bound epsilon from below (Jagielski, Ullman
and Oprea, 2020). An audit proves a promise wrong, never right.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import beta

from fairconstrained.arrays import Floats, check_confidence, check_number

__all__ = ["epsilon_lower_bound"]

# Thresholds on the outputs. One half of the outputs chooses among them and the other half counts,
# so that many candidates cost nothing.
_CANDIDATES = 200
_SMALLEST = 1e-300  # a ratio in place of none: its logarithm is below any bound
# Outputs on each of the two data sets, of which one half chooses a threshold.
_FEWEST = 20


def epsilon_lower_bound(
    without: ArrayLike, with_row: ArrayLike, *, delta: float, confidence: float = 0.99
) -> float:
    """Return a lower bound on epsilon from many outputs on two neighbouring data sets.

    The threshold of the test is chosen on one half of the outputs; the other half counts, with
    Clopper-Pearson intervals, so that the bound holds with the given confidence.

    Parameters
    ----------
    without, with_row : array-like of shape (n_trainings,)
        The statistic of each output, on the data without and with the row in question; more
        informative statistics give larger bounds. The numbers of trainings may differ.
    delta : float
    confidence : float, default=0.99
        Probability that the true epsilon is not below the bound.

    Raises
    ------
    ValueError
        If there are fewer than 20 outputs on one of the two data sets, or some are not finite; if
        `delta` or `confidence` is no probability.

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
    2.5 <= 4.4
    """
    check_number("delta", delta, "at least 0 and below 1", lambda d: 0 <= d < 1)
    check_confidence(confidence)
    outputs = [np.asarray(values, dtype=float) for values in (without, with_row)]
    for name, values in zip(("without", "with_row"), outputs, strict=True):
        if values.ndim != 1 or len(values) < _FEWEST:
            raise ValueError(
                f"{name} must be one-dimensional with at least {_FEWEST} outputs; got shape "
                f"{values.shape}."
            )
        if not np.isfinite(values).all():
            raise ValueError(f"{name} must hold finite numbers; some outputs are nan or infinite.")
    choosing, counting = ([values[i::2] for values in outputs] for i in (0, 1))
    bounds = [0.0]
    for sign in (1.0, -1.0):  # outputs above the threshold count as with the row, or below
        for order in (slice(None), slice(None, None, -1)):
            tried = [sign * part for part in choosing[order]]
            counted = [sign * part for part in counting[order]]
            # Quantiles of each sample: joint quantiles would be the larger sample's.
            tails = [min(10 / len(values), 0.1) for values in tried]
            levels = [np.linspace(tail, 1 - tail, _CANDIDATES // 2) for tail in tails]
            thresholds = np.concatenate(list(map(np.quantile, tried, levels)))
            best = int(np.argmax(_bounds(tried, thresholds, delta, confidence)))
            # Four tests: each has a quarter of the risk.
            risk = 1 - (1 - confidence) / 4
            bounds.extend(_bounds(counted, thresholds[best : best + 1], delta, risk).tolist())
    return max(bounds)


def _bounds(samples: list[Floats], thresholds: Floats, delta: float, confidence: float) -> Floats:
    """Return the bound of each threshold, from the rates of outputs above it in both samples."""
    risk = (1 - confidence) / 2
    alarms, hits = (len(x) - np.searchsorted(np.sort(x), thresholds, "right") for x in samples)
    n_alarms, n_hits = map(len, samples)
    least_tpr = np.where(hits > 0, beta.ppf(risk, hits, n_hits - hits + 1), 0.0)
    most_fpr = np.where(alarms < n_alarms, beta.ppf(1 - risk, alarms + 1, n_alarms - alarms), 1.0)
    return np.log(np.maximum(least_tpr - delta, most_fpr * _SMALLEST) / most_fpr)
