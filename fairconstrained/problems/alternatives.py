r"""Alternatives to a result: points known beforehand, and points on lines.

No result may be clearly worse than a known point. Along a line :math:`x + t d` scores are linear,
and predicted labels change at finitely many t: where another class gets the largest score of a row.
One sort of these changes therefore gives all hard values. So do the changes of the order of two
rows for AUCs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fairconstrained.constraints.tables import OfRows, Placement, blocks_of, sum_by
from fairconstrained.losses import log_loss
from fairconstrained.models.linear import LinearModel
from fairconstrained.problems.objectives import MeanLoss
from fairconstrained.problems.rows import Rows
from fairconstrained.problems.thresholds import thresholds_by_group

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
_FEW_ROWS = 1000  # on which the whole way is searched

MOST_ENTRIES = 1_000_000  # of all tables; lines with more are seen at fewer points
_APART = 1e-9  # changes that are closer, relative to their size, may be equal but for rounding
_SAME_SLOPE = 1e-13  # slopes that differ by less, relative to the scores, differ by rounding
_MOST_ROWS = 400_000  # that thresholds are tried on, all together
_GRID = torch.logspace(-4, 2, 25, dtype=torch.float64)

Changes = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]
OfPairs = Callable[[Tensor, Tensor], Tensor]  # indices (k,) and (k,) of rows to values of pairs
_MOST_ON_LINE = 20_000_000  # scores of a line that are there at a time: 160 MB
_MOST_NAMED = 400_000  # changes of labels along a line that travel between workers: 3 MB
_GOLDEN, _PLASTIC = 0.6180339887498949, 0.7548776662466927  # steps of even sequences modulo one


class Known(NamedTuple):
    """A point, and the difference of hard objectives by which it must be better than a result.

    With a `direction` the best of the line from x to x + direction is meant.
    """

    x: Tensor  # (n_variables,)
    by: float = ERROR_TOL
    of: Any = None  # a smaller problem with the same values there, where there is one
    direction: Tensor | None = None  # (n_variables,)
    equal: bool = False  # whether all rows have the same scores there


def known_points(problem: FairERM) -> list[Known]:
    """Equal predictions, the solution without constraints, thresholds by group, a relaxation's.

    Without the solution without constraints only the first.
    """
    # Where all scores are equal, one row of each label and group has the values of all of them.
    by_cell = replace(problem, data=problem.data.by_cell(problem.constraint))
    zero = torch.zeros_like(problem.model.init())
    unit = F.one_hot(problem.model.offsets, len(zero)).to(zero)
    found = [Known(by_cell.variables(zero), of=by_cell, equal=True)]
    for e, size in product(unit, _CONSTANTS):
        found.append(Known(by_cell.variables(size * e), of=by_cell, equal=True))
    if problem.free is None:
        return found
    found.append(Known(problem.variables(problem.free)))
    if problem.log_odds is not None and (rule := thresholds_by_group(problem)) is not None:
        x = problem.variables(rule)
        found.append(Known(x, max(ERROR_TOL, _standard_error(problem, x))))
    return found + _relaxed(problem, problem.free)


def _standard_error(problem: FairERM, x: Tensor) -> float:
    """That of an error: thresholds fit these rows best, so that a smaller lead says little."""
    error = min(float(problem.evaluate(x).hard[0]), 1.0)
    return math.sqrt(error * (1.0 - error) / problem.n_rows)


def _relaxed(problem: FairERM, free: Tensor) -> list[Known]:
    """Points between the solution without constraints and that of a convex relaxation.

    At scores zero soft rates are linear in the scores, and gaps of rates are gaps of mean scores.
    That these are zero is the covariance constraint of Zafar et al. (2017, "Fairness constraints").
    In the coordinates of solvers the Hessian is near the identity, so the projection of the
    solution without constraints is near the best of all points that meet it. On few rows the best
    of the whole line is one of them. There are none for criteria with thresholds of their own,
    which are not defined here, and none where the solution without constraints is feasible.
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
    if not bool(gradients.isfinite().all()):  # as those of a user's criterion may be
        return []
    _, values, rows = torch.linalg.svd(gradients, full_matrices=False)
    rows = rows[values > _SINGULAR * values[0]]
    move = -rows.T @ (rows @ free)
    points = [Known(free + 0.5 * move, RELAXED_TOL), Known(free + move, RELAXED_TOL)]
    line = [Known(free, RELAXED_TOL, direction=move)] if problem.n_rows <= _FEW_ROWS else []
    return line + points


