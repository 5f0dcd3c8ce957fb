"""How much noise a budget asks for: the accountant, inverted."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from scipy.optimize import brentq

from fairconstrained.privacy._loss_distributions import library
from fairconstrained.privacy.accounting import (
    REPLACING,
    Phase,
    Unit,
    as_batch,
    check_budget,
    check_positive,
    privacy_spent,
)

PhasesAt = Callable[[float], Sequence[Phase]]
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

    fixed = privacy_spent(phases_at(math.inf), delta=delta, unit=unit)
    if fixed >= TIGHT * epsilon:
        raise ValueError(
            f"Releases with noise that was fixed beforehand spend epsilon = {fixed:.4g} at delta = "
            f"{delta:g}, which leaves nothing of epsilon = {epsilon:g} for the rest."
        )
    goal = math.log(TIGHT) / 2
    low, high = 0.0, math.inf  # too little noise; enough of it
    at_low = at_high = math.nan
    noise = _guess(phases_at, epsilon, delta, unit)
    for attempt in range(200):
        spent = privacy_spent(phases_at(noise), delta=delta, unit=unit)
        excess = math.log(spent / epsilon) if spent > 0 else -math.inf
        if 2 * goal <= excess <= 0:
            return noise
        if excess > 0:
            low, at_low = noise, excess
        else:
            high, at_high = noise, excess
        if low > MOST_NOISE:
            raise ValueError(
                "No noise meets the budget: phases_at(noise) must cost less with more."
            )
        if high < low * 1.0001:
            # Epsilon jumps here. If delta exceeds the probability of being in any batch, (0, delta)
            # holds without noise, until there is too little of it to be accounted for.
            break
        if high == math.inf:  # epsilon is roughly proportional to 1/noise
            noise = low * min(max(math.exp(at_low - goal) * 1.01, 1.001), 4.0)
        elif low == 0:
            noise = high * max(min(math.exp(at_high - goal) * 0.99, 0.999), 0.25)
        else:  # the secant on logarithms; the middle where it is stuck, or an end is infinite
            fraction = (at_low - goal) / (at_low - at_high)
            if attempt % 4 == 3 or math.isnan(fraction):
                fraction = 0.5
            noise = low * math.pow(high / low, min(max(fraction, 0.02), 0.98))
    return high


def _guess(phases_at: PhasesAt, epsilon: float, delta: float, unit: Unit) -> float:
    """Noise at which the losses, taken for normal (central limit), would meet the budget."""
    replace = unit in REPLACING
    variance = 1 / gaussian_multiplier(epsilon, delta) ** 2

    def excess(log_noise: float) -> float:
        batches = [as_batch(phase) for phase in phases_at(math.exp(log_noise))]
        return sum(b.n_steps * b.variance(replace=replace) for b in batches) - variance

    ends = math.log(1e-2), math.log(MOST_NOISE)
    if excess(ends[0]) <= 0 or excess(ends[1]) >= 0:
        return 1.0
    return math.exp(float(brentq(excess, *ends, rtol=1e-3)))


def gaussian_multiplier(epsilon: float, delta: float) -> float:
    """The multiplier at which one Gaussian release costs (epsilon, delta); Balle and Wang, 2018."""
    return float(library("").get_sigma_gaussian(epsilon, delta))
