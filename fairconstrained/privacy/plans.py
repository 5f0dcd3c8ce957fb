"""Epsilon of noisy releases, and the noise that they need within a budget.

Epsilon comes from the privacy-loss distributions of the library dp-accounting. It has no joint
release of Laplace and Gaussian noise from one Poisson batch, as the RaCO paper makes it: that
distribution is computed here, from the library's for all rows.

Every result is an upper bound: distributions are discretised by "connect the dots"
(arXiv:2207.04380), which only moves hockey-stick divergences up, tails that are cut off go to an
infinite loss (above) or up to the smallest loss kept (below), and the rounding errors of fast
Fourier transforms are taken off delta.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr

from fairconstrained.arrays import check_number
from fairconstrained.privacy.accounting import (
    GRID_SHIFT,
    REPLACING,
    Batch,
    Budget,
    Gaussian,
    Laplace,
    Phase,
    PrivacyGuarantee,
    Unit,
    as_batch,
    check_budget,
    check_positive,
    listing,
)

PhasesAt = Callable[[float], Sequence[Phase]]
# Calibrated noise spends between this and all of the budget: noise of half a percent less would
# change no result.
TIGHT = 0.995
# The search for noise ends there: more leaves nothing of the data.
MOST_NOISE = 1e9
NONE: Mapping[str, int] = MappingProxyType({})
# Rounding errors of the convolutions stay orders of magnitude below this much delta
# (tests/privacy/test_accounting.py compares 10,000 steps with the closed form).
ROUNDING = 1e-12
# Fraction of delta for the tails that are cut off before composition, and charged for.
CUT = 1e-4
# Step of the grid in standard deviations of a loss. Connecting the dots adds at most a quarter of
# its square to the variance: 0.25 %, and half of that to epsilon.
STEP = 0.1
# Largest step of the grid of losses, and most points of it: half a megabyte.
MOST_STEP, MOST_POINTS = 0.1, 1 << 16
# Up to this probability that a row is in any batch, hardly any is in two.
SELDOM = 0.1
# Beyond these (epsilon in the hundreds) nothing is protected: charged as infinite, in no time and
# without overflow.
MAX_LOSS, MAX_REACH, MAX_VARIANCE = 600.0, 700.0, 1e6
# Largest epsilon of plans: beyond it noise would be in digits that doubles do not have.
MOST_EPSILON = 1e4


def privacy_spent(phases: Iterable[Phase], *, delta: float, unit: Unit = "record") -> float:
    """Compute epsilon of everything that the phases release, at a given delta.

    Parameters
    ----------
    phases : iterable of Phase
        They may depend on each other's releases, in any order.
    delta : float
        Between 1e-10 and 1; below 1/n to mean anything.
    unit : {"record", "record_replacement", "sensitive_features"}, default="record"
        See Notes.

    Returns
    -------
    float
        An upper bound, some 0.2 % above the smallest epsilon or less; ``inf`` where it would be in
        the thousands.

    Raises
    ------
    ValueError
        For Laplace noise on sampled batches where a row is replaced by another: no pair of data
        sets is known to be the worst case there, hence no number would be a guarantee. Use
        Gaussian noise.

    Notes
    -----
    *Joint releases.* Let P and Q be the joint laws of all releases of a batch, given that the row
    is in the batch, or not. The batch's law is ``(1 - q) Q + q P`` against Q, with products P and
    Q, and both directions ("remove" and "add") are composed over all steps before the larger
    epsilon is taken [1]_ [2]_. Several Gaussian releases are exactly one, with multiplier
    ``(sum 1/s_i**2)**-0.5``. Several Laplace releases are charged as one with scale
    ``1 / sum(1/b_i)``, the worst case that one row puts all its weight on one entry.

    *Record*: one row is replaced by a null row, which is drawn into batches and uses random numbers
    (of dropout, say) as any other, but adds nothing to any sum; or back. The number of rows is
    public, because sampling rates depend on it: that a row is there at all is not hidden. Replacing
    a record by another one is two such steps: at delta 1e-5 the default plans of epsilon 0.1, 1 and
    9 then cost up to 0.22, 2.2 and 22.

    *Record replacement, sensitive features*: one row, or its sensitive features, are replaced by
    any other, all else being public. The worst case is the pair of antipodal contributions of norm
    1, ``(1 - q) N(0) + q N(+1)`` against ``(1 - q) N(0) + q N(-1)``, as in dp-accounting. It
    dominates all other pairs: by advanced joint convexity [3]_ the divergence is that of ``N(v)``
    from a mixture of ``N(0)`` and ``N(v')``, and such mixtures are dominated by the scalar one with
    the same distances, which are at most 1 and 2 [4]_.

    References
    ----------
    .. [1] Zhu, Dong and Wang (2022), "Optimal Accounting of Differential Privacy via Characteristic
       Function", Theorem 11.
    .. [2] Lebeda, Regehr, Kamath and Steinke (2024), "Avoiding Pitfalls for Privacy Accounting of
       Subsampled Mechanisms under Composition", arXiv:2405.20769.
    .. [3] Balle, Barthe and Gaboardi (2018), "Privacy Amplification by Subsampling: Tight Analyses
       via Couplings and Divergences", Theorem 2.
    .. [4] Choquette-Choo, Ganesh, Steinke and Thakurta (2024), "Privacy Amplification for Matrix
       Mechanisms", Section 4.

    Examples
    --------
    >>> from fairconstrained.privacy import Gaussian, Laplace, Phase, privacy_spent
    >>> counts = Phase([Gaussian(40.0, of="group counts")])
    >>> steps = Phase([Laplace(4.0, of="histogram"), Gaussian(3.0, of="gradient")],
    ...               sampling_rate=0.014, n_steps=200)
    >>> print(f"{privacy_spent([steps], delta=1e-5):.3f}")
    0.299
    >>> print(f"{privacy_spent([counts, steps], delta=1e-5):.3f}")
    0.311
    """
    check_budget(delta=delta, unit=unit)
    replaces, batches = unit in REPLACING, tuple(map(as_batch, listing("phases", phases, Phase)))
    for batch in batches:
        if replaces and batch.laplace and batch.rate < 1:
            raise ValueError(
                f'Laplace noise on sampled batches has no known worst case for unit="{unit}", so '
                "that no epsilon could be promised: use Gaussian noise."
            )
    return _epsilon(batches, delta, replaces)


def privacy_guarantee(
    phases: Iterable[Phase], *, delta: float, unit: Unit = "record"
) -> PrivacyGuarantee:
    """Return the guarantee of a training, for the attribute ``privacy_``.

    Parameters
    ----------
    phases, delta, unit
        As in :func:`privacy_spent`.

    Examples
    --------
    >>> from fairconstrained.privacy import Gaussian, Phase, privacy_guarantee
    >>> guarantee = privacy_guarantee([Phase([Gaussian(10.0)])], delta=1e-5)
    >>> print(f"{guarantee.epsilon:.2f}")
    0.34
    """
    phases = listing("phases", phases, Phase)
    steps = [phase for phase in phases if phase.sampling_rate < 1 or phase.n_steps > 1]
    version = importlib.metadata.version("dp-accounting")
    return PrivacyGuarantee(
        epsilon=privacy_spent(phases, delta=delta, unit=unit),
        delta=delta,
        unit=unit,
        mechanisms=tuple(map(str, phases)),
        sampling_rate=max([phase.sampling_rate for phase in steps], default=1.0),
        n_steps=sum([phase.n_steps for phase in steps]),
        accountant=f"privacy-loss distributions (dp-accounting {version}), rounded up",
        phases=phases,
    )


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
    """Plan noise within a budget: for sums over all rows, and for steps on Poisson batches.

    Gaussian releases of all rows have fractions of the budget in (0, 1), for all `times` that they
    are made. Fractions are of the variance of the privacy loss, which adds up over releases. The
    joint releases of each `step` have fractions of 1, by which the precision 1/noise**2 of a step
    is split; the steps get what the other releases leave. Some of a step may have Laplace noise:
    of scale b it costs about as much as Gaussian noise of multiplier b where b is large.
    """
    check_positive("epsilon", budget.epsilon)
    check_budget(delta=budget.delta, unit=budget.unit)
    in_batches = step and (sampling_rate < 1 or laplace)  # whose accountant resolves no more
    most = MAX_LOSS if in_batches else MOST_EPSILON
    budget = budget._replace(epsilon=min(budget.epsilon, most))
    for name, fraction in (*fractions.items(), *step.items()):
        if not 0 < fraction < 1:
            raise ValueError(f"The fraction of {name!r} must be in (0, 1); got {fraction!r}.")
    once = []
    for name, fraction in fractions.items():
        n = times.get(name, 1)
        once.append(Phase([Gaussian(one_off_noise(fraction / n, budget), of=name)], n_steps=n))

    def phases_at(noise: float) -> list[Phase]:
        releases = [
            (Laplace if name in laplace else Gaussian)(noise / math.sqrt(fraction), of=name)
            for name, fraction in step.items()
        ]
        return [*once, Phase(releases, sampling_rate, n_steps)] if releases else once

    epsilon, delta, unit = budget
    noise = calibrate(phases_at, epsilon=epsilon, delta=delta, unit=unit) if step else math.inf
    plan = privacy_guarantee(phases_at(noise), delta=delta, unit=unit)
    if plan.epsilon > epsilon:
        raise ValueError(
            f"The fractions {dict(fractions)} cost epsilon = {plan.epsilon:.4g}, more than "
            f"{epsilon:g}: leave 1 % because the accountant rounds up."
        )
    # A single step of all rows would count as a release that is made once, and several releases of
    # all rows as steps.
    return replace(plan, n_steps=n_steps if step else 0, sampling_rate=sampling_rate)


def one_off_noise(fraction: float, budget: Budget) -> float:
    """Return the multiplier of one Gaussian release of all rows for a fraction of a budget."""
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
    """Return the multiplier at which one release costs (epsilon, delta); Balle and Wang, 2018."""
    with np.errstate(divide="ignore"):  # of tiny epsilons
        return float(_library("").get_sigma_gaussian(min(epsilon, MOST_EPSILON), delta))


def calibrate(phases_at: PhasesAt, *, epsilon: float, delta: float, unit: Unit = "record") -> float:
    """Find the least noise with which a training keeps a budget.

    Parameters
    ----------
    phases_at : callable
        ``phases_at(noise)`` lists the phases of the training; more noise must not cost more, and
        ``phases_at(inf)`` holds what does not depend on it.
    epsilon, delta, unit
        The budget, as in :class:`Budget`.

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
    check_number("epsilon", epsilon, "a finite number > 0", lambda e: 0 < e < math.inf)
    check_budget(delta=delta, unit=unit)
    if not callable(phases_at):
        raise ValueError(f"phases_at must be a function of the noise; got {phases_at!r}.")
    fixed = privacy_spent(phases_at(math.inf), delta=delta, unit=unit)
    if fixed >= TIGHT * epsilon:
        raise ValueError(
            f"Releases with noise that was fixed beforehand spend epsilon = {fixed:.4g} "
            f"at delta = {delta:g}, which leaves nothing of epsilon = {epsilon:g} for the rest."
        )

    def excess(log_noise: float) -> float:
        spent = privacy_spent(phases_at(math.exp(log_noise)), delta=delta, unit=unit)
        ratio = min(max(spent / epsilon, 1e-6), 1e6)
        return 0.0 if TIGHT <= ratio <= 1 else math.log(ratio / TIGHT**0.5)

    def is_unbounded(log_noise: float) -> bool:
        batches = map(as_batch, phases_at(math.exp(log_noise)))
        return _is_unbounded(_merged(batches), delta, unit in REPLACING)

    low = high = _guess(phases_at, epsilon, delta, unit)
    step = 0.02
    while excess(low) < 0:
        low, step = low - step, 2 * step
        if low < -math.log(MOST_NOISE):
            raise ValueError("phases_at must cost more with less noise; its phases never do.")
    while excess(high) > 0:
        high, step = high + step, 2 * step
        if high > math.log(MOST_NOISE):
            raise ValueError(
                f"No noise below {MOST_NOISE:g} keeps epsilon = {epsilon:g} at delta = {delta:g}: "
                "take fewer steps, or a larger budget."
            )
    if is_unbounded(low):  # up to a noise that costs nothing to find
        low = _least_without(is_unbounded, low, high)
        if excess(low) <= 0:
            return math.exp(low)
    log_noise = float(brentq(excess, low, high, xtol=1e-6))
    while excess(log_noise) > 0:  # a jump
        log_noise += 1e-6
    return math.exp(log_noise)


def _least_without(holds: Callable[[float], bool], low: float, high: float) -> float:
    """Bisect between `low`, which `holds`, and `high`, which does not; return the end above."""
    while high - low > 1e-6:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if holds(middle) else (low, middle)
    return high


def _guess(phases_at: PhasesAt, epsilon: float, delta: float, unit: Unit) -> float:
    """Return the logarithm of the noise that meets the budget if privacy losses are normal.

    Where hardly any row is in a batch, take the loss of one batch instead.
    """
    goal = 1 / gaussian_multiplier(epsilon, delta) ** 2

    def batches(log_noise: float) -> Iterable[Batch]:
        return map(as_batch, phases_at(math.exp(log_noise)))

    def excess_if_normal(log_noise: float) -> float:
        return _variance(batches(log_noise), unit in REPLACING) - goal

    def excess_of_one_batch(log_noise: float) -> float:
        return sum(_delta_of_one(batch, epsilon) for batch in batches(log_noise)) - delta

    ends = math.log(1e-2), math.log(MOST_NOISE)
    for excess in (excess_of_one_batch, excess_if_normal):
        if excess(ends[0]) > 0 > excess(ends[1]):
            return float(brentq(excess, *ends, rtol=1e-3))
    return 0.0


def _variance(batches: Iterable[Batch], replaces: bool) -> float:
    """Estimate the variance of all steps' privacy loss, for choices that no promise depends on."""
    total = 0.0
    for batch in batches:
        square = batch.gaussian**2 + batch.laplace**2
        bounded = min(square, 700.0)
        divergence = 4 * math.sinh(bounded) if replaces else math.expm1(bounded)
        one = min(batch.rate**2 * divergence, square * (4 if replaces else 1))
        total += batch.n_steps * one
    return total


def _library(module: str) -> Any:
    """Import a module of dp-accounting, which is an extra, where its numbers are needed."""
    try:
        return importlib.import_module(f"dp_accounting.{module}".removesuffix("."))
    except ImportError as error:
        said = "Privacy accounting needs dp-accounting: pip install dp-accounting."
        raise ImportError(said) from error


def _delta_of_one(batch: Batch, epsilon: float) -> float:
    """Approximate the delta of all steps if a row is in one batch at most."""
    shift, surely = batch.gaussian, batch.laplace  # half of the time it is all of Laplace's loss
    if shift == 0:
        shift, surely = batch.laplace, 0.0
    if shift == 0 or batch.rate * batch.n_steps > SELDOM:
        return 0.0
    loss = math.log1p(math.expm1(min(epsilon, MAX_LOSS)) / batch.rate) - surely  # if it has the row
    above = np.exp(log_ndtr(shift / 2 - loss / shift))
    below = np.exp(loss + log_ndtr(-shift / 2 - loss / shift))
    return batch.rate * batch.n_steps * float(above - below)


def _merged(batches: Iterable[Batch]) -> tuple[Batch, ...]:
    """Join all Gaussian releases of all rows into one batch, and drop batches without release."""
    square, rest = 0.0, []
    for batch in batches:
        if batch.is_gaussian:
            square += batch.n_steps * batch.gaussian**2
        elif batch.gaussian or batch.laplace:
            rest.append(batch)
    return (Batch(1.0, 1, math.sqrt(square), 0.0), *rest) if square else tuple(rest)


def _log_tail(batches: Sequence[Batch], delta: float) -> float:
    """Return the logarithm of the mass that is cut off the distribution of each step."""
    return math.log(CUT * delta / sum([batch.n_steps for batch in batches]))


def _largest_loss(batches: Sequence[Batch], delta: float) -> float:
    """Return the largest loss that is not cut off."""
    log_tail = _log_tail(batches, delta)
    return max(batch.loss(batch.reach(log_tail)) for batch in batches)


def _is_unbounded(batches: Sequence[Batch], delta: float, replaces: bool) -> bool:
    """Return whether epsilon is infinite, as far as this is known without a distribution."""
    if _variance(batches, replaces) > MAX_VARIANCE:
        return True
    if all(batch.is_gaussian for batch in batches):
        return False
    log_tail = _log_tail(batches, delta)
    reach = max(batch.reach(log_tail) for batch in batches)  # whose exponential must be a double
    return reach > MAX_REACH or _largest_loss(batches, delta) > MAX_LOSS


@functools.lru_cache(maxsize=1024)
def _epsilon(batches: tuple[Batch, ...], delta: float, replaces: bool) -> float:
    """Bound the epsilon of the composed batches at `delta` from above."""
    library = _library("")  # a missing library is an error in any case
    batches = _merged(batches)
    variance = _variance(batches, replaces)
    if variance == 0:
        return 0.0
    if _is_unbounded(batches, delta, replaces):
        return math.inf
    if all(batch.is_gaussian for batch in batches):  # which are one
        shift = batches[0].gaussian * (2 if replaces else 1)
        with np.errstate(divide="ignore"):  # of tiny shifts
            return float(library.get_epsilon_gaussian(1 / shift, delta - ROUNDING))
    interval = min(STEP * math.sqrt(variance / sum([b.n_steps for b in batches])), MOST_STEP)
    most = max(batches, key=lambda batch: batch.n_steps * batch.laplace)
    # The library loops over the points of a joint release in Python. Half of them cost up to 5 %
    # more noise where hardly any row is in a batch and epsilon is at most 0.01, and none at 1.
    points = MOST_POINTS // 2 if most.laplace else MOST_POINTS
    interval = max(interval, 2 * _largest_loss(batches, delta) / points)
    laplace_loss = most.loss(most.laplace) if most.laplace else 0.0
    if laplace_loss > interval:
        # Much of the mass is at the largest Laplace loss: a point of the grid is just above it.
        # Between two points this mass would be rounded up, by a fraction of epsilon that falls with
        # the step, and not with its square.
        interval = laplace_loss / math.ceil(2 * laplace_loss / interval) * (1 + 1e-12)
    log_tail = _log_tail(batches, delta)
    # Candidates of a search often have the same steps.
    parts = {batch: _composed(batch, interval, log_tail, replaces) for batch in {*batches}}
    composed = _library("pld.privacy_loss_distribution").identity(interval)
    for batch in batches:
        composed = composed.compose(parts[batch])
    with np.errstate(over="ignore"):  # e^epsilon beyond double precision
        epsilon = float(composed.get_epsilon_for_delta(delta - ROUNDING))
    return epsilon if epsilon <= MAX_LOSS else math.inf


def _composed(batch: Batch, interval: float, log_tail: float, replaces: bool) -> Any:
    """Return the privacy-loss distribution of all steps of a batch."""
    relation = _library("").NeighboringRelation
    if batch.laplace:
        one = _joint(batch, interval, log_tail, moves=2 if replaces else 1)
    else:
        one = _library("pld.privacy_loss_distribution").from_gaussian_mechanism(
            1 / batch.gaussian,
            value_discretization_interval=interval,
            log_mass_truncation_bound=log_tail,
            sampling_prob=batch.rate,
            neighboring_relation=relation.REPLACE_ONE if replaces else relation.ADD_OR_REMOVE_ONE,
        )
    return one.self_compose(batch.n_steps)


def _joint(batch: Batch, interval: float, log_tail: float, *, moves: int) -> Any:
    """Return the privacy-loss distribution of one joint release of Laplace and Gaussian noise.

    With the joint laws P and Q of both releases with a row and without it, a Poisson batch has the
    law (1 - q) Q + q P. Its divergence from Q at e^epsilon is q times that of P from Q at
    1 + (e^epsilon - 1) / q ("remove"). In the other direction ("add"),
    Q - e^epsilon ((1 - q) Q + q P) = c Q - e^epsilon q P with c = 1 - e^epsilon (1 - q), and the
    divergence of Q from P is that of P from Q, because both noises are symmetric.
    """
    distributions = _library("pld.privacy_loss_distribution")
    q = batch.rate
    fine = interval if q == 1 else STEP / 10 * math.hypot(batch.laplace, batch.gaussian)
    whole = distributions.from_laplace_mechanism(
        1 / batch.laplace, sensitivity=moves, value_discretization_interval=fine
    )
    if batch.gaussian:
        gaussian = distributions.from_gaussian_mechanism(
            1 / batch.gaussian, moves, True, fine, log_mass_truncation_bound=log_tail
        )
        whole = whole.compose(gaussian)
    if q == 1:
        return whole
    reach = batch.reach(log_tail)
    largest = math.ceil(batch.loss(reach) / interval)
    smallest = math.floor(batch.loss(-reach) / interval)
    epsilon = np.arange(smallest, largest + 1) * interval
    ratio = np.expm1(epsilon) / q
    above = ratio > -1  # below, the mixture exceeds e^epsilon Q everywhere
    inner = np.where(above, np.log1p(np.where(above, ratio, 0.0)), -np.inf)
    remove = np.where(above, q * np.array(whole.get_delta_for_epsilon(inner)), -np.expm1(epsilon))
    epsilon = -epsilon[::-1]
    rest = -np.expm1(epsilon + math.log1p(-q))
    below = rest > 0  # above, the mixture's part of Q alone outweighs Q
    inner = np.where(below, epsilon + math.log(q) - np.log(np.where(below, rest, 1.0)), np.inf)
    add = np.where(below, rest * np.array(whole.get_delta_for_epsilon(inner)), 0.0)
    connect = _library("pld.pld_pmf").create_pmf_pessimistic_connect_dots_fixed_gap
    return distributions.PrivacyLossDistribution(
        connect(interval, smallest, largest, np.minimum.accumulate(remove.clip(0.0, 1.0))),
        connect(interval, -largest, -smallest, np.minimum.accumulate(add.clip(0.0, 1.0))),
    )