class Line(NamedTuple):
    """Hard values at some points of a line."""

    steps: Tensor  # (T,)
    error: Tensor  # (T,), the hard objective
    excess: Tensor  # (T,), the largest value of the constraints


def of_ranks(
    scores: Tensor,
    slopes: Tensor,
    of_pairs: OfPairs,
    hard: Callable[[Tensor], Tensor],
    reach: float,
) -> Line:
    """One point between any two changes of the order of rows, from all pairs of rows.

    Parameters
    ----------
    scores, slopes : Tensor of shape (n,)
        Scores at t = 0, and their derivatives by t.
    of_pairs : callable
        What pairs add to (f, c_1, ..., c_m) if their first row ranks above the second, (k, 1 + m).
    hard : callable
        (f, c_1, ..., c_m) at one point.
    reach : float
        Largest absolute value of t.
    """
    first, second = torch.triu_indices(len(scores), len(scores), 1, device=scores.device)
    faster = slopes[first] - slopes[second]
    step = (scores[second] - scores[first]) / faster
    rounding = _SAME_SLOPE * scores.abs().max()
    moving = torch.nonzero((faster.abs() > rounding) & (step.abs() <= reach))[:, 0]
    first, second, step, up = first[moving], second[moving], step[moving], faster[moving] > 0
    above, below = torch.where(up, first, second), torch.where(up, second, first)
    steps = between(step, reach, len(step) + 1)
    changes = of_pairs(above, below) - of_pairs(below, above)
    # A change has happened at the steps beyond it, and its point is the first of these.
    changed = sum_by(changes, torch.searchsorted(steps, step), len(steps) + 1)[:-1]
    changed[0] = hard(steps[0])
    values = changed.cumsum(dim=0)
    return Line(steps, values[:, 0], values[:, 1:].amax(dim=1))


