r"""Confidence intervals of metrics.

A metric such as largest minus smallest rate is a *summary* of *components* (the rates), whose
errors have a known distribution: rates are functions of a table of counts, drawn from a multinomial
distribution for each group; AUCs and mean losses are nearly normal with the covariance of their
influence functions. Groups keep their sizes; with weights the size is the effective one,
:math:`(\sum w)^2 / \sum w^2`. For every size that the metric could truly have, a summary names the
components nearest to the observed ones at which it has this size (restricted maximum likelihood).
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import norm
from sklearn.utils import check_random_state

from fairconstrained.arrays import Array, Floats, bisected, rows_of
from fairconstrained.auc import COMPARISONS, auc_influences
from fairconstrained.engines.columns import of_columns
from fairconstrained.inputs.groups import UncertainGroups
from fairconstrained.metrics import auc, probabilities, rates
from fairconstrained.metrics.bounds import check_confidence
from fairconstrained.metrics.inputs import Counts
from fairconstrained.metrics.metric import PARTS
from fairconstrained.rates import Rates

N_RESAMPLES = 1_000  # of rows, for metrics whose components are not known
N_DRAWS = 10_000  # of tables of counts, and of errors of AUCs


@of_columns("y_true", "y_pred", "sensitive_features", "control_features", "sample_weight")
def confidence_interval(
    metric: Callable[..., float],
    y_true: ArrayLike | None,
    y_pred: ArrayLike,
    *,
    sensitive_features: Any,
    control_features: Any = None,
    confidence: float = 0.95,
    method: str = "auto",
    sample_weight: ArrayLike | None = None,
    random_state: Any = None,
    X: Any = None,
) -> tuple[float, float]:
    r"""Interval that contains the metric's value on the population, with the given confidence.

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
    control_features : array-like of shape (n_samples,) or (n_samples, n_columns), optional
        Strata, for metrics that take them.
    confidence : float, default=0.95
        Probability that the interval contains the true value, over samples like this one.
    method : {"auto", "inversion", "bootstrap"}, default="auto"
        "inversion" tests all values, as described in the notes, for gaps of rates, AUCs and
        losses between groups. "bootstrap" resamples rows, for any metric (Efron's bias-corrected
        percentiles). "auto" prefers the first.
    sample_weight : array-like of shape (n_samples,), optional
        Non-negative weights of the rows; a group is as certain as its effective number of rows.
    random_state : int, RandomState instance or None, default=None
        Seeds the draws.
    X : DataFrame of Dask or Spark, or Dataset of Ray, optional
        The table whose columns the others are, by name.

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
    upwards on small groups, and never below zero. Bootstrap percentiles then cover far too
    rarely (never, if the truth is zero). "inversion" tests every value :math:`\delta` that the
    metric could truly have, and the interval contains those that are not rejected:

    .. math:: P_\delta(T^* \geq T) \geq a(\delta), \quad
              P_\delta(T^* \leq T) \geq \alpha - a(\delta),

    where T is the observed value and :math:`P_\delta` draws samples at the rates, AUCs or mean
    losses *nearest* to the observed ones at which the metric is :math:`\delta` ("hybrid
    resampling", Chuang and Lai 2000). Draws of rates are multinomial tables, those of AUCs and
    losses normal with the covariance of their influence functions (DeLong). Near zero the observed
    value cannot be much too small, so the whole :math:`\alpha` guards the lower end.
    ``benchmarks/intervals.py`` measures coverage, and the user guide shows it. Errors are computed
    at the observed rates: if a group has fewer than about five samples of the rarer outcome, the
    upper end is too low. :func:`certify` then gives an exact bound.

    "bootstrap" treats the metric as a smooth function of the rows. If the true gap is near zero,
    its interval lies above it too often. It is the only method for metrics inside an interval of
    ranks, the Wasserstein distance, the mutual information, ``method="to_overall"``, and of a
    worst stratum or attribute (`control_features`, ``attributes="parallel"``).

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
    of_rows = {"sample_weight": sample_weight, "control_features": control_features}
    given = {"sensitive_features": sensitive_features}
    given |= {name: values for name, values in of_rows.items() if values is not None}
    options = getattr(metric, "keywords", {})  # of a partial
    if options.get("control_features") is not None:
        raise ValueError(
            "control_features must be given to confidence_interval, which resamples their rows, "
            "and not to the metric."
        )
    observed = metric(y_true, y_pred, **given)
    if np.isnan(observed):
        return np.nan, np.nan
    function, asked = metric, given
    if isinstance(metric, functools.partial) and not metric.args:
        function, asked = metric.func, {**options, **given}
    in_parts = control_features is not None or options.get("attributes", "crossed") != "crossed"
    if method != "bootstrap" and function in COMPONENTS and not in_parts:
        read, components_of = COMPONENTS[function]
        asked = {name: value for name, value in asked.items() if name not in PARTS}
        components = components_of(read(y_true, y_pred, **asked), rng)
        if components is not None:
            return _Inverted(components).interval(alpha)
    if method == "inversion":
        raise ValueError(
            "method='inversion' needs a metric of fairconstrained.metrics whose components are "
            f"known; got {metric!r}. Use method='bootstrap'."
        )
    return _bootstrap(metric, (y_true, y_pred), given, observed, alpha, rng)


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
        low, high = bisected(lambda size: not beyond(self._sizes(size)), low, high, 14)
        return min(float(0.5 * (low + high)), self.most)


def _bootstrap(
    metric: Callable[..., float],
    columns: tuple[Any, ...],
    given: dict[str, Any],
    observed: float,
    alpha: float,
    rng: Any,
) -> tuple[float, float]:
    """Percentiles of the metric on resampled rows, with Efron's correction of the median."""
    arrays, n_rows = [_indexable(values) for values in columns], len(columns[1])
    given = _indexable(given)
    found = np.empty(N_RESAMPLES)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the metric has spoken about the rows themselves
        for b in range(N_RESAMPLES):
            rows = rng.randint(n_rows, size=n_rows)
            found[b] = metric(*(rows_of(values, rows) for values in arrays), **rows_of(given, rows))
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
    as_given = values is None or isinstance(values, UncertainGroups)
    return values if as_given else np.asarray(array)


# --- components of metrics, and summaries of them -------------------------------------------------

Generator = np.random.RandomState


class Range:
    """Largest minus smallest over groups, (..., n_groups, n_events); the events' ranges combined.

    `combine` makes one number of the ranges (..., n_events); `np.max` if not given.
    """

    def __init__(self, combine: Callable[[Array], Any] | None = None) -> None:
        self.combine = combine

    def size(self, components: Array) -> Array:
        """Return the combined range of components (..., n_groups, n_events)."""
        ranges = components.max(axis=-2) - components.min(axis=-2)
        return np.asarray(ranges.max(axis=-1) if self.combine is None else self.combine(ranges))

    def nearest(self, components: Array, deviation: Array, size: float) -> Array:
        """Within each event the outermost groups move, together where several are outside."""
        ranges, now = np.ptp(components, axis=0), float(self.size(components))
        if self.combine is not None:
            wanted = ranges * (size / now) if now > 0 else np.full(len(ranges), size)
        elif size <= now:
            wanted = np.minimum(ranges, size)
        else:  # the event with the largest range is enough
            wanted = np.where(np.arange(len(ranges)) == ranges.argmax(), size, ranges)
        precision = 1.0 / np.maximum(deviation, 1e-12) ** 2
        moved = _clipped(components, precision, np.minimum(wanted, ranges))
        # The largest of each column goes up and the smallest down, the less certain one by more.
        order, columns = np.argsort(moved, axis=0, kind="stable"), np.arange(len(ranges))
        bottom, top = (order[0], columns), (order[-1], columns)
        part = precision[bottom] / (precision[bottom] + precision[top])
        extra = np.maximum(wanted - ranges, 0.0)
        moved[bottom] -= extra * (1.0 - part)
        moved[top] += extra * part
        return moved


def _clipped(values: Array, precision: Array, width: Array) -> Array:
    """Nearest columns within bands of these widths: weighted least squares.

    The cuts above and below the band [c, c + width] balance. The balance falls
    with c, and is linear between the points where a value enters or leaves the band.
    """
    points = np.sort(np.concatenate((values, values - width)), axis=0)
    cut = values - np.clip(values, points[:, None], points[:, None] + width)
    balance = (precision * cut).sum(axis=1)  # (n_points, n_columns)
    columns = np.arange(values.shape[1])
    first = np.maximum((balance > 0).sum(axis=0) - 1, 0)
    second = np.minimum(first + 1, len(points) - 1)
    above, below = balance[first, columns], balance[second, columns]
    part = np.where(above > 0, above / np.where(above > 0, above - below, 1.0), 0.0)
    start = points[first, columns] + part * (points[second, columns] - points[first, columns])
    return np.asarray(np.clip(values, start, start + width))


class Largest:
    """Largest absolute value of contrasts, (..., n_contrasts), each of them zero if fair."""

    def size(self, components: Array) -> Array:
        """Return the largest absolute value of components (..., n_contrasts)."""
        return np.asarray(np.abs(components).max(axis=-1))

    def nearest(self, components: Array, deviation: Array, size: float) -> Array:
        """Contrasts beyond the size are cut; below it the largest one grows."""
        moved = np.clip(components, -size, size)
        worst = int(np.abs(components).argmax())
        if size > abs(components[worst]):
            moved[worst] = np.copysign(size, components[worst])
        return np.asarray(moved)


class Extreme:
    """Largest component, (..., n_components): a rate in the worst group."""

    def size(self, components: Array) -> Array:
        """Return the largest of components (..., n_components)."""
        return np.asarray(components.max(axis=-1))

    def nearest(self, components: Array, deviation: Array, size: float) -> Array:
        """Components beyond the size are cut; below it the largest one grows."""
        moved = np.minimum(components, size)
        moved[int(components.argmax())] = size
        return np.asarray(moved)


class Components(NamedTuple):
    """Quantities that a metric summarises: estimates, and draws of their errors."""

    values: Array  # of the shape that the summary takes
    noise: Array  # (n_draws, *shape): estimates minus truth in samples like this one
    summary: Range | Largest | Extreme  # zero for a fair model, larger for larger differences
    metric: Callable[[float], float] = float  # from the size to the metric; monotone
    most: float = np.inf  # the largest size there is


# --- rates of predicted labels --------------------------------------------------------------------


def _rate_draws(counts: Counts, notion: Rates, rng: Generator) -> tuple[Floats, Floats]:
    """Return rates (n_groups, n_events), and the errors of draws, (n_draws, n_groups, n_events).

    Half a row is added to each cell (Jeffreys' prior): a rate of 0 of 50 is not known exactly.
    """
    definitions = list(counts.definitions(notion))
    hits = np.stack([rate.hits.ravel() for rate in definitions], axis=1)
    possible = np.stack([rate.possible.ravel() for rate in definitions], axis=1)
    cells = counts.table.reshape(len(counts.groups), -1)
    total = cells.sum(axis=1, keepdims=True)
    size = np.maximum(np.round(counts.effective), 1).astype(np.int64)
    rows = cells * (size[:, None] / np.where(total > 0, total, 1.0)) + 0.5
    p = rows / rows.sum(axis=1, keepdims=True)
    if counts.products is not None:
        return _correlated(counts, hits, possible, rng)
    draws = [rng.multinomial(n, of, size=N_DRAWS) for n, of in zip(size, p, strict=True)]
    drawn = np.stack(draws, axis=1).astype(float)
    with np.errstate(invalid="ignore", divide="ignore"):
        # One product of matrices for all draws: numpy multiplies stacks of them without BLAS.
        flat = drawn.reshape(-1, drawn.shape[-1])
        rates, centre, found = (of @ hits / (of @ possible) for of in (cells, p, flat))
        found = found.reshape(*drawn.shape[:2], -1)
    # A draw without rows of a label has no error.
    return np.asarray(rates), np.nan_to_num(found - centre)


def _correlated(
    counts: Counts, hits: Floats, possible: Floats, rng: Generator
) -> tuple[Floats, Floats]:
    """Rates and normal errors, whose covariance is that of samples in several groups.

    Half a row is added to each cell here, too, of the mean weight of the group's rows.
    """
    table, products = counts.table.reshape(len(counts.groups), -1), np.asarray(counts.products)
    squares = np.diagonal(products, axis1=1, axis2=2)
    unit = squares.sum(axis=0) / table.sum(axis=1)
    cells = table + 0.5 * unit[:, None]
    below = (cells @ possible).T  # (n_events, n_groups)
    rates = (cells @ hits).T / below
    # How much a row of each cell moves the rate of each event in each group, by its weight there.
    moves = (hits.T[:, None] - rates[:, :, None] * possible.T[:, None]) / below[:, :, None]
    covariance = np.einsum("egc,cgh,fhc->gehf", moves, products + 0.5 * np.diag(unit**2), moves)
    errors = _normal(covariance.reshape(rates.size, rates.size), rng)
    return table @ hits / (table @ possible), errors.reshape(N_DRAWS, *rates.T.shape)


def _difference(asked: rates.Asked, rng: Generator, notion: Rates) -> Components | None:
    if asked.method != "between_groups":
        return None
    mean = functools.partial(np.mean, axis=-1) if asked.agg == "mean" else None
    return Components(*_rate_draws(asked.counts, notion, rng), Range(mean), most=1.0)


def _ratio(asked: rates.Asked, rng: Generator, notion: Rates) -> Components | None:
    """A ratio of rates is the difference of their logarithms, of at least a quarter of a row."""
    if asked.method != "between_groups" or asked.agg != "worst_case":
        return None
    values, noise = _rate_draws(asked.counts, notion, rng)
    least = 0.25 / np.maximum(asked.counts.effective.max(), 1.0)
    values = np.maximum(values, least)
    logs = np.log(values)
    noise = np.log(np.maximum(values + noise, least)) - logs
    return Components(logs, noise, Range(), lambda size: float(np.exp(-size)))


def _cap(asked: rates.Asked, rng: Generator, notion: Rates) -> Components:
    values, noise = _rate_draws(asked.counts, notion, rng)
    return Components(values.ravel(), noise.reshape(len(noise), -1), Extreme(), most=1.0)


def _summed(asked: rates.Asked, rng: Generator, notion: Rates) -> Components:
    def summed(ranges: Array) -> Array:
        blocks = ranges.reshape(*ranges.shape[:-1], len(asked.counts.classes.labels), -1)
        return np.asarray(blocks.max(axis=-1).sum(axis=-1))

    return Components(*_rate_draws(asked.counts, notion, rng), Range(summed))


# --- scores and losses ----------------------------------------------------------------------------


def _normal(covariance: Floats, rng: Generator) -> Floats:
    """Draw normal errors (n_draws, m) of this covariance: of influences, their products."""
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    return np.asarray(rng.normal(size=(N_DRAWS, len(root))) @ root.T)


def _auc_gap(ranked: auc.Ranked, rng: Generator, notion: str) -> Components:
    sets = COMPARISONS[notion](len(ranked.groups)).reshape(-1, 4, 2 * len(ranked.groups))
    influence = auc_influences(ranked.scores, ranked.cells.group, ranked.cells.weight, sets)
    influence = ranked.cells.by_sample(influence)
    noise = _normal(influence @ influence.T, rng)
    return Components(ranked.differences(sets), noise, Largest(), most=1.0)


def _loss_gap(found: probabilities.RowLosses, rng: Generator) -> Components | None:
    if found.method != "between_groups":
        return None
    member = found.rows.group == np.arange(len(found.rows.labels))[:, None]
    weight = member * found.rows.weight
    weight = weight / weight.sum(axis=1, keepdims=True)
    values = (weight @ found.losses)[:, None]
    influence = found.rows.by_sample(weight * (found.losses - values))
    noise = _normal(influence @ influence.T, rng)
    return Components(values, noise[:, :, None], Range())


# How a metric reads its arguments, and its components.
_Made = tuple[Callable[..., Any], Callable[..., Components | None]]
_OF_WAY: Mapping[rates.Way, Callable[..., Components | None]] = {
    rates.DIFFERENCE: _difference,
    rates.RATIO: _ratio,
    rates.SUM: _summed,
    rates.CAP: _cap,
}
COMPONENTS: Mapping[Callable[..., float], _Made] = {
    **{
        metric: (reader, functools.partial(_OF_WAY[way], notion=notion))
        for metric, (reader, notion, way) in rates.DERIVED.items()
    },
    probabilities.loss_gap: (probabilities.read_losses, _loss_gap),
    **{
        metric: (auc.ranked_rows, functools.partial(_auc_gap, notion=notion))
        for metric, notion in auc.NOTIONS.items()
    },
}
