r"""Baselines that no result may be clearly worse than, and hard values along lines :math:`x + t d`.

Along a line scores are linear, and predicted labels change at finitely many t: where another class
gets the largest score of a row. One sort of these changes therefore gives all hard values. So do
the changes of the order of two rows for AUCs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fairconstrained.constraints.tables import OfRows, Placement, blocks_of, sum_by
from fairconstrained.losses import log_loss
from fairconstrained.models.linear import LinearModel
from fairconstrained.numerics import NEGLIGIBLE, SENT_SCORES
from fairconstrained.problems.base import GRID, Line, grid, on_grid
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
# Slopes that differ by less, relative to the scores, are equal: 450 roundings of double precision.
_SLOPE_ROUNDING = 1e-13
Changes = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]
PairValues = Callable[[Tensor, Tensor], Tensor]  # indices (k,) and (k,) of rows to values of pairs


class Baseline(NamedTuple):
    """A point that replaces a result if its hard objective is lower by more than `by`.

    With a `direction`, the best point between x and x + direction competes.
    """

    x: Tensor  # (n_variables,)
    by: float = ERROR_TOL
    smaller: Any = None  # a cheaper problem with the same values at x
    direction: Tensor | None = None  # (n_variables,): the best point between x and x + direction
    equal: bool = False  # whether all rows have the same score at x


def baselines(problem: ERM) -> list[Baseline]:
    """Return constants, the unconstrained solution, group thresholds and points of a relaxation."""
    # Where all scores are equal, one row of each label and group has the values of all of them.
    by_cell = replace(problem, data=problem.data.by_cell(problem.constraint))
    zero = torch.zeros_like(problem.model.init())
    unit = F.one_hot(problem.model.offsets, len(zero)).to(zero)
    # Losses hardly differ between groups at the smallest scores; the largest are beyond thresholds.
    sizes, points = (-100.0, -1.0, -1e-3, 1e-3, 1.0, 100.0), []
    for e, size in [(zero, 1.0), *product(unit, sizes)]:
        points.append(Baseline(by_cell.variables(size * e), smaller=by_cell, equal=True))
    if problem.free is None:
        return points
    points.append(Baseline(problem.variables(problem.free)))
    if (rule := thresholds_by_group(problem)) is not None:
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


# ---------------------------------------------------------------------- lines


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
    else:  # with many rows each piece sends evenly spaced changes, in proportion to its rows
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


# ---------------------------------------------------------------------- changes along a line


def rank_line(
    scores: Tensor,
    slopes: Tensor,
    pair_values: PairValues,
    hard: Callable[[Tensor], Tensor],
    reach: float,
) -> Line:
    """Return hard values between any two changes of the order of rows, from all pairs.

    Rows have scores (n,) at t = 0, and slopes by t, of which the largest absolute value is `reach`.
    Of (f, c_1, ..., c_m), `pair_values` gives the contributions of pairs whose first row ranks
    higher, (k, 1 + m), and `hard` the values at one point.
    """
    first, second = torch.triu_indices(len(scores), len(scores), 1, device=scores.device)
    faster = slopes[first] - slopes[second]
    step = (scores[second] - scores[first]) / faster
    rounding = _SLOPE_ROUNDING * scores.abs().max()
    moving = torch.nonzero((faster.abs() > rounding) & (step.abs() <= reach))[:, 0]
    first, second, step, up = first[moving], second[moving], step[moving], faster[moving] > 0
    above, below = torch.where(up, first, second), torch.where(up, second, first)
    steps = between(step, reach, len(step) + 1)
    changes = pair_values(above, below) - pair_values(below, above)
    # A change has happened at the steps beyond it, and its point is the first of these.
    changed = sum_by(changes, torch.searchsorted(steps, step), len(steps) + 1)[:-1]
    changed[0] = hard(steps[0])
    values = changed.cumsum(dim=0)
    return Line(steps, values[:, 0], values[:, 1:].amax(dim=1))


def sums_at(
    steps: Tensor,
    scores: Tensor,
    slopes: Tensor,
    rows: Placement,
    functions: tuple[OfRows, OfRows],
    reach: float,
) -> Tensor:
    """Return sums at sorted points between changes, (T, 1 + n_parts n_columns).

    Sums of the error over the rows come first, then the flattened table of the statistic: the two
    functions of scores and labels in `functions`. Both depend on predicted labels only.
    """
    error, statistic = functions
    total = scores.new_zeros(())
    for z, d, y, part, weight in blocks_of(scores, slopes, *rows[:3]):
        block = Placement(y, part, weight, rows.n_parts)
        first, step, row, before, after = changes_of_labels(z, d, reach)
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


def changes_of_labels(scores: Tensor, slopes: Tensor, reach: float) -> Changes:
    """Find all changes of predicted labels on the line within `reach` of t = 0.

    Returns the scores (n, K) with the labels where the line begins; the steps and rows of the
    changes, (k,), in any order; the scores (k, K) with the label before each, and after it.
    """
    rounding = _SLOPE_ROUNDING * scores.abs().amax(dim=1, keepdim=True)
    # A slope that is only rounding would put a change at an arbitrary far point.
    slopes = torch.where(slopes.abs() <= rounding, 0.0, slopes)
    if scores.shape[1] > 1:
        return _changes_of_classes(scores, slopes, reach)
    step = -scores / slopes  # not finite where there is no change
    first = torch.where(step <= -reach, slopes, -slopes)
    row = torch.nonzero((slopes != 0) & (step > -reach) & (step <= reach))[:, 0]
    first, slope = torch.where(slopes == 0, scores, first), slopes[row]
    return first, step[row, 0], row, -slope, slope


def _changes_of_classes(scores: Tensor, slopes: Tensor, reach: float) -> Changes:
    """Follow the upper envelope of each row's scores: labels in the order of their slopes."""
    n_classes = scores.shape[1]
    first, last = (_best_at(end, scores, slopes) for end in (-reach, reach))
    changes = [(scores[:0, 0], first[:0], first[:0], first[:0])]
    # The envelope is convex: a row with the same label at both ends has it in between.
    row = torch.nonzero(first != last)[:, 0]
    label = first[row]
    while len(row):
        faster = slopes[row] - slopes[row, label][:, None]
        crossing = (scores[row, label][:, None] - scores[row]) / faster
        crossing = torch.where(faster > 0, crossing, torch.inf)
        step = crossing.amin(dim=1)
        # If several classes cross at the same point, the fastest is the label from there on.
        after = torch.where(crossing == step[:, None], faster, -torch.inf).argmax(dim=1)
        moves = step.isfinite() & (step <= reach)
        row, label, after = row[moves], label[moves], after[moves]
        changes.append((step[moves], row, label, after))
        label = after
    step, row, before, after = (torch.cat(column) for column in zip(*changes, strict=True))
    one_hot = torch.eye(n_classes).to(scores)
    return one_hot[first], step, row, one_hot[before], one_hot[after]


