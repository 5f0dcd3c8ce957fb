"""Search of hard values along lines, and comparison of a result with known points."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from fairconstrained.problems import Known, Sharpenable
from fairconstrained.problems.known import ERROR_TOL
from fairconstrained.solvers.base import FEASIBILITY_TOL, Iterate, best_feasible

_DIGITS = 12  # hard values that agree to so many are equal but for rounding


def best_on_lines(
    problem: Sharpenable, iterate: Iterate, directions: Iterable[Tensor], reach: float = np.inf
) -> Iterate:
    """The best point within `reach` on the lines through an iterate, or the iterate itself."""
    found = [iterate]
    for direction in directions:
        line = problem.along(iterate.x, direction, reach)
        steps, error, excess = (column.cpu().numpy() for column in line)
        if len(steps):
            excess = excess.clip(min=FEASIBILITY_TOL)
            # The nearest of all feasible points of least error.
            merits = np.abs(steps), error.round(_DIGITS), excess.round(_DIGITS)
            step = float(steps[np.lexsort(merits)[0]])
            found.append(_moved(problem, iterate, iterate.x + step * direction))
    return best_feasible(found)


def along_offsets(problem: Sharpenable, iterate: Iterate) -> Iterate:
    """The iterate if it is feasible, or the best on the lines of its offsets."""
    if iterate.excess <= FEASIBILITY_TOL:
        return iterate
    return best_on_lines(problem, iterate, offsets(problem, iterate.x))


def offsets(problem: Sharpenable, x: Tensor) -> Tensor:
    """Directions that shift the scores of all rows alike, as rows."""
    return torch.nn.functional.one_hot(problem.offsets, len(x)).to(x)


def not_worse(problem: Sharpenable, result: Iterate, known: Sequence[Known]) -> Iterate:
    """The result, or a point that is clearly better among known ones and those on offset lines."""
    found = [(along_offsets(problem, result), ERROR_TOL)]
    for x, by, smaller, direction in known:
        own = smaller or problem
        rival = _moved(own, result, x)
        if direction is not None:
            rival = best_on_lines(own, rival, [direction], reach=1.0)
        found.append((along_offsets(own, rival), by))
    better = [rival for rival, by in found if _clearly_better(rival, result, by)]
    return best_feasible(better) if better else result


def _clearly_better(rival: Iterate, result: Iterate, by: float) -> bool:
    excess, own = (max(iterate.excess, FEASIBILITY_TOL) for iterate in (rival, result))
    if own > FEASIBILITY_TOL:
        return excess <= FEASIBILITY_TOL or excess < own - ERROR_TOL
    return excess <= FEASIBILITY_TOL and bool(rival.hard[0] < result.hard[0] - by)


def _moved(problem: Sharpenable, iterate: Iterate, x: Tensor) -> Iterate:
    """Another point, with the multipliers of an iterate."""
    soft, hard = problem.evaluate(x)
    return iterate._replace(x=x, soft=soft, hard=hard, residual=torch.inf)
