"""Fits of clones that differ in the slack only: a solution that they share, and starts."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from fairconstrained.fit.task import Fit
from fairconstrained.solvers.base import Iterate

Ends = dict[float, tuple[Tensor, Tensor]]  # points and multipliers, by slack


def shared_solution(fit: Fit, solve: Callable[[], Iterate]) -> Iterate:
    """Return a solution that does not depend on the slack, which one of the fits computes."""
    solution: Iterate = fit.task.handle.recall(fit.digest and (fit.digest, "free"), solve)
    return solution


def ends(fit: Fit) -> Ends:
    """Return where fits with other slacks ended; nowhere, if this one is to begin anew.

    Networks begin anew: held-out rows decide when their training stops, and fits that start at one
    another follow the training rows more closely, one after another.
    """
    if not (fit.task.handle.follows and fit.task.is_linear):
        return {}
    points: Ends = fit.task.handle.recall(fit.digest and (fit.digest, "ends"), dict)
    return points


def nearest(points: Ends, slack: float, x: Tensor, dual: Tensor) -> tuple[Tensor, Tensor]:
    """Return the end of the fit with the next larger slack, or this start if there is none."""
    wider = [other for other in points if other >= slack]
    near = points[min(wider)] if wider else (x, dual)
    same = len(near[0]) == len(x) and len(near[1]) == len(dual)
    return near if same else (x, dual)
