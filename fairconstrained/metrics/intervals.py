r"""Confidence intervals of metrics.

A metric such as largest minus smallest rate is a *summary* of *components* (the rates), whose
errors have a known distribution: rates are binomial given the rows that they are about; AUCs and
mean losses are nearly normal with the covariance of their influence functions. Groups keep their
sizes; with weights the size is the effective one, :math:`(\sum w)^2 / \sum w^2`. For every size
that the metric could truly have, a summary names the components nearest to the observed ones at
which it has this size (restricted maximum likelihood).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import norm
from sklearn.utils import check_random_state

from fairconstrained import rate_definitions as rates
from fairconstrained.arrays import Floats, bisected, check_confidence, check_number, rows_of
from fairconstrained.engines.columns import accepts_tables
from fairconstrained.exact_auc import auc_influences
from fairconstrained.exceptions import SmallGroupWarning, ignoring, warn_caller
from fairconstrained.inputs.groups import UncertainGroups
from fairconstrained.inputs.labels import label_array, order_of
from fairconstrained.metrics.auc import AUCGap
from fairconstrained.metrics.inputs import Counts
from fairconstrained.metrics.metric import PARTS, READERS, choose, gap, highest, ratio, summed_gap
from fairconstrained.metrics.probabilities import RowLosses
from fairconstrained.metrics.rates import Rated
from fairconstrained.metrics.summaries import (
    Combined,
    Errors,
    Highest,
    Largest,
    Normal,
    Proportions,
    Range,
    Shortfall,
)
from fairconstrained.numerics import NEGLIGIBLE

# Resamples of the rows, for metrics whose components are not known: each calls the metric once. The
# percentile of 2.5 % is then the 25th value.
N_RESAMPLES = 1_000
# Draws of errors: a tail of 2.5 % then has a standard error of .0016.
N_DRAWS = 10_000
# Draws of fair samples, for a single quantile.
N_FAIR = 1_000
# Share of fair samples, the most alike, that count as the last of them. It does not fall with
# alpha: otherwise intervals of more confidence would be shorter.
ALIKE = 0.05
# Drawn errors of all rates together, 1.6 MB: many rates get fewer draws, but at least 1,000.
MOST_ERRORS = 200_000


@accepts_tables("y_true", "y_pred", "sensitive_features", "control_features", "sample_weight")
def confidence_interval(
    metric: Callable[..., float],
    y_true: ArrayLike | None,
    y_pred: ArrayLike,
    *,
    sensitive_features: Any,
    control_features: Any = None,
    confidence: float = 0.95,
    method: str = "auto",
    n_draws: int | None = None,
    sample_weight: ArrayLike | None = None,
    random_state: Any = None,
    X: Any = None,
) -> tuple[float, float]:
    r"""Return a confidence interval for the metric's value on the population.

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
    n_draws : int, optional
        Number of draws, at least 100: of errors for "inversion" (default: 10,000), of rows for
        "bootstrap" (default: 1,000). With more of them the ends depend less on `random_state`.
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
        Where the metric warns: a group without rows that it needs. Where the interval does not
        contain the metric, which can happen if rates are combined or rows resampled; it says why.

    Notes
    -----
    Most metrics of fairness are a largest difference, biased upwards on small groups: bootstrap
    percentiles cover far too rarely (never, if the truth is zero). "inversion" tests every value
    :math:`\delta` that the metric could truly have; the interval contains those not rejected:

    .. math:: P_\delta(T^* \geq T) \geq \alpha - a(\delta), \quad
              P_\delta(T^* \leq T) \geq a(\delta), \quad
              T = \max_{g, h} \frac{r_g - r_h - \delta}{\sigma_{gh}},

    where r are the observed rates, AUCs or mean losses, and :math:`P_\delta` draws samples where
    these are *nearest* to the observed ones such that the metric is :math:`\delta` ("hybrid
    resampling", Chuang and Lai 2000), with the standard errors :math:`\sigma` there. Any two groups
    can be the nearest, not only the outermost ones; groups between them are shrunk towards their
    mean. Rates are drawn from binomial distributions, AUCs and losses from normal ones with the
    covariance of their influence functions (DeLong). Half of :math:`\alpha` guards each end; near
    zero, where the observed value cannot be much too small, the whole guards the lower end; where
    even no hit of a small group with a small rate would be no surprise, the upper one. A cap is
    seldom observed too small if several groups could be the highest: then up to five sixths of
    :math:`\alpha` guard its lower end. Groups that are more alike than in all but 5 % of
    the fair samples count as if they were as alike as there: equal rates, or scores that rank all
    rows perfectly, do not prove equality.

    The lower end is never below the largest lower bound of a pair among those that hold together
    (Newcombe 1998, with Bonferroni's levels; of ratios Donner and Zou 2012; of caps Wilson): a
    small group does not hide what two large ones prove. If a group of a few rows has a rate near 0
    or 1, and could be an outermost one, intervals cover too often.

    "bootstrap" treats the metric as a smooth function of the rows. If the true gap is near zero,
    its interval lies above it too often. It is the only method for metrics inside an interval of
    ranks, the Wasserstein distance, the mutual information, ``method="to_overall"``, and of a
    worst stratum or attribute (`control_features`, ``attributes="parallel"``).

    References
    ----------
    Chuang and Lai, "Hybrid resampling methods for confidence intervals", Statistica Sinica 10
    (2000). Newcombe, "Interval estimation for the difference between independent proportions",
    Statistics in Medicine 17 (1998). Donner and Zou, "Closed-form confidence intervals for
    functions of the normal mean and standard deviation", Statistical Methods in Medical Research 21
    (2012). Efron, "Better bootstrap confidence intervals", JASA 82 (1987). DeLong, DeLong and
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
    if not callable(metric):
        raise ValueError(f"metric must be a function of fairconstrained.metrics; got {metric!r}.")
    check_confidence(confidence)
    inverts = choose({"auto": True, "inversion": True, "bootstrap": False}, "method", method)
    if n_draws is not None:
        whole = "None or an integer >= 100"
        check_number("n_draws", n_draws, whole, lambda n: n >= 100 and n.is_integer())
    draws = Draws(check_random_state(random_state), n_draws and int(n_draws))
    alpha = 1.0 - float(confidence)
    optional = {"sample_weight": sample_weight, "control_features": control_features}
    given = {"sensitive_features": sensitive_features}
    given |= {name: values for name, values in optional.items() if values is not None}
    options = getattr(metric, "keywords", {})  # of a partial
    if options.get("control_features") is not None:
        raise ValueError(
            "control_features must be given to confidence_interval, which resamples their rows, "
            "and not to the metric."
        )
    function, arguments = metric, given
    if isinstance(metric, functools.partial) and not metric.args:
        function, arguments = metric.func, {**options, **given}
    in_parts = control_features is not None or options.get("attributes", "crossed") != "crossed"
    if inverts and function in READERS and not in_parts:
        inspect.signature(function).bind(y_true, y_pred, **arguments)  # raises TypeError
        options = {name: value for name, value in arguments.items() if name not in PARTS}
        observed, ends = _value_and_interval(
            READERS[function](y_true, y_pred, **options), alpha, draws
        )
        if ends is not None:
            return ends
    else:
        observed = metric(y_true, y_pred, **given)
    if np.isnan(observed):
        return np.nan, np.nan
    if method == "inversion":
        raise ValueError(
            "method='inversion' needs a metric of fairconstrained.metrics whose components are "
            f"known; got {metric!r}. Use method='bootstrap'."
        )
    return _checked(observed, _bootstrap(metric, (y_true, y_pred), given, observed, alpha, draws))


def interval_of_counts(
    compare: Callable[..., float], counts: Counts, notion: rates.Rates, alpha: float, rng: Any
) -> tuple[float, float, float]:
    """Return a comparison of the counted rates, `gap` or `ratio`, and the ends of its interval."""
    observed, ends = _value_and_interval(Rated(compare, notion, counts), alpha, Draws(rng))
    return observed, *(ends or (np.nan, np.nan))


def _value_and_interval(
    read: Any, alpha: float, draws: Draws
) -> tuple[float, tuple[float, float] | None]:
    """Return a metric's value, and its interval or None if its components are not known."""
    observed = float(read)
    if np.isnan(observed):
        return observed, (np.nan, np.nan)
    components = COMPONENTS[type(read)](read, draws)
    if components is None:
        return observed, None
    return observed, _checked(observed, _Inverted(components).interval(alpha))


def _checked(observed: float, ends: tuple[float, float]) -> tuple[float, float]:
    """Return the ends of an interval; warn if the metric is not between them."""
    low, high = ends
    if not low - 1e-9 <= observed <= high + 1e-9:
        warn_caller(
            f"The interval, {low:.4g} to {high:.4g}, does not contain the measured {observed:.4g}: "
            "the metric is biased on small groups, and the interval corrects for the bias.",
            SmallGroupWarning,
        )
    return ends


class _Inverted:
    """Tests of every size that a metric could truly have, inverted to an interval."""

    def __init__(self, components: Components) -> None:
        self.values, self.errors, self.summary, self.metric, self.most = components
        self.observed = float(self.summary.size(self.values))
        fair = self.summary.nearest(self.values, self.errors, 0.0)
        self.fair_variance, estimates = self.errors.variance(fair), self.errors.estimates(fair)
        self.fair_median = float(np.median(self._unlike_fair(estimates)))
        self.fair_draws = estimates[..., :N_FAIR]

    def interval(self, alpha: float) -> tuple[float, float]:
        """Return the interval of confidence 1 - alpha."""
        low = max(
            self._last(lambda size: self.too_small(size, alpha)),
            self.summary.proven(self.values, self.errors, alpha),
        )
        high = max(low, self._last(lambda size: not self.too_large(size, alpha)))
        ends = self.metric(low), self.metric(high)
        return min(ends), max(ends)

    def too_small(self, size: float, alpha: float) -> bool:
        """Return whether a true size so small is rejected, since the observed metric is larger."""
        at_least, upper = self._tails(size, alpha)
        return at_least < alpha * (1.0 - upper)

    def too_large(self, size: float, alpha: float) -> bool:
        """Return whether a true size so large is rejected, since the observed metric is smaller."""
        at_least, upper = self._tails(size, alpha)
        return 1.0 - at_least < alpha * upper

    def _tails(self, size: float, alpha: float) -> tuple[float, float]:
        """Return P(T* >= T) if the truth has this size, and the share of alpha at the upper end.

        Ties count half. The upper end gets half of alpha, and less the more the samples look like
        fair ones; at zero it gets none, since the metric cannot be smaller. For a cap it gets what
        it can use: a cap is too large only if each component is, as if there were no others. It
        gets all of alpha where the small group has no hit, or no miss, so often that the lower end
        cannot be guarded.
        """
        centre = self.summary.nearest(self.values, self.errors, size)
        variance, estimates = self.errors.variance(centre), self.errors.estimates(centre)
        # No draw is as small as a gap of exactly zero, and each size above it would be rejected:
        # samples that are alike by chance prove no more than this quantile of fair ones.
        fair = np.quantile(self.summary.statistic(self.fair_draws, variance, size), ALIKE)
        observed = np.maximum(self.summary.statistic(self.values, variance, size), fair)
        drawn = self.summary.statistic(estimates, variance, size)
        alike = float((self._unlike_fair(estimates) <= self.fair_median).mean())
        used = float((drawn <= norm.ppf(0.5 * alpha)).mean()) / alpha
        least = self.summary.least_upper(len(self.values))
        upper = min(0.5 * max(0.0, 1.0 - 2.0 * alike), max(used, least))
        farthest = self.summary.farthest(centre, variance, size, self.errors.support)
        if _at_least(drawn, farthest) > alpha * (1.0 - upper):
            upper = 1.0
        return _at_least(drawn, observed), upper

    def _unlike_fair(self, estimates: Floats) -> Floats:
        return self.summary.statistic(estimates, self.fair_variance, 0.0)

    def _last(self, holds: Callable[[float], bool]) -> float:
        """Bisect for the largest size at which `holds` is true; it is false for larger sizes."""
        if not holds(0.0):
            return 0.0
        deviation = float(np.sqrt(self.errors.variance(self.values).max()))
        low, high = 0.0, min(max(self.observed, 10.0 * deviation, 1e-9), self.most)
        while holds(high):
            if high >= self.most or high > 1e12:
                return self.most
            low, high = high, min(2.0 * high, self.most)
        return float(0.5 * sum(bisected(holds, low, high, 12)))


def _at_least(drawn: Floats, value: Any) -> float:
    """Return the fraction of draws that are at least a value; ties count half."""
    return 0.5 * float((drawn > value - 1e-9).mean() + (drawn > value + 1e-9).mean())


def _bootstrap(
    metric: Callable[..., float],
    columns: tuple[Any, ...],
    given: dict[str, Any],
    observed: float,
    alpha: float,
    draws: Draws,
) -> tuple[float, float]:
    """Return percentiles of the metric on resampled rows, with Efron's bias correction."""
    arrays, n_rows = [_indexable(values) for values in columns], len(columns[1])
    given = {name: _indexable(values) for name, values in given.items()}
    drawn = np.empty(draws.number or N_RESAMPLES)
    with ignoring(Warning):  # the metric has warned about the rows themselves
        for b in range(len(drawn)):
            rows = draws.rng.randint(n_rows, size=n_rows)
            drawn[b] = metric(*(rows_of(values, rows) for values in arrays), **rows_of(given, rows))
    values = drawn[~np.isnan(drawn)]
    below = 0.5 * ((values < observed).mean() + (values <= observed).mean())
    z = norm.ppf(np.clip(below, 0.5 / len(drawn), 1.0 - 0.5 / len(drawn)))
    levels = norm.cdf(2.0 * z + norm.ppf([alpha / 2, 1 - alpha / 2]))
    low, high = np.quantile(values, levels)
    return float(low), float(high)


def _indexable(values: Any) -> Any:
    """Convert values to an array for fast indexing, unless it would lose their order."""
    as_given = values is None or isinstance(values, UncertainGroups) or order_of(values)
    return values if as_given else label_array(values)


# --- components of metrics ------------------------------------------------------------------------


class Draws(NamedTuple):
    """A generator, and the number of draws; None: the default."""

    rng: np.random.RandomState
    number: int | None = None

    def normal(self, covariance: Floats, most: int = N_DRAWS) -> Floats:
        """Draw at most `most` normal errors, (..., m, n_draws), with a covariance of influences."""
        values, vectors = np.linalg.eigh(covariance)
        root = vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :]
        n_draws = min(self.number or N_DRAWS, most)
        return np.asarray(root @ self.rng.normal(size=(*covariance.shape[:-1], n_draws)))


class Components(NamedTuple):
    """Quantities that a metric summarises: estimates, and draws of their errors."""

    values: Floats  # of the shape that the summary takes
    errors: Errors
    summary: Range | Largest  # zero for a fair model, larger for larger differences
    metric: Callable[[float], float] = float  # from the size to the metric; monotone
    most: float = np.inf  # the largest size there is


# --- rates of predicted labels --------------------------------------------------------------------


def _rates(counts: Counts, notion: rates.Rates, draws: Draws) -> tuple[Floats, Proportions]:
    """Return rates (n_groups, n_events) with their errors.

    The margins are binomial, and the normal copula has the correlations of rates that share rows.
    For these, half a row of the group's mean weight is added to each cell.
    """
    definitions = list(counts.definitions(notion))
    hits = np.stack([rate.hits.ravel() for rate in definitions], axis=1)
    possible = np.stack([rate.possible.ravel() for rate in definitions], axis=1)
    table = counts.table.reshape(len(counts.groups), -1)
    values, shape = table @ hits / (table @ possible), (len(table), len(definitions))
    most = max(MOST_ERRORS // values.size, 1_000)
    unit = counts.squares.sum(axis=(1, 2)) / table.sum(axis=1)  # the weight of a row
    cells = table + 0.5 * unit[:, None]
    below = cells @ possible
    rate = cells @ hits / below
    # How much a row of each cell moves the rate of each event in each group, by its weight there.
    moves = (hits.T - rate[:, :, None] * possible.T) / below[:, :, None]
    if counts.products is None:
        squares = cells * unit[:, None]
        covariance = np.einsum("gec,gc,gfc->gef", moves, squares, moves)
        return values, Proportions(table @ possible / unit[:, None], draws.normal(covariance, most))
    products = counts.products + 0.5 * np.diag(unit**2)
    covariance = np.einsum("gec,cgh,hfc->gehf", moves, products, moves)
    covariance = covariance.reshape(values.size, values.size)
    rows = rate * (1.0 - rate) / np.diagonal(covariance).reshape(shape)
    return values, Proportions(rows, draws.normal(covariance, most).reshape(*shape, -1))


def _rates_compared(rated: Rated, draws: Draws) -> Components | None:
    """Return the rates that a metric compares; None for options whose components are unknown."""
    compare, notion, counts, how = rated

    def summed(ranges: Floats) -> Any:
        blocks = ranges.reshape(len(counts.classes.labels), -1, *ranges.shape[1:])
        return blocks.max(axis=1).sum(axis=0)

    summaries: dict[Any, Range | Largest] = {
        (gap, "worst_case"): Range(),
        (gap, "mean"): Combined(functools.partial(np.mean, axis=0)),
        (ratio, "worst_case"): Shortfall(),
        (summed_gap, "worst_case"): Combined(summed),
        (highest, "worst_case"): Highest(),
    }
    summary = summaries.get((compare, "mean" if "mean" in how else "worst_case"))
    if summary is None or "to_overall" in how:
        return None
    values, errors = _rates(counts, notion, draws)
    if compare is highest:  # over all groups and events alike
        errors = Proportions(errors.rows.reshape(-1, 1), errors.noise.reshape(values.size, 1, -1))
        values = values.reshape(-1, 1)
    size_to_metric = (lambda size: 1.0 - size) if compare is ratio else float
    most = len(counts.classes.labels) if compare is summed_gap else 1.0
    return Components(values, errors, summary, size_to_metric, most)


# --- scores and losses ----------------------------------------------------------------------------


def _aucs(gap: AUCGap, draws: Draws) -> Components:
    """Return differences of AUCs, with normal errors.

    Half a row of the cell's mean weight is added to each cell: a quarter above all other scores, a
    quarter below them. So a few rows that are ranked alike do not make an AUC certain.
    """
    ranked, sets = gap.ranked, gap.sets
    cells, n_cells = ranked.cells, 2 * len(ranked.groups)
    unit = cells.sums(cells.weight) / np.maximum(ranked.weight, 1e-300)
    influence = auc_influences(
        np.append(ranked.scores, np.repeat([-np.inf, np.inf], n_cells)),
        np.append(cells.group, np.tile(np.arange(n_cells), 2)),
        np.append(cells.weight, np.tile(0.25 * unit, 2)),
        sets,
    )
    rows, quarters = np.split(influence, [len(ranked.scores)], axis=1)
    # A quarter of a row moves an AUC by a quarter, and its variance is a quarter: 4^-2 times four.
    influence = np.hstack((cells.by_sample(rows), 2.0 * quarters))
    errors = Normal(draws.normal(influence @ influence.T)[:, None])
    return Components(ranked.differences(sets)[:, None], errors, Largest(), most=1.0)


def _losses(losses: RowLosses, draws: Draws) -> Components | None:
    """Return mean losses, with normal errors.

    Equal losses, as in a group of one row, do not prove that the whole group has them: such a group
    gets the spread of all rows.
    """
    if losses.method != "between_groups":
        return None
    member = losses.rows.group == np.arange(len(losses.rows.labels))[:, None]
    weight = member * losses.rows.weight
    total = weight.sum(axis=1, keepdims=True)
    weight = weight / total
    values = weight @ losses.losses[:, None]
    influence = losses.rows.by_sample(weight * (losses.losses - values))
    spread = (weight * np.square(losses.losses - values)).sum(axis=1)
    between = np.square(values - np.average(values, weights=total))[:, 0]
    rounding = np.square(NEGLIGIBLE * (1.0 + np.abs(losses.losses).max()))
    usual = max(np.average(spread + between, weights=total[:, 0]), rounding)
    alike = np.diag((spread <= rounding) * usual * np.square(weight).sum(axis=1))
    errors = Normal(draws.normal(influence @ influence.T + alike)[:, None])
    return Components(values, errors, Range())


# Functions that return the components of a metric from its checked arguments and draws.
COMPONENTS: Mapping[type, Callable[[Any, Draws], Components | None]] = {
    Rated: _rates_compared,
    AUCGap: _aucs,
    RowLosses: _losses,
}
