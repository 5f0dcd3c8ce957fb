"""Fits of clones that differ in the slack only: a solution that they share, and starts."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from fairconstrained.arrays import as_numpy
from fairconstrained.fit.task import Fit
from fairconstrained.solvers.base import Iterate

Ends = dict[float, tuple[Tensor, Tensor]]  # points and multipliers, by slack


def shared_solution(fit: Fit, solve: Callable[[], Iterate]) -> Iterate:
    """Return a solution that does not depend on the slack, which one of the fits computes."""
    alike = _alike(fit)
    solution: Iterate = fit.task.handle.recall(alike and (alike, "free"), solve)
    return solution


def ends(fit: Fit) -> Ends:
    """Return where fits with other slacks ended; nowhere, if this one is to begin anew.

    Networks begin anew: held-out rows decide when their training stops, and fits that start at one
    another follow the training rows more closely, one after another.
    """
    if not (fit.task.handle.follows and fit.task.is_linear):
        return {}
    alike = _alike(fit)
    points: Ends = fit.task.handle.recall(alike and (alike, "ends"), dict)
    return points


def nearest(points: Ends, slack: float, x: Tensor, dual: Tensor) -> tuple[Tensor, Tensor]:
    """Return the end of the fit with the next larger slack, or this start if there is none."""
    wider = [other for other in points if other >= slack]
    near = points[min(wider)] if wider else (x, dual)
    same = len(near[0]) == len(x) and len(near[1]) == len(dual)
    return near if same else (x, dual)


def _alike(fit: Fit) -> bytes | None:
    """Return a digest of all but the slack; None if rows could change without a trace in it."""
    task, rows = fit.task, fit.rows
    if rows.workers.size > 1 or not fit.data.in_memory:
        return None
    others = {name: task.params[name] for name in task.params if name not in ("slack", "callbacks")}
    columns = fit.data.X.X
    columns = as_numpy(columns) if isinstance(columns, Tensor) else columns
    return task.handle.digest(task.name, others, columns, rows.y, rows.group, rows.weight)
