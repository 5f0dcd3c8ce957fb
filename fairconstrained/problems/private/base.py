"""The base of private problems: a plan, and releases that can be made as often as planned.

A private problem gives nothing exact away. It has neither ``linearize`` nor ``evaluate``, so it is
no :class:`~fairconstrained.problems.Problem`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from fairconstrained.models import Model
from fairconstrained.privacy import ReleasePlan, TrainingPlan


class PrivateProblem:
    """A problem that is seen through noisy releases, which a plan has priced beforehand.

    Parameters
    ----------
    model : Model
    plan : TrainingPlan or ReleasePlan
        The noise of the releases, and what they cost together.
    releases : mapping from str to int
        How often each release may be made.

    Attributes
    ----------
    n_constraints : int
        Number m of constraints; none where a penalty takes their place.
    """

    offers: ClassVar[frozenset[str]]
    n_constraints: int = 0

    def __init__(self, model: Model, plan: TrainingPlan | ReleasePlan, releases: Mapping[str, int]):
        self.model = model
        self.plan = plan
        self._left = Counter(releases)

    def start(self) -> Tensor:
        """Point at which a fit begins; it does not depend on the secret."""
        return self.model.init()

    def deviations_of_estimates(self) -> Tensor:
        """Standard deviations of the noise on the measured values of the constraints, (m,)."""
        return torch.zeros(0)

    def _spend(self, release: str) -> None:
        """Take one release off the plan.

        Raises
        ------
        RuntimeError
            If it has been made as often as planned.
        """
        if self._left[release] < 1:
            raise RuntimeError(f"The privacy budget is spent: the plan has no {release} left.")
        self._left[release] -= 1
