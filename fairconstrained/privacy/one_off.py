"""Noise of several releases, each made once and of all rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from fairconstrained.privacy.accounting import (
    Gaussian,
    Phase,
    PrivacyGuarantee,
    Unit,
    privacy_guarantee,
)
from fairconstrained.privacy.calibration import calibrate

__all__ = ["ReleasePlan", "plan_releases"]


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
        """That of the release "group counts"; ``inf`` without."""
        return self.noise.get("group counts", math.inf)


def plan_releases(
    shares: Mapping[str, float], *, epsilon: float, delta: float, unit: Unit = "record"
) -> ReleasePlan:
    """Split a budget over Gaussian releases that are each made once and of all rows.

    Parameters
    ----------
    shares : dict of str to float
        What is released, and its positive share of the budget: precisions 1/noise**2 are in these
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
    if not shares or not all(share > 0 for share in shares.values()):
        raise ValueError(f"shares must be positive numbers, at least one; got {dict(shares)}.")
    total = sum(shares.values())

    def noises(noise: float) -> dict[str, float]:
        return {name: noise * math.sqrt(total / share) for name, share in shares.items()}

    def phases(noise: float) -> list[Phase]:
        return [Phase([Gaussian(s, of=name)]) for name, s in noises(noise).items()]

    noise = calibrate(phases, epsilon=epsilon, delta=delta, unit=unit)
    return ReleasePlan(noises(noise), privacy_guarantee(phases(noise), delta=delta, unit=unit))
