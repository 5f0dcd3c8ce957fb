"""Repair of iterates whose predicted labels nearly meet the constraints, by searches along lines.

Labels change row by row, so there are many feasible points close to a point that is slightly
infeasible. Along a line all of them are seen at once.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fairconstrained.problems import Sharpenable
from fairconstrained.solvers.base import FEASIBILITY_TOL, Iterate, best_feasible, violation
from fairconstrained.solvers.lines import best_on_lines, offsets

REPAIRABLE = 0.05  # a larger excess does not come from single rows
_REPAIRED = 3  # iterates of least violation that are repaired
_MOVES = 10  # of each
_REACH = 1.0  # of a move along a direction, in units of scores
_FEW_NUMBERS = 20_000  # rows times variables: moves along coordinates cost little
_BINDING = 20  # constraints that a move considers
_NEARLY = 0.01  # largest unused slack of a constraint that nearly binds


class Seen:
    """What repairs need of a sequence of iterates.

    Attributes
    ----------
    nearest : list of Iterate
        Those of least violation.
    """

    def __init__(self) -> None:
        self.nearest: list[Iterate] = []
        self._best: list[Iterate] = []

    @property
    def best(self) -> Iterate:
        """The feasible one of least error, or the one of least violation."""
        return self._best[0]

    def add(self, iterate: Iterate) -> None:
        """Take the next iterate."""
        self._best = [best_feasible([*self._best, iterate])]
        ordered = sorted([*self.nearest, iterate], key=lambda own: violation(own.hard))
        self.nearest = ordered[:_REPAIRED]


def repaired(problem: Sharpenable, seen: Seen) -> Iterate:
    """The best point that lines through the iterates of least violation lead to."""
    return best_feasible([seen.best, *(_moved(problem, iterate) for iterate in seen.nearest)])


def _moved(problem: Sharpenable, iterate: Iterate) -> Iterate:
    """Make short moves along the offsets and against violated constraints, while they help.

    On small tables, where lines cost little, moves along all coordinates come next.
    """
    few = problem.n_rows * len(iterate.x) <= _FEW_NUMBERS
    for _ in range(_MOVES if violation(iterate.hard) <= REPAIRABLE else 0):
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
    left, excess = violation(moved.hard), violation(iterate.hard)
    return left <= max((1.0 - 1.0 / _MOVES) * excess, FEASIBILITY_TOL)


def _directions(problem: Sharpenable, iterate: Iterate) -> list[Tensor]:
    """Directions of the offsets, and against the violated constraints.

    The latter are the gradient of the worst, the direction that changes it alone (to first order,
    the other nearly binding constraints stay as they are), and one that corrects all at once.
    """
    x, hard = iterate.x, iterate.hard[1:]
    directions = list(offsets(problem, x))
    if violation(iterate.hard) <= FEASIBILITY_TOL:
        return directions
    worst = hard.argsort(descending=True)[:_BINDING]
    near = worst[hard[worst] > -_NEARLY]
    gradients = problem.linearize(x).gradients(1 + near)
    inverse = torch.linalg.pinv(gradients, rtol=1e-6)
    moves = torch.stack((gradients[0], inverse[:, 0], inverse @ hard[near].clamp_min(0.0)))
    return directions + list(moves / moves.norm(dim=1, keepdim=True).clamp_min(1e-30))