def along(problem: FairERM, x: Tensor, direction: Tensor, reach: float) -> Line:
    """Hard values on a line: all of them if labels determine them, else at some points."""
    moves_offsets = bool(torch.isin(torch.nonzero(direction)[:, 0], problem.offsets).all())
    if not (isinstance(problem.model, LinearModel) or moves_offsets):
        return on_grid(lambda t: problem.evaluate(x + t * direction).hard, grid(x, reach))
    n_params = [problem.model.n_params]
    (w, aux), (ahead, _) = x.tensor_split(n_params), (x + direction).tensor_split(n_params)
    n_thresholds = max(_MOST_ROWS // problem.n_rows, len(_GRID)) if moves_offsets else 0
    if problem.sums_decide and problem.affine is not None:
        return _line_of_sums(problem, w, ahead, reach, n_thresholds)
    steps = grid(x, reach)
    if n_thresholds:
        # Where only offsets move all slopes are equal: those of other rows belong to these scores.
        scores, there = (problem.model.scores(v, problem.data.quantiles.X) for v in (w, ahead))
        changes = _changes(scores, there - scores, reach)[1]
        steps = torch.cat((steps, between(changes, reach, n_thresholds)))
    scores_at = _scores_at(problem, w, ahead, steps)
    return on_grid(lambda step: problem.hard(next(scores_at), aux), steps)


def _scores_at(problem: FairERM, w: Tensor, ahead: Tensor, steps: Tensor) -> Iterator[Tensor]:
    """Scores that stand for all rows at each step of a line, from few passes over the rows."""
    model, stand_in = problem.model, problem.data.stand_in

    def of_own(some: Tensor, own: Rows) -> Tensor:
        of_pieces = [(model.scores(w, r.X), model.scores(ahead, r.X)) for r in own.pieces()]
        scores, there = map(torch.cat, zip(*of_pieces, strict=True))
        return torch.stack([stand_in(own, scores + t * (there - scores)) for t in some])

    for some in torch.split(steps, max(1, _MOST_ON_LINE // len(problem.data.quantiles.y))):
        yield from torch.cat(problem.data.gather(partial(of_own, some)), dim=1)


def _line_of_sums(
    problem: FairERM, w: Tensor, ahead: Tensor, reach: float, n_thresholds: int
) -> Line:
    """Between all changes of labels if these decide, else at steps and quantiles of changes.

    Of many rows that are not in memory each piece names evenly spaced changes of its own, in
    proportion to its rows.
    """
    affine, of_rows, total = problem.affine, problem.risk.of_rows, problem.data.total_weight
    assert affine is not None  # see `along`
    assert of_rows is not None

    def on_line(rows: Rows) -> tuple[Tensor, Tensor]:
        scores = problem.model.scores(w, rows.X)
        return scores, problem.model.scores(ahead, rows.X) - scores

    if problem.data.in_memory:
        changes = _changes(*on_line(problem.data), reach)[1]
    else:
        spacing = max(1.0, problem.n_rows / _MOST_NAMED)
        changes = torch.cat(problem.data.gather(partial(_named, on_line, reach, spacing)))
    if problem.constraint.of_labels:
        most = MOST_ENTRIES // ((affine.n_parts + 1) * (1 + affine.n_columns))
        steps = between(changes, reach, max(most, 2))
    else:
        steps = torch.cat((grid(w, reach), between(changes, reach, n_thresholds)))

    def of_piece(rows: Rows) -> Tensor:
        placed, (scores, slopes) = problem.placed_rows(rows), on_line(rows)
        if not problem.constraint.of_labels:
            return torch.stack([problem.hard_sums(scores + t * slopes, placed) for t in steps])
        of_labels = of_rows, problem.constraint.statistic.hard
        sums = sums_at(steps, scores, slopes, placed, of_labels, reach)
        sums[:, 0] /= total
        return sums

    sums = problem.data.total(of_piece)
    tables = sums[:, 1:].reshape(len(steps), affine.n_parts, affine.n_columns)
    return Line(steps, sums[:, 0], affine.largest(tables))


def _named(
    on_line: Callable[[Rows], tuple[Tensor, Tensor]], reach: float, spacing: float, own: Rows
) -> Tensor:
    """Changes that a worker names: all, or evenly spaced ones of each piece."""
    found = []
    for place, rows in enumerate(own.pieces()):
        changes = _changes(*on_line(rows), reach)[1]
        if spacing > 1.0:
            # Offsets run evenly over pieces and workers, so all ranks are named alike.
            offset = (_GOLDEN * place + _PLASTIC * own.workers.rank) % 1.0
            ranks = ((offset + torch.arange(len(changes) / spacing)) * spacing).long()
            changes = changes.sort().values[ranks[ranks < len(changes)].to(changes.device)]
        found.append(changes)
    return torch.cat(found)


def sums_at(
    steps: Tensor,
    scores: Tensor,
    slopes: Tensor,
    rows: Placement,
    of_rows: tuple[OfRows, OfRows],
    reach: float,
) -> Tensor:
    """Sums at sorted points between changes within reach, (T, 1 + n_parts n_columns).

    Sums of the error over the rows come first, then the table of the statistic, flattened: the two
    functions of scores and labels in `of_rows`. Both depend on predicted labels only.
    """
    error, statistic = of_rows
    total = scores.new_zeros(())
    for z, d, y, part, weight in blocks_of(scores, slopes, *rows[:3]):
        block = Placement(y, part, weight, rows.n_parts)
        first, step, row, before, after = _changes(z, d, reach)
        moving = block.take(row)
        # A change has happened at the steps beyond it.
        since = torch.searchsorted(steps, step)
        errors = moving.weight * (error(after, moving.y) - error(before, moving.y))
        moves = statistic(after, moving.y) - statistic(before, moving.y)
        table = moving.sums_at(moves, since, len(steps) + 1).flatten(start_dim=1)
        sums = torch.cat((sum_by(errors[:, None], since, len(steps) + 1), table), dim=1)
        sums[0, 0] += weight @ error(first, y)
        sums[0, 1:] += block.sum(statistic(first, y)).reshape(-1)
        total = total + sums
    return total[:-1].cumsum(dim=0)


def _changes(scores: Tensor, slopes: Tensor, reach: float) -> Changes:
    """All changes of predicted labels on the line up to this distance from t = 0.

    Returns
    -------
    first : Tensor of shape (n, K)
        Scores with the labels where the line begins.
    step, row : Tensor of shape (k,)
        Where labels change, and of which rows, in any order.
    before, after : Tensor of shape (k, K)
        Scores with the label before the change, and after it.
    """
    rounding = _SAME_SLOPE * scores.abs().amax(dim=1, keepdim=True)
    slopes = torch.where(slopes.abs() <= rounding, 0.0, slopes)
    if scores.shape[1] > 1:
        return _changes_of_classes(scores, slopes, reach)
    step = -scores / slopes  # not finite where there is no change
    first = torch.where(step <= -reach, slopes, -slopes)
    row = torch.nonzero((slopes != 0) & (step > -reach) & (step <= reach))[:, 0]
    first, slope = torch.where(slopes == 0, scores, first), slopes[row]
    return first, step[row, 0], row, -slope, slope


def _changes_of_classes(scores: Tensor, slopes: Tensor, reach: float) -> Changes:
    """The upper envelope of the scores of each row: labels in the order of their slopes."""
    n_classes = scores.shape[1]
    first, last = (_best_at(end, scores, slopes) for end in (-reach, reach))
    found = [(scores[:0, 0], first[:0], first[:0], first[:0])]
    # The envelope is convex: a row with the same label at both ends has it in between.
    row = torch.nonzero(first != last)[:, 0]
    label = first[row]
    while len(row):
        faster = slopes[row] - slopes[row, label][:, None]
        crossing = (scores[row, label][:, None] - scores[row]) / faster
        crossing = torch.where(faster > 0, crossing, torch.inf)
        step = crossing.amin(dim=1)
        # Of the classes that cross at the same point the fastest is the label from there on.
        after = torch.where(crossing == step[:, None], faster, -torch.inf).argmax(dim=1)
        moves = step.isfinite() & (step <= reach)
        row, label, after = row[moves], label[moves], after[moves]
        found.append((step[moves], row, label, after))
        label = after
    step, row, before, after = (torch.cat(column) for column in zip(*found, strict=True))
    of_label = torch.eye(n_classes).to(scores)
    return of_label[first], step, row, of_label[before], of_label[after]


def _best_at(step: float, scores: Tensor, slopes: Tensor) -> Tensor:
    """The label of each row at a point of the line: of equal scores the one that goes on."""
    far = math.isinf(step)
    there = math.copysign(1.0, step) * slopes if far else scores + step * slopes
    allowed = there == there.amax(dim=1, keepdim=True)
    return torch.where(allowed, scores if far else slopes, -torch.inf).argmax(dim=1)


def between(change: Tensor, reach: float, most: int) -> Tensor:
    """Points between changes within reach, and beyond them, sorted, at most so many."""
    if most == 0 or len(change) == 0:
        return change.new_zeros(min(most, 1))
    # A sort by torch takes several times as long, and memory for indices as well.
    change = torch.from_numpy(np.sort(change.cpu().numpy())).to(change.device)
    ends = change[[0, -1]] + change.new_tensor([-2.0, 2.0]) * (1.0 + change[[0, -1]].abs())
    ends = ends.clamp(-reach, reach)
    change = torch.cat((ends[:1], change, ends[1:]))
    sizes = change.abs()
    places = torch.nonzero(change.diff() > _APART * (sizes[1:] + sizes[:-1]))[:, 0]
    if len(places) > most:
        places = places[torch.linspace(0, len(places) - 1, most, device=change.device).long()]
    return 0.5 * (change[places] + change[places + 1])


def on_grid(hard: Callable[[Tensor], Tensor], steps: Tensor) -> Line:
    """Values at given steps; `hard` gives (f, c_1, ..., c_m) at one of them."""
    values = torch.stack([hard(step) for step in steps])
    excess = torch.nn.functional.pad(values[:, 1:], (0, 1), value=-torch.inf).amax(dim=1)
    return Line(steps, values[:, 0], excess)


def grid(like: Tensor, reach: float) -> Tensor:
    """Steps of both signs on a logarithmic grid."""
    steps = torch.cat((-_GRID.flip(0), _GRID)).to(like)
    return steps[steps.abs() <= reach]
