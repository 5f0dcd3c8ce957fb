"""Baselines that no result may be clearly worse than, and hard values along lines."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fairconstrained.losses import log_loss
from fairconstrained.models.linear import LinearModel
from fairconstrained.numerics import NEGLIGIBLE, SENT_SCORES
from fairconstrained.problems.lines import (
    GRID,
    Line,
    between,
    changes_of_labels,
    grid,
    on_grid,
    sums_at,
)
from fairconstrained.problems.objectives import MeanLoss
from fairconstrained.problems.rows import GOLDEN, Rows
from fairconstrained.problems.thresholds import thresholds_by_group
from fairconstrained.problems.values import ERM

# A baseline replaces a result whose violation or error is larger by more than this. Smaller
# differences come from single rows, and the result has the better loss.
ERROR_TOL = 1e-3
# The same for points of a relaxation. Users do not expect these, unlike constants and the model
# without constraints, and a converged result has the better loss.
RELAXED_TOL = 1e-2
# Entries of the tables of one line, 8 MB; longer lines use fewer points.
MOST_ENTRIES = 1_000_000


class Baseline(NamedTuple):
    """A point that replaces a result if its hard objective is lower by more than `by`.

    With a `direction`, the best point between x and x + direction competes.
    """

    x: Tensor  # (n_variables,)
    by: float = ERROR_TOL
    smaller: Any = None  # a cheaper problem with the same values at x
    direction: Tensor | None = None  # (n_variables,)
    equal: bool = False  # whether all rows have the same score at x


def baselines(problem: ERM) -> list[Baseline]:
    """Return constants, the unconstrained solution, group thresholds and points of a relaxation."""
    # Where all scores are equal, one row of each label and group has the values of all of them.
    by_cell = replace(problem, data=problem.data.by_cell(problem.constraint))
    zero = torch.zeros_like(problem.model.init())
    unit = F.one_hot(problem.model.offsets, len(zero)).to(zero)
    points = [Baseline(by_cell.variables(zero), smaller=by_cell, equal=True)]
    # Losses hardly differ between groups at the smallest scores, and the largest are beyond any
    # threshold.
    sizes = (-100.0, -1.0, -1e-3, 1e-3, 1.0, 100.0)
    for e, size in product(unit, sizes):
        points.append(Baseline(by_cell.variables(size * e), smaller=by_cell, equal=True))
    if problem.free is None:
        return points
    points.append(Baseline(problem.variables(problem.free)))
    if problem.log_odds is not None and (rule := thresholds_by_group(problem)) is not None:
        x = problem.variables(rule)
        # Thresholds must win by more than the standard error of the error rate.
        error = min(float(problem.evaluate(x).hard[0]), 1.0)
        standard_error = math.sqrt(error * (1.0 - error) / problem.n_rows)
        points.append(Baseline(x, max(ERROR_TOL, standard_error)))
    return points + _relaxed(problem, problem.free)


def _relaxed(problem: ERM, free: Tensor) -> list[Baseline]:
    """Return points between the unconstrained solution and the solution of a relaxation.

    At scores zero soft rates are linear in the scores, and gaps of rates are gaps of mean scores.
    Setting these to zero is the covariance constraint of Zafar et al. (2017, "Fairness
    constraints"). In the coordinates of solvers the Hessian is near the identity, so projecting the
    unconstrained solution gives nearly the best point that meets it. On few rows the best
    of the whole line is one of them. There are none for criteria with thresholds of their own,
    which are not defined here, and none where the solution without constraints is feasible.
    """
    start = problem.variables(torch.zeros_like(free))
    # The relaxation needs a gradient of each constraint.
    if len(start) > len(free) or not 0 < problem.n_constraints <= 500:
        return []
    if problem.evaluate(free).hard[1:].max() <= 0.0:  # nothing to relax
        return []
    # The log loss in place of an objective of ranks, which has no gradient here.
    constraint = problem.constraint.at_equal_scores()
    defined = replace(problem, risk=MeanLoss(log_loss), constraint=constraint)
    gradients = defined.linearize(start).jacobian()[1:]
    if not bool(gradients.isfinite().all()):  # a user's criterion may have infinite gradients
        return []
    _, values, rows = torch.linalg.svd(gradients, full_matrices=False)
    rows = rows[values > NEGLIGIBLE * values[0]]
    move = -rows.T @ (rows @ free)
    points = [Baseline(free + 0.5 * move, RELAXED_TOL), Baseline(free + move, RELAXED_TOL)]
    # On few rows the best point of the whole line counts: single rows decide there.
    line = [Baseline(free, RELAXED_TOL, direction=move)] if problem.n_rows <= 1000 else []
    return line + points


def along(problem: ERM, x: Tensor, direction: Tensor, reach: float) -> Line:
    """Return hard values on a line: all if labels determine them, else at selected points."""
    moves_offsets = bool(torch.isin(torch.nonzero(direction)[:, 0], problem.offsets).all())
    if not (isinstance(problem.model, LinearModel) or moves_offsets):
        return on_grid(lambda t: problem.evaluate(x + t * direction).hard, grid(x, reach))
    n_params = [problem.model.n_params]
    (w, aux), (ahead, _) = x.tensor_split(n_params), (x + direction).tensor_split(n_params)
    # A threshold costs a pass over the rows: together they read 400,000.
    n_thresholds = max(400_000 // problem.n_rows, len(GRID)) if moves_offsets else 0
    if problem.sums_decide and problem.affine is not None:
        return _line_of_sums(problem, w, ahead, reach, n_thresholds)
    steps = grid(x, reach)
    if n_thresholds:
        # If only offsets move, all slopes are equal, so quantiles of scores keep their ranks.
        scores, there = (problem.model.scores(v, problem.data.quantiles.X) for v in (w, ahead))
        changes = changes_of_labels(scores, there - scores, reach)[1]
        steps = torch.cat((steps, between(changes, reach, n_thresholds)))
    scores_at = _scores_at(problem, w, ahead, steps)
    return on_grid(lambda step: problem.hard(next(scores_at), aux), steps)


def _scores_at(problem: ERM, w: Tensor, ahead: Tensor, steps: Tensor) -> Iterator[Tensor]:
    """Yield scores representing all rows at each step of a line, in few passes over the rows."""
    model, to_quantiles = problem.model, problem.data.to_quantiles

    def worker_scores(some: Tensor, local: Rows) -> Tensor:
        pairs = [(model.scores(w, r.X), model.scores(ahead, r.X)) for r in local.pieces()]
        scores, there = map(torch.cat, zip(*pairs, strict=True))
        return torch.stack([to_quantiles(local, scores + t * (there - scores)) for t in some])

    # The scores of so many steps are held at a time that they take 160 MB.
    for some in torch.split(steps, max(1, 20_000_000 // len(problem.data.quantiles.y))):
        yield from torch.cat(problem.data.gather(partial(worker_scores, some)), dim=1)


def _line_of_sums(problem: ERM, w: Tensor, ahead: Tensor, reach: float, n_thresholds: int) -> Line:
    """Sum between all label changes if labels decide, else at grid steps and change quantiles."""
    affine, row_error, total = problem.affine, problem.risk.row_error, problem.data.total_weight
    assert affine is not None  # see `along`
    assert row_error is not None

    def on_line(rows: Rows) -> tuple[Tensor, Tensor]:
        scores = problem.model.scores(w, rows.X)
        return scores, problem.model.scores(ahead, rows.X) - scores

    if problem.data.in_memory:
        changes = changes_of_labels(*on_line(problem.data), reach)[1]
    else:  # of many rows each piece sends evenly spaced changes, in proportion to its rows
        spacing = max(1.0, problem.n_rows / SENT_SCORES)
        changes = torch.cat(problem.data.gather(partial(_sent_changes, on_line, reach, spacing)))
    if problem.constraint.label_based:
        most = MOST_ENTRIES // ((affine.n_parts + 1) * (1 + affine.n_columns))
        steps = between(changes, reach, max(most, 2))
    else:
        steps = torch.cat((grid(w, reach), between(changes, reach, n_thresholds)))

    def piece_sums(rows: Rows) -> Tensor:
        placed, (scores, slopes) = problem.placed_rows(rows), on_line(rows)
        if not problem.constraint.label_based:
            return torch.stack([problem.hard_sums(scores + t * slopes, placed) for t in steps])
        functions = row_error, problem.constraint.statistic.hard
        sums = sums_at(steps, scores, slopes, placed, functions, reach)
        sums[:, 0] /= total
        return sums

    sums = problem.data.total(piece_sums)
    tables = sums[:, 1:].reshape(len(steps), affine.n_parts, affine.n_columns)
    return Line(steps, sums[:, 0], affine.largest(tables))


def _sent_changes(
    on_line: Callable[[Rows], tuple[Tensor, Tensor]], reach: float, spacing: float, local: Rows
) -> Tensor:
    """Return the label changes a worker sends: all, or evenly spaced ones of each piece."""
    sent = []
    for place, rows in enumerate(local.pieces()):
        changes = changes_of_labels(*on_line(rows), reach)[1]
        if spacing > 1.0:
            # Steps of the golden and of the plastic ratio are even in two dimensions, pieces and
            # workers, so no rank is favoured.
            offset = (GOLDEN * place + 0.7548776662466927 * local.workers.rank) % 1.0
            ranks = ((offset + torch.arange(len(changes) / spacing)) * spacing).long()
            changes = changes.sort().values[ranks[ranks < len(changes)].to(changes.device)]
        sent.append(changes)
    return torch.cat(sent)
