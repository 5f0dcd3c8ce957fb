"""Confidence intervals of metrics: what a number on these rows says about new ones."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import norm
from sklearn.utils import check_random_state

from fairconstrained.arrays import Array, rows_of
from fairconstrained.metrics.bounds import check_confidence
from fairconstrained.metrics.components import COMPONENTS, Components

N_RESAMPLES = 1_000  # of rows, for metrics whose components are not known


def confidence_interval(
    metric: Callable[..., float],
    y_true: ArrayLike | None,
    y_pred: ArrayLike,
    *,
    sensitive_features: Any,
    confidence: float = 0.95,
    method: str = "auto",
    sample_weight: ArrayLike | None = None,
    random_state: Any = None,
) -> tuple[float, float]:
    r"""Interval that contains the metric's value on all future rows, with the given confidence.

    Parameters
    ----------
    metric : callable
        A metric of :mod:`fairconstrained.metrics`, or any
        ``metric(y_true, y_pred, *, sensitive_features) -> float``. Its options go into a
        ``functools.partial``, such as ``partial(ccdf_gap, interval=(0, 0.3))``.
    y_true : array-like of shape (n_samples,)
        True labels.
    y_pred : array-like of shape (n_samples,) or (n_samples, n_classes)
        Labels, scores or probabilities, as the metric takes.
    sensitive_features : array-like of shape (n_samples,) or (n_samples, n_columns)
        One group per combination of values that occurs.
    confidence : float, default=0.95
        Probability that the interval contains the true value, over samples like this one.
    method : {"auto", "inversion", "bootstrap"}, default="auto"
        "inversion" tests all values, as described in the notes, for gaps of rates, AUCs and
        losses between groups. "bootstrap" resamples rows, for any metric (Efron's bias-corrected
        percentiles). "auto" takes the first where it can.
    sample_weight : array-like of shape (n_samples,), optional
        Non-negative weights of the rows; a group is as certain as its effective number of rows.
    random_state : int, RandomState instance or None, default=None
        Seeds the draws.

    Returns
    -------
    low, high : float
        Both nan where the metric is nan.

    Raises
    ------
    ValueError
        A parameter that is not valid, or "inversion" for another metric.

    Warns
    -----
    SmallGroupWarning
        Where the metric warns: a group without rows that it needs.

    Notes
    -----
    Most metrics of fairness are a largest difference: not smooth where groups are alike, biased
    upwards on small groups, and never below zero. Percentiles of a bootstrap then cover far too
    rarely (never, where the truth is zero). "inversion" tests every value :math:`\delta` that the
    metric could truly have, and the interval holds those that are not rejected:

    .. math:: P_\delta(T^* \geq T) \geq a(\delta), \quad
              P_\delta(T^* \leq T) \geq \alpha - a(\delta),

    where T is the observed value and :math:`P_\delta` draws samples at the rates, AUCs or mean
    losses *nearest* to the observed ones at which the metric is :math:`\delta` ("hybrid
    resampling", Chuang and Lai 2000). Draws of rates are multinomial tables, those of AUCs and
    losses normal with the covariance of their influence functions (DeLong). Near zero the observed
    value cannot be much too small, and the whole :math:`\alpha` guards the lower end. Coverage is
    measured in ``benchmarks/intervals.py`` and shown in the user guide. Errors are those at the
    observed rates: where a group shows fewer than about five samples of the rarer outcome, the
    upper end is too low. :func:`certify` gives an exact bound for these.

    "bootstrap" takes the metric for a smooth function of the rows. Where the true gap is near zero,
    its interval lies above it too often. Metrics inside an interval of ranks, the Wasserstein
    distance, the mutual information and ``method="to_overall"`` have it alone.

    References
    ----------
    Chuang and Lai, "Hybrid resampling methods for confidence intervals", Statistica Sinica 10
    (2000). Efron, "Better bootstrap confidence intervals", JASA 82 (1987). DeLong, DeLong and
    Clarke-Pearson, "Comparing the areas under two or more correlated ROC curves" (1988).

    Examples
    --------
    >>> import numpy as np
    >>> from fairconstrained.metrics import confidence_interval, demographic_parity_difference
    >>> rng = np.random.default_rng(0)
    >>> group = rng.integers(2, size=2000)
    >>> y_pred = rng.random(2000) < np.where(group == 1, 0.4, 0.5)
    >>> low, high = confidence_interval(demographic_parity_difference, y_pred, y_pred,
    ...                                 sensitive_features=group, random_state=0)
    >>> print(f"{low:.2f} to {high:.2f}")
    0.08 to 0.17
    """
    check_confidence(confidence)
    if method not in ("auto", "inversion", "bootstrap"):
        raise ValueError(
            f"method must be one of ['auto', 'inversion', 'bootstrap']; got {method!r}."
        )
    rng, alpha = check_random_state(random_state), 1.0 - float(confidence)
    weights = {} if sample_weight is None else {"sample_weight": sample_weight}
    given = {"sensitive_features": sensitive_features, **weights}
    observed = metric(y_true, y_pred, **given)
    if np.isnan(observed):
        return np.nan, np.nan
    function = metric
    if isinstance(metric, functools.partial) and not metric.args:
        function, given = metric.func, {**metric.keywords, **given}
    if method != "bootstrap" and function in COMPONENTS:
        read, components_of = COMPONENTS[function]
        components = components_of(read(y_true, y_pred, **given), rng)
        if components is not None:
            return _Inverted(components).interval(alpha)
    if method == "inversion":
        raise ValueError(
            "method='inversion' needs a metric of fairconstrained.metrics whose components are "
            f"known; got {metric!r}. Use method='bootstrap'."
        )
    columns = y_true, y_pred, sensitive_features, sample_weight
    return _bootstrap(metric, columns, observed, alpha, rng)


class _Inverted:
    """Tests of all sizes that a metric could truly have, at the nearest components."""

    def __init__(self, components: Components) -> None:
        self.values, noise, self.summary, self.metric, self.most = components
        self.noise = np.asfortranarray(noise)  # summaries run along the draws
        self.deviation = self.noise.std(axis=0)
        self.observed = float(self.summary.size(self.values))
        self.fair_median = float(np.median(self._sizes(0.0)))

    def interval(self, alpha: float) -> tuple[float, float]:
        """Return the interval of confidence 1 - alpha."""

        def upper_tail(sizes: Array) -> float:
            # How much of alpha guards the upper end: half, and the less the more the samples look
            # like fair ones. At zero none: the metric cannot be smaller.
            alike = float((sizes <= self.fair_median).mean())
            return 0.5 * alpha * max(0.0, 1.0 - 2.0 * alike)

        low = self._first(lambda s: float((s >= self.observed).mean()) >= alpha - upper_tail(s))
        high = self._first(lambda s: float((s <= self.observed).mean()) < upper_tail(s))
        ends = self.metric(low), self.metric(max(low, high))
        return min(ends), max(ends)

    def _sizes(self, size: float) -> Array:
        """Simulate the estimates of samples where the truth has this size."""
        centre = self.summary.nearest(self.values, self.deviation, size)
        return self.summary.size(centre + self.noise)

    def _first(self, beyond: Callable[[Array], bool]) -> float:
        """Bisect for the smallest size whose samples are `beyond`, as are those of larger ones."""
        if beyond(self._sizes(0.0)):
            return 0.0
        low, high = 0.0, max(self.observed, 10.0 * float(self.deviation.max()), 1e-9)
        while not beyond(self._sizes(high)):
            low, high = high, 2.0 * high
            if low >= self.most or high > 1e12:
                return self.most
        for _ in range(14):
            middle = 0.5 * (low + high)
            low, high = (low, middle) if beyond(self._sizes(middle)) else (middle, high)
        return min(0.5 * (low + high), self.most)


def _bootstrap(
    metric: Callable[..., float], columns: tuple[Any, ...], observed: float, alpha: float, rng: Any
) -> tuple[float, float]:
    """Percentiles of the metric on resampled rows, with Efron's correction of the median."""
    arrays, n_rows = [_indexable(values) for values in columns], len(columns[1])
    found = np.empty(N_RESAMPLES)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the metric has spoken about the rows themselves
        for b in range(N_RESAMPLES):
            rows = rng.randint(n_rows, size=n_rows)
            true, predicted, groups, weight = (rows_of(values, rows) for values in arrays)
            more = {} if weight is None else {"sample_weight": weight}
            found[b] = metric(true, predicted, sensitive_features=groups, **more)
    values = found[~np.isnan(found)]
    below = 0.5 * ((values < observed).mean() + (values <= observed).mean())
    z = norm.ppf(np.clip(below, 0.5 / N_RESAMPLES, 1.0 - 0.5 / N_RESAMPLES))
    levels = norm.cdf(2.0 * z + norm.ppf([alpha / 2, 1 - alpha / 2]))
    low, high = np.quantile(values, levels)
    return float(low), float(high)


def _indexable(values: Any) -> Any:
    """Convert to arrays for fast indexing; of a dict each column."""
    if isinstance(values, dict):
        return {name: _indexable(column) for name, column in values.items()}
    array = values.to_numpy() if hasattr(values, "to_numpy") else values
    return None if values is None else np.asarray(array)
