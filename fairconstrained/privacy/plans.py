"""Plans: how much noise the releases of a training need within a budget."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from scipy.optimize import brentq

from fairconstrained.privacy._loss_distributions import library, variance_of
from fairconstrained.privacy.accounting import (
    GRID_SHIFT,
    REPLACING,
    Budget,
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
)

PhasesAt = Callable[[float], Sequence[Phase]]
# Calibrated noise spends between this and all of the budget.
TIGHT = 0.995
MOST_NOISE = 1e9
NONE: Mapping[str, int] = MappingProxyType({})


def plan_releases(
    fractions: Mapping[str, float],
    budget: Budget,
    *,
    times: Mapping[str, int] = NONE,
    step: Mapping[str, float] = NONE,
    sampling_rate: float = 1.0,
    n_steps: int = 1,
    laplace: Collection[str] = (),
) -> PrivacyGuarantee:
    """Split a budget over noisy sums: some of all rows, and the rest for steps on Poisson batches.

    Parameters
    ----------
    fractions : dict of str to float
        Names of Gaussian releases of all rows, with fractions of the budget in (0, 1). Fractions
        are of the variance of the privacy loss, which adds up over releases.
    budget : Budget
        The budget of all releases.
    times : dict of str to int, optional
        How often a release of all rows is made, if not once; its fraction is for all times.
    step : dict of str to float, optional
        Names of the joint releases of each step, with fractions of 1 by which the precision
        1/noise**2 of a step is split. The steps get what the other releases leave of the budget.
    sampling_rate : float, default=1.0
        Probability of each row to be in the batch of a step.
    n_steps : int, default=1
        Number of steps.
    laplace : collection of str, default=()
        The releases of a step with Laplace noise. Noise of scale b costs about as much as Gaussian
        noise of multiplier b where b is large.

    Returns
    -------
    PrivacyGuarantee
        The plan: ``noise`` and ``times`` of each release by its name, and what they cost together.

    Raises
    ------
    ValueError
        If a fraction is not in (0, 1), or if the fractions are more than the budget.

    Examples
    --------
    >>> from fairconstrained.privacy import Budget, plan_releases
    >>> budget = Budget(1.0, 1e-5, "record")
    >>> plan = plan_releases({"counts": 0.1, "moments": 0.89}, budget)
    >>> print(f"{plan.noise('counts'):.1f} {plan.noise('moments'):.1f} {plan.epsilon:.3f}")
    11.8 4.0 0.994
    >>> steps = {"histogram": 0.1, "gradient": 0.9}
    >>> plan = plan_releases({}, budget, step=steps, sampling_rate=0.05, n_steps=400)
    >>> print(f"{plan.noise('gradient'):.2f} {plan.noise('histogram'):.1f} {plan.epsilon:.2f}")
    4.10 12.3 1.00
    """
    check_positive("epsilon", budget.epsilon)
    check_budget(delta=budget.delta, unit=budget.unit)
    for name, fraction in (*fractions.items(), *step.items()):
        if not 0 < fraction < 1:
            raise ValueError(f"The fraction of {name!r} must be in (0, 1); got {fraction!r}.")
    once = []
    for name, fraction in fractions.items():
        n = times.get(name, 1)
        once.append(Phase([Gaussian(one_off_noise(fraction / n, budget), of=name)], n_steps=n))

    def phases_at(noise: float) -> list[Phase]:
        releases: list[Gaussian | Laplace] = []
        for name, fraction in step.items():
            kind = Laplace if name in laplace else Gaussian
            releases.append(kind(noise / math.sqrt(fraction), of=name))
        return [*once, Phase(releases, sampling_rate, n_steps)] if releases else once

    epsilon, delta, unit = budget
    noise = calibrate(phases_at, epsilon=epsilon, delta=delta, unit=unit) if step else math.inf
    plan = privacy_guarantee(phases_at(noise), delta=delta, unit=unit)
    if plan.epsilon > epsilon:
        raise ValueError(
            f"The fractions {dict(fractions)} cost epsilon = {plan.epsilon:.4g}, more than "
            f"{epsilon:g}: leave 1 % because the accountant rounds up."
        )
    # A single step of all rows would pass for a release that is made once, and several releases of
    # all rows for steps.
    return replace(plan, n_steps=n_steps if step else 0, sampling_rate=sampling_rate)


def one_off_noise(fraction: float, budget: Budget) -> float:
    """Multiplier of one Gaussian release of all rows for a fraction of a budget."""
    moves = 2 if budget.unit in REPLACING else 1
    whole = moves * gaussian_multiplier(budget.epsilon, budget.delta)
    shift = math.sqrt(fraction) / whole - GRID_SHIFT
    if shift <= 0:
        raise ValueError(
            f"epsilon = {budget.epsilon:g} at delta = {budget.delta:g} is less than what rounding "
            "costs."
        )
    return 1 / shift


def gaussian_multiplier(epsilon: float, delta: float) -> float:
    """The multiplier at which one Gaussian release costs (epsilon, delta); Balle and Wang, 2018."""
    return float(library("").get_sigma_gaussian(epsilon, delta))


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
        bound is checked, not approximated. Where epsilon jumps as a function of the noise, the
        least noise above the jump.

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

    def spent(noise: float) -> float:
        return privacy_spent(phases_at(noise), delta=delta, unit=unit)

    if spent(math.inf) >= TIGHT * epsilon:
        raise ValueError(
            f"Releases with noise that was fixed beforehand spend epsilon = {spent(math.inf):.4g} "
            f"at delta = {delta:g}, which leaves nothing of epsilon = {epsilon:g} for the rest."
        )

    def excess(log_noise: float) -> float:
        ratio = min(max(spent(math.exp(log_noise)) / epsilon, 1e-6), 1e6)
        return 0.0 if TIGHT <= ratio <= 1 else math.log(ratio / TIGHT**0.5)

    low = high = _guess(phases_at, epsilon, delta, unit)
    step = 0.02
    while excess(low) < 0:
        low, step = low - step, 2 * step
    while excess(high) > 0:
        high, step = high + step, 2 * step
        if high > math.log(MOST_NOISE):
            raise ValueError(
                "No noise meets the budget: phases_at(noise) must cost less with more."
            )
    found = float(brentq(excess, low, high, xtol=1e-6))
    while excess(found) > 0:  # a jump
        found += 1e-6
    return math.exp(found)


def _guess(phases_at: PhasesAt, epsilon: float, delta: float, unit: Unit) -> float:
    """Logarithm of the noise that would meet the budget if privacy losses were normal."""
    replaces, goal = unit in REPLACING, 1 / gaussian_multiplier(epsilon, delta) ** 2

    def excess(log_noise: float) -> float:
        batches = map(as_batch, phases_at(math.exp(log_noise)))
        return variance_of(batches, replace=replaces) - goal

    ends = math.log(1e-2), math.log(MOST_NOISE)
    if excess(ends[0]) <= 0 or excess(ends[1]) >= 0:
        return 0.0
    return float(brentq(excess, *ends, rtol=1e-3))
