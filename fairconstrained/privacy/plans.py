"""Plans: the noise of all releases of a training within a budget, and what they cost together."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from fairconstrained.privacy.accounting import (
    GRID_SHIFT,
    REPLACING,
    Gaussian,
    Laplace,
    Phase,
    PrivacyGuarantee,
    Unit,
    check_budget,
    check_positive,
    privacy_guarantee,
)
from fairconstrained.privacy.calibration import calibrate, gaussian_multiplier

NOISES: dict[str, Callable[..., Gaussian | Laplace]] = {"gaussian": Gaussian, "laplace": Laplace}
_MOMENTS = "moments of the columns"
_SCALING = ("sizes of the columns' entries", "mean squared norm", _MOMENTS)


def one_off_gaussian(
    fraction: float,
    *,
    epsilon: float,
    delta: float,
    unit: Unit = "record",
    of: str = "group counts",
) -> Gaussian:
    """A Gaussian release, made once and of all rows, for a fraction of a budget.

    Fractions are of the variance of the privacy loss, which adds up over releases. A fraction of 1
    spends all of (epsilon, delta).

    Parameters
    ----------
    fraction : float
        In (0, 1].
    epsilon, delta, unit
        The whole budget.
    of : str, default="group counts"
        Name of the release.

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
    if not 0 < fraction <= 1:
        raise ValueError(f"fraction must be in (0, 1]; got {fraction!r}.")
    moves = 2 if unit in REPLACING else 1
    shift = math.sqrt(fraction) / (moves * gaussian_multiplier(epsilon, delta)) - GRID_SHIFT
    if shift <= 0:
        raise ValueError(
            f"epsilon = {epsilon:g} at delta = {delta:g} is less than what rounding costs."
        )
    return Gaussian(1 / shift, of=of)


@dataclass(frozen=True)
class ReleasePlan:
    """Noise of one-off releases, and what they cost together.

    Attributes
    ----------
    noise : dict of str to float
        Standard deviation of the noise on each release, divided by the largest l2 norm of a row's
        contribution.
    privacy : PrivacyGuarantee

    Examples
    --------
    >>> from fairconstrained.privacy import plan_releases
    >>> plan = plan_releases({"group counts": 0.5, "means": 0.5}, epsilon=2.0, delta=1e-6)
    >>> plan.privacy.epsilon <= 2.0, round(plan.counts_noise, 2)
    (True, 3.17)
    """

    noise: Mapping[str, float]
    privacy: PrivacyGuarantee

    @property
    def counts_noise(self) -> float:
        """Noise of the release "group counts"; ``inf`` without."""
        return self.noise.get("group counts", math.inf)