def _best_at(step: float, scores: Tensor, slopes: Tensor) -> Tensor:
    """Return each row's label at a point of the line; ties go to the label that lasts."""
    far = math.isinf(step)
    there = math.copysign(1.0, step) * slopes if far else scores + step * slopes
    allowed = there == there.amax(dim=1, keepdim=True)
    return torch.where(allowed, scores if far else slopes, -torch.inf).argmax(dim=1)


def between(change: Tensor, reach: float, most: int) -> Tensor:
    """Return at most `most` sorted points between the changes within reach, and beyond them."""
    if most == 0 or len(change) == 0:
        return change.new_zeros(min(most, 1))
    # A sort by torch takes several times as long, and memory for indices as well.
    change = torch.from_numpy(np.sort(change.cpu().numpy())).to(change.device)
    ends = change[[0, -1]] + change.new_tensor([-2.0, 2.0]) * (1.0 + change[[0, -1]].abs())
    ends = ends.clamp(-reach, reach)
    change = torch.cat((ends[:1], change, ends[1:]))
    sizes = change.abs()
    # Between changes that may be equal, rounding alone would decide the values.
    places = torch.nonzero(change.diff() > NEGLIGIBLE * (sizes[1:] + sizes[:-1]))[:, 0]
    if len(places) > most:
        places = places[torch.linspace(0, len(places) - 1, most, device=change.device).long()]
    return 0.5 * (change[places] + change[places + 1])
