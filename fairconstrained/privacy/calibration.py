"""How much noise a budget asks for: the accountant, inverted."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import brentq

from fairconstrained.privacy._loss_distributions import TOLERANCE, gaussian_divergence, variance_of
from fairconstrained.privacy.accounting import (
    GRID_SHIFT,
    REPLACING,
    Gaussian,
    Laplace,
    Phase,
    PrivacyGuarantee,
    Unit,
    as_batch,
    check_budget,
    check_positive,
    privacy_guarantee,
    privacy_spent,
    spent_within,
)

__all__ = [
    "TrainingPlan",
    "calibrate",
    "one_off_gaussian",
    "plan_training",
]

PhasesAt = Callable[[float], Sequence[Phase]]
NOISES: dict[str, Callable[..., Gaussian | Laplace]] = {"gaussian": Gaussian, "laplace": Laplace}
_SCALING = ("sizes of the columns' entries", "mean squared norm", "mean row")
# Calibrated noise spends between this and all of the budget.
TIGHT = 0.995
MOST_NOISE = 1e9


def calibrate(phases_at: PhasesAt, *, epsilon: float, delta: float, unit: Unit = "record") -> float:
    """The least noise with which a training keeps a budget.

    Parameters
    ----------
    phases_at : callable
        ``phases_at(noise)`` lists the phases of the training; more noise must not cost more, and
        ``phases_at(inf)`` holds what does not depend on it.
    epsilon, delta : float
        The budget.
    unit : {"record", "record_replacement", "sensitive_features"}, default="record"
        As in :func:`privacy_spent`.

    Returns
    -------
    float
        A noise with ``0.995 * epsilon <= privacy_spent(phases_at(noise)) <= epsilon``; the upper
        bound is checked, not approximated.

    Raises
    ------
    ValueError
        If the budget is spent by releases that do not depend on the noise.

    Examples
    --------
    >>> from fairconstrained.privacy import Gaussian, Phase, calibrate
    >>> noise = calibrate(lambda s: [Phase([Gaussian(s)], 0.2, 150)], epsilon=1.0, delta=1e-5,
    ...                   unit="sensitive_features")
    >>> print(f"{noise:.1f}")
    18.3
    """
    check_positive("epsilon", epsilon)
    check_budget(delta=delta, unit=unit)

    def excess(noise: float, tolerance: float = TOLERANCE) -> float:
        spent = spent_within(tolerance, phases_at(noise), delta=delta, unit=unit)
        return math.log(spent / epsilon) if spent > 0 else -math.inf

    fixed = privacy_spent(phases_at(math.inf), delta=delta, unit=unit)
    if fixed >= TIGHT * epsilon:
        raise ValueError(
            f"Releases with noise that was fixed beforehand spend epsilon = {fixed:.4g} at delta = "
            f"{delta:g}, which leaves nothing of epsilon = {epsilon:g} for the rest."
        )
    rough = functools.partial(excess, tolerance=10 * TOLERANCE)  # a fraction of the time
    return _decreasing_root(
        excess, _decreasing_root(rough, _guess(phases_at, epsilon, delta, unit))
    )


def _guess(phases_at: PhasesAt, epsilon: float, delta: float, unit: Unit) -> float:
    """Noise at which the losses, taken for normal (central limit), would meet the budget."""
    replace = unit in REPLACING
    variance = 1 / _gaussian_multiplier(epsilon, delta) ** 2

    def excess(log_noise: float) -> float:
        batches = [as_batch(phase) for phase in phases_at(math.exp(log_noise))]
        return sum(b.n_steps * variance_of(b, replace=replace) for b in batches) - variance

    ends = math.log(1e-2), math.log(MOST_NOISE)
    if excess(ends[0]) <= 0 or excess(ends[1]) >= 0:
        return 1.0
    return math.exp(float(brentq(excess, *ends, rtol=1e-3)))


def _decreasing_root(excess: Callable[[float], float], noise: float) -> float:
    """Noise with log(TIGHT) <= excess <= 0, by the secant method on logarithms in a bracket."""
    low, high = 0.0, math.inf  # too little noise; enough of it
    at_low = at_high = math.nan
    goal = math.log(TIGHT) / 2
    for attempt in itertools.count():
        value = excess(noise)
        if 2 * goal <= value <= 0:
            break
        if value > 0:
            low, at_low = noise, value
        else:
            high, at_high = noise, value
        if low > MOST_NOISE:
            raise ValueError(
                "No noise meets the budget: phases_at(noise) must cost less with more."
            )
        if high < low * 1.0001:
            # Epsilon jumps here. If delta exceeds the probability of being in any batch, (0, delta)
            # holds without noise, until there is too little of it to be accounted for.
            return high
        if high == math.inf:  # epsilon is roughly proportional to 1/noise
            noise = low * min(max(math.exp(at_low - goal) * 1.01, 1.001), 4.0)
        elif low == 0:
            noise = high * max(min(math.exp(at_high - goal) * 0.99, 0.999), 0.25)
        else:
            share = (at_low - goal) / (at_low - at_high)
            if attempt % 4 == 3 or math.isnan(share):
                share = 0.5  # halves the bracket where the secant is stuck, or an end is infinite
            noise = low * math.pow(high / low, min(max(share, 0.02), 0.98))
    return noise


def _gaussian_multiplier(epsilon: float, delta: float) -> float:
    """The multiplier at which one Gaussian release costs (epsilon, delta); Balle and Wang, 2018."""

    def excess(log_multiplier: float) -> float:
        divergence = gaussian_divergence(np.asarray(epsilon), math.exp(-log_multiplier))
        return float(divergence) - delta

    return math.exp(float(brentq(excess, math.log(1e-3), math.log(1e12), xtol=1e-10)))


def one_off_gaussian(
    share: float, *, epsilon: float, delta: float, unit: Unit = "record", of: str = "group counts"
) -> Gaussian:
    """A Gaussian release, once and of all rows, for a share of a budget.

    Shares are of the variance of the privacy loss, which adds up over releases: a share of 1
    spends (epsilon, delta) alone.

    Parameters
    ----------
    share : float
        In (0, 1].
    epsilon, delta, unit
        The whole budget.
    of : str, default="group counts"
        What is released.

    Returns
    -------
    Gaussian

    Examples
    --------
    >>> from fairconstrained.privacy import one_off_gaussian
    >>> print(one_off_gaussian(0.01, epsilon=1.0, delta=1e-5))
    group counts with Gaussian noise, multiplier 37.31
    """
    check_positive("epsilon", epsilon)
    check_budget(delta=delta, unit=unit)
    if not 0 < share <= 1:
        raise ValueError(f"share must be in (0, 1]; got {share!r}.")
    moves = 2 if unit in REPLACING else 1
    shift = math.sqrt(share) / (moves * _gaussian_multiplier(epsilon, delta)) - GRID_SHIFT
    if shift <= 0:
        raise ValueError(
            f"epsilon = {epsilon:g} at delta = {delta:g} is less than what rounding costs."
        )
    return Gaussian(1 / shift, of=of)


@dataclass(frozen=True)
class TrainingPlan:
    """Noise of a private training, and what it costs.

    Attributes
    ----------
    gradient_noise : float
        Standard deviation of the noise on the sum of clipped gradients, divided by the clip.
    histogram_noise : float
        Standard deviation (Gaussian) or scale (Laplace) of the noise on each table of a batch,
        divided by the largest norm (l2 or l1) of a row's entries; ``inf`` without tables.
    counts_noise, final_noise : float
        Standard deviation of the noise on the group counts, released once, and on each final
        table, both of all rows; ``inf`` without.
    privacy : PrivacyGuarantee
        For the attribute ``privacy_``.
    scaling_noise : float, default=inf
        Noise multiplier of the sizes of entries in each column (released only where no range is
        public), of the rows' mean squared norm and of their mean, each released once.
    final_tables : int, default=1
        How many final tables there may be, each with ``final_noise``.
    histogram_kind : {"gaussian", "laplace"}, default="gaussian"
        Distribution of the noise on each table of a batch.

    Examples
    --------
    >>> from fairconstrained.privacy import plan_training
    >>> plan = plan_training(epsilon=1.0, delta=1e-5, sampling_rate=0.05, n_steps=100)
    >>> type(plan).__name__, plan.final_noise
    ('TrainingPlan', inf)
    """

    gradient_noise: float
    histogram_noise: float
    counts_noise: float
    final_noise: float
    privacy: PrivacyGuarantee
    scaling_noise: float = math.inf
    final_tables: int = 1
    histogram_kind: str = "gaussian"


def plan_training(
    *,
    epsilon: float,
    delta: float,
    sampling_rate: float,
    n_steps: int,
    unit: Unit = "record",
    histogram_share: float = 0.1,
    histogram_noise: str = "gaussian",
    counts_share: float = 0.0,
    final_share: float = 0.0,
    scaling_share: float = 0.0,
    final_tables: int = 1,
) -> TrainingPlan:
    """Noise for steps that release a table and a gradient of one Poisson batch each.

    Parameters
    ----------
    epsilon, delta : float
        The budget of the whole training.
    sampling_rate : float
        Probability of each row to be in a batch.
    n_steps : int
        Number of batches.
    unit : {"record", "record_replacement", "sensitive_features"}, default="record"
        As in :func:`privacy_spent`.
    histogram_share : float, default=0.1
        The table's share of each step, in [0, 1): the precision 1/noise**2 of the joint release is
        split in this proportion. 0 for no table.
    histogram_noise : {"gaussian", "laplace"}, default="gaussian"
        The table's noise. Laplace noise of scale b costs about as much as Gaussian noise of
        multiplier b where b is large.
    counts_share, final_share : float, default=0.0
        Shares of the budget for the counts of all rows, released once before the training, and for
        tables of all rows, released after it; in [0, 1).
    scaling_share : float, default=0.0
        Share of the budget for the sizes of entries in each column, for the rows' mean squared norm
        and for their mean together.
    final_tables : int, default=1
        How many tables are released after the training; they divide `final_share`.

    Returns
    -------
    TrainingPlan

    Examples
    --------
    >>> from fairconstrained.privacy import plan_training
    >>> plan = plan_training(epsilon=1.0, delta=1e-5, sampling_rate=0.05, n_steps=400)
    >>> print(f"{plan.gradient_noise:.2f} {plan.histogram_noise:.1f} {plan.privacy.epsilon:.2f}")
    4.09 12.3 1.00
    """
    check_positive("epsilon", epsilon)
    check_budget(delta=delta, unit=unit)
    _check_shares(
        histogram_share=histogram_share,
        counts_share=counts_share,
        final_share=final_share,
        scaling_share=scaling_share,
    )
    if final_tables < 1:
        raise ValueError(f"final_tables must be at least 1; got {final_tables!r}.")
    if histogram_noise not in NOISES:
        raise ValueError(f"histogram_noise must be one of {list(NOISES)}; got {histogram_noise!r}.")
    once = {
        what: one_off_gaussian(share, epsilon=epsilon, delta=delta, unit=unit, of=what)
        for what, share in (
            ("group counts", counts_share),
            ("final table", final_share / final_tables),
            *((what, scaling_share / len(_SCALING)) for what in _SCALING),
        )
        if share
    }

    def split(noise: float) -> tuple[float, float]:
        table = noise / math.sqrt(histogram_share) if histogram_share else math.inf
        return table, noise / math.sqrt(1 - histogram_share)

    def phases_at(noise: float) -> list[Phase]:
        table, gradient = split(noise)
        releases = [NOISES[histogram_noise](table, of="histogram")] if histogram_share else []
        releases.append(Gaussian(gradient, of="gradient"))
        times = {"final table": final_tables}
        single = [Phase([release], n_steps=times.get(what, 1)) for what, release in once.items()]
        return [*single, Phase(releases, sampling_rate, n_steps)]

    noise = calibrate(phases_at, epsilon=epsilon, delta=delta, unit=unit)
    table, gradient = split(noise)
    privacy = privacy_guarantee(phases_at(noise), delta=delta, unit=unit)
    # A single step of all rows would pass for a release that is made once.
    privacy = replace(privacy, n_steps=n_steps, sampling_rate=sampling_rate)
    counts, final, scaling = (
        once[what].noise_multiplier if what in once else math.inf
        for what in ("group counts", "final table", "mean row")
    )
    once_noise = (counts, final, privacy, scaling)
    return TrainingPlan(gradient, table, *once_noise, final_tables, histogram_noise)


def _check_shares(**shares: float) -> None:
    for name, share in shares.items():
        if not 0 <= share < 1:
            raise ValueError(f"{name} must be in [0, 1); got {share!r}.")
