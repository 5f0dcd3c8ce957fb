"""Points that are known beforehand, which no result may be clearly worse than."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fairconstrained.losses import log_loss
from fairconstrained.problems.objectives import MeanLoss

if TYPE_CHECKING:
    from fairconstrained.problems.erm import FairERM

# A known point replaces a result whose excess over the slack, or whose error, is so much larger.
# Smaller differences come from single rows, and the loss of a result is better.
ERROR_TOL = 1e-3
# The same for points of a relaxation. They are not what users expect, as constants and the model
# without constraints are, and a converged result has the better loss.
RELAXED_TOL = 1e-2

# Constant scores: losses hardly differ between groups for the smallest, and the largest are beyond
# any threshold.
_CONSTANTS = (-100.0, -1.0, -1e-3, 1e-3, 1.0, 100.0)
_MOST_VALUES = 500  # constraints whose gradients are computed
_SINGULAR = 1e-9  # of the largest singular value: smaller ones are rounding errors
_TOWARDS = (0.5, 1.0)  # of the way to equal mean scores
_FEW_ROWS = 1000  # on which the whole way is searched


class Known(NamedTuple):
    """A point, and the difference of hard objectives by which it must be better than a result.

    With a `direction` the best of the line from x to x + direction is meant.
    """

    x: Tensor  # (n_variables,)
    by: float = ERROR_TOL
    of: Any = None  # a smaller problem with the same values there, where there is one
    direction: Tensor | None = None  # (n_variables,)


def known_points(problem: FairERM) -> list[Known]:
    """Equal predictions, the solution without constraints, and those of a relaxation.

    Without the solution without constraints only the first.
    """
    by_cell, zero = problem.by_cell(), torch.zeros_like(problem.model.init())
    unit = F.one_hot(problem.model.offsets, len(zero)).to(zero)
    found = [Known(by_cell.variables(zero), of=by_cell)]
    for e in unit:
        found += [Known(by_cell.variables(size * e), of=by_cell) for size in _CONSTANTS]
    if problem.free is None:
        return found
    found.append(Known(problem.variables(problem.free)))
    return found + _relaxed(problem, problem.free)


def _relaxed(problem: FairERM, free: Tensor) -> list[Known]:
    """Points between the solution without constraints and that of a convex relaxation.

    At scores zero soft rates are linear in the scores, and gaps of rates are gaps of mean scores.
    That these are zero is the covariance constraint of Zafar et al. (2017, "Fairness constraints").
    In the coordinates of solvers the Hessian is near the identity, so the projection of the
    solution without constraints is near the best of all points that meet it. On few rows the best
    of the whole line is one of them. There are none for notions with thresholds of their own, which
    are not defined here, and none where the solution without constraints is feasible.
    """
    start = problem.variables(torch.zeros_like(free))
    if len(start) > len(free) or not 0 < problem.n_constraints <= _MOST_VALUES:
        return []
    if problem.evaluate(free).hard[1:].max() <= 0.0:  # nothing to relax
        return []
    # The log loss in place of an objective of ranks, which has no gradient here.
    constraint = problem.constraint.at_equal_scores()
    defined = replace(problem, risk=MeanLoss(log_loss), constraint=constraint)
    gradients = defined.linearize(start).jacobian()[1:]
    if not bool(gradients.isfinite().all()):  # as those of a user's notion may be
        return []
    _, values, rows = torch.linalg.svd(gradients, full_matrices=False)
    rows = rows[values > _SINGULAR * values[0]]
    move = -rows.T @ (rows @ free)
    points = [Known(free + t * move, RELAXED_TOL) for t in _TOWARDS]
    line = [Known(free, RELAXED_TOL, direction=move)] if problem.n_rows <= _FEW_ROWS else []
    return line + points
