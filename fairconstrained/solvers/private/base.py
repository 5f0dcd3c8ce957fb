"""Common parts of private solvers: a budget, a plan made before any work, no exact choices."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fairconstrained.privacy.accounting import Budget, PrivacyGuarantee
from fairconstrained.solvers.base import Iterate, Solver

_RATE, _BATCH = 0.05, (256, 8192)  # fraction of the rows in a batch; fewest and most of them


class PrivateSolver(Solver):
    """Base of solvers that see noisy releases only, whose cost is known before the first."""

    keeps_last = True  # choosing by exact quality would not be private

    def plan(self, n_rows: int, budget: Budget) -> PrivacyGuarantee:
        """Calibrate the noise of all releases of a fit on `n_rows` rows to the budget.

        Parameters
        ----------
        n_rows : int
        budget : Budget

        Returns
        -------
        PrivacyGuarantee

        Raises
        ------
        ValueError
            If a parameter of the solver is not valid.
        """
        raise NotImplementedError

    def diverged(self, iterate: Iterate) -> bool:
        """Whether variables or released values are not finite; the objective is not released."""
        return not bool(iterate.x.isfinite().all() and iterate.soft[1:].isfinite().all())


def check_fraction(solver: Any) -> None:
    """Raise ValueError unless the table's fraction of a step leaves something to the gradient."""
    fraction = solver.histogram_fraction
    if not 0 < fraction < 1:
        raise ValueError(
            f"{type(solver).__name__}.histogram_fraction must be in (0, 1); got {fraction!r}."
        )


def sampling_rate(n_rows: int, batch_size: int | None = None) -> float:
    """Sampling rate for batches of an expected size; by default one that suits so many rows."""
    fewest, most = _BATCH
    least = max(fewest / n_rows, min(_RATE, most / n_rows))
    return min(1.0, least if batch_size is None else batch_size / n_rows)


def unreleased(x: Tensor, soft: Tensor, hard: Tensor, dual: Tensor) -> Iterate:
    """An iterate whose objective and error are not released."""
    unknown = soft.new_tensor([torch.nan])
    return Iterate(x, torch.cat((unknown, soft)), torch.cat((unknown, hard)), dual, torch.inf)