def plan_releases(
    fractions: Mapping[str, float], *, epsilon: float, delta: float, unit: Unit = "record"
) -> ReleasePlan:
    """Split a budget over Gaussian releases that are each made once and of all rows.

    Parameters
    ----------
    fractions : dict of str to float
        The names of the releases with positive numbers; the precisions 1/noise**2 are in these
        proportions.
    epsilon, delta, unit
        The budget of all of them.

    Returns
    -------
    ReleasePlan

    Examples
    --------
    >>> from fairconstrained.privacy import plan_releases
    >>> plan = plan_releases({"counts": 0.1, "moments": 0.9}, epsilon=1.0, delta=1e-5)
    >>> print({name: round(noise, 1) for name, noise in plan.noise.items()})
    {'counts': 11.8, 'moments': 3.9}
    """
    if not fractions or not all(fraction > 0 for fraction in fractions.values()):
        raise ValueError(
            f"fractions must be positive numbers, at least one; got {dict(fractions)}."
        )
    total = sum(fractions.values())

    def noises(noise: float) -> dict[str, float]:
        return {name: noise * math.sqrt(total / fraction) for name, fraction in fractions.items()}

    def phases(noise: float) -> list[Phase]:
        return [Phase([Gaussian(s, of=name)]) for name, s in noises(noise).items()]

    noise = calibrate(phases, epsilon=epsilon, delta=delta, unit=unit)
    return ReleasePlan(noises(noise), privacy_guarantee(phases(noise), delta=delta, unit=unit))


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
        public), of the rows' mean squared norm and of the columns' means and mean squares, each
        released once.
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
    histogram_fraction: float = 0.1,
    histogram_noise: str = "gaussian",
    counts_fraction: float = 0.0,
    final_fraction: float = 0.0,
    scaling_fraction: float = 0.0,
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
    histogram_fraction : float, default=0.1
        The table's fraction of each step, in [0, 1), by which the precision 1/noise**2 of the joint
        release is split. 0 for no table.
    histogram_noise : {"gaussian", "laplace"}, default="gaussian"
        The table's noise. Laplace noise of scale b costs about as much as Gaussian noise of
        multiplier b where b is large.
    counts_fraction, final_fraction : float, default=0.0
        Fractions of the budget, in [0, 1), for the counts of all rows, released once before the
        training, and for the tables of all rows, released after it.
    scaling_fraction : float, default=0.0
        Fraction of the budget for three releases together: the sizes of entries in each column,
        the rows' mean squared norm, and the means and mean squares of the columns.
    final_tables : int, default=1
        How many tables are released after the training; they divide `final_fraction`.

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
    _check_fractions(
        histogram_fraction=histogram_fraction,
        counts_fraction=counts_fraction,
        final_fraction=final_fraction,
        scaling_fraction=scaling_fraction,
    )
    if final_tables < 1:
        raise ValueError(f"final_tables must be at least 1; got {final_tables!r}.")
    if histogram_noise not in NOISES:
        raise ValueError(f"histogram_noise must be one of {list(NOISES)}; got {histogram_noise!r}.")
    once = {
        what: one_off_gaussian(fraction, epsilon=epsilon, delta=delta, unit=unit, of=what)
        for what, fraction in (
            ("group counts", counts_fraction),
            ("final table", final_fraction / final_tables),
            *((what, scaling_fraction / len(_SCALING)) for what in _SCALING),
        )
        if fraction
    }

    def phases_at(noise: float) -> list[Phase]:
        table, gradient = _split(noise, histogram_fraction)
        releases = [NOISES[histogram_noise](table, of="histogram")] if histogram_fraction else []
        releases.append(Gaussian(gradient, of="gradient"))
        times = {"final table": final_tables}
        single = [Phase([release], n_steps=times.get(what, 1)) for what, release in once.items()]
        return [*single, Phase(releases, sampling_rate, n_steps)]

    noise = calibrate(phases_at, epsilon=epsilon, delta=delta, unit=unit)
    table, gradient = _split(noise, histogram_fraction)
    privacy = privacy_guarantee(phases_at(noise), delta=delta, unit=unit)
    never = Gaussian(math.inf)
    return TrainingPlan(
        gradient_noise=gradient,
        histogram_noise=table,
        counts_noise=once.get("group counts", never).noise_multiplier,
        final_noise=once.get("final table", never).noise_multiplier,
        # A single step of all rows would pass for a release that is made once.
        privacy=replace(privacy, n_steps=n_steps, sampling_rate=sampling_rate),
        scaling_noise=once.get(_MOMENTS, never).noise_multiplier,
        final_tables=final_tables,
        histogram_kind=histogram_noise,
    )


def _split(noise: float, histogram_fraction: float) -> tuple[float, float]:
    """Noise of the table and of the gradient, whose joint precision is 1/noise**2."""
    table = noise / math.sqrt(histogram_fraction) if histogram_fraction else math.inf
    return table, noise / math.sqrt(1 - histogram_fraction)


def _check_fractions(**fractions: float) -> None:
    for name, fraction in fractions.items():
        if not 0 <= fraction < 1:
            raise ValueError(f"{name} must be in [0, 1); got {fraction!r}.")
