"""Feasible points near a result: searches of hard values along lines, and known points.

Labels change row by row, so there are many feasible points close to a point that is slightly
infeasible. Along a line all of them are seen at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from fairconstrained.problems.base import Sharpenable
from fairconstrained.problems.known import ERROR_TOL, Known
from fairconstrained.solvers.base import FEASIBILITY_TOL, Iterate, best_feasible

_DIGITS = 12  # hard values that agree to so many are equal but for rounding
REPAIRABLE = 0.05  # a larger excess does not come from single rows
_REPAIRED = 3  # iterates of least violation that are repaired
_MOVES = 10  # of each
_REACH = 1.0  # of a move along a direction, in units of scores
_FEW_NUMBERS = 20_000  # rows times variables: moves along coordinates cost little
_BINDING = 20  # constraints that a move considers
_NEARLY = 0.01  # largest unused slack of a constraint that nearly binds


def best_on_lines(
    problem: Sharpenable, iterate: Iterate, directions: Iterable[Tensor], reach: float = np.inf
) -> Iterate:
    """Return the best point within `reach` on lines through an iterate, or the iterate itself."""
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
    """Return the iterate if it is feasible, or the best on the lines of its offsets."""
    if iterate.excess <= FEASIBILITY_TOL:
        return iterate
    return best_on_lines(problem, iterate, offsets(problem, iterate.x))


def offsets(problem: Sharpenable, x: Tensor) -> Tensor:
    """Return directions that shift the scores of all rows alike, as rows."""
    return torch.nn.functional.one_hot(problem.offsets, len(x)).to(x)


def not_worse(problem: Sharpenable, result: Iterate, known: Sequence[Known]) -> Iterate:
    """Return the result, or a clearly better point among known ones and those on offset lines."""
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
    excess, own = max(rival.excess, FEASIBILITY_TOL), max(result.excess, FEASIBILITY_TOL)
    if own > FEASIBILITY_TOL:
        return excess <= FEASIBILITY_TOL or excess < own - ERROR_TOL
    return excess <= FEASIBILITY_TOL and bool(rival.hard[0] < result.hard[0] - by)


def _moved(problem: Sharpenable, iterate: Iterate, x: Tensor) -> Iterate:
    """Return another point, with the multipliers of an iterate."""
    soft, hard = problem.evaluate(x)
    return iterate._replace(x=x, soft=soft, hard=hard, residual=torch.inf)


class Seen:
    """The iterates of a run that repairs start from: the best, and those of least violation."""

    def __init__(self) -> None:
        self.best: list[Iterate] = []
        self.nearest: list[Iterate] = []

    def add(self, iterate: Iterate) -> None:
        """Take the next iterate."""
        self.best = [best_feasible([*self.best, iterate])]
        self.nearest = sorted([*self.nearest, iterate], key=lambda own: own.excess)[:_REPAIRED]


def repaired(problem: Sharpenable, seen: Seen) -> Iterate:
    """Return the best point that lines through the iterates of least violation lead to."""
    return best_feasible([*seen.best, *(_repaired(problem, iterate) for iterate in seen.nearest)])


def _repaired(problem: Sharpenable, iterate: Iterate) -> Iterate:
    """Make short moves along the offsets and against violated constraints, while they help.

    On small tables, where lines cost little, moves along all coordinates come next.
    """
    few = problem.n_rows * len(iterate.x) <= _FEW_NUMBERS
    for _ in range(_MOVES if iterate.excess <= REPAIRABLE else 0):
        better = best_on_lines(problem, iterate, _directions(problem, iterate), _REACH)
        if few and not _near_enough(better, iterate):
            coordinates = torch.eye(len(better.x)).to(better.x)
            better = best_on_lines(problem, better, coordinates, _REACH)
        if better is iterate or not _near_enough(better, iterate):
            return better
        iterate = better
    return iterate


def _near_enough(moved: Iterate, iterate: Iterate) -> bool:
    """Whether a move removes its part of the excess: others do not get there."""
    left, excess = moved.excess, iterate.excess
    return left <= max((1.0 - 1.0 / _MOVES) * excess, FEASIBILITY_TOL)


def _directions(problem: Sharpenable, iterate: Iterate) -> list[Tensor]:
    """Return directions of the offsets, and against the violated constraints.

    The latter are the gradient of the worst, the direction that changes it alone (to first order,
    the other nearly binding constraints stay as they are), and one that corrects all at once.
    """
    x, hard = iterate.x, iterate.hard[1:]
    directions = list(offsets(problem, x))
    if iterate.excess <= FEASIBILITY_TOL:
        return directions
    worst = hard.argsort(descending=True)[:_BINDING]
    near = worst[hard[worst] > -_NEARLY]
    gradients = problem.linearize(x).gradients(1 + near)
    inverse = torch.linalg.pinv(gradients, rtol=1e-6)
    moves = torch.stack((gradients[0], inverse[:, 0], inverse @ hard[near].clamp_min(0.0)))
    return directions + list(moves / moves.norm(dim=1, keepdim=True).clamp_min(1e-30))
