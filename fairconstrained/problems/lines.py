r"""Lines :math:`x + t d`: where predicted labels and ranks change, and sums between the changes.

Along a line scores are linear, and predicted labels change at finitely many t: where another class
gets the largest score of a row. One sort of these changes therefore gives all hard values. So do
the changes of the order of two rows for AUCs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fairconstrained.constraints.tables import OfRows, Placement, blocks_of, sum_by
from fairconstrained.numerics import NEGLIGIBLE

# Slopes that differ by less, relative to the scores, are equal: 450 roundings of double precision.
_SLOPE_ROUNDING = 1e-13
GRID = torch.logspace(-4, 2, 25, dtype=torch.float64)  # steps to try where changes are unknown
Changes = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]
PairValues = Callable[[Tensor, Tensor], Tensor]  # indices (k,) and (k,) of rows to values of pairs


class Line(NamedTuple):
    """Hard values at some points of a line."""

    steps: Tensor  # (T,)
    error: Tensor  # (T,), the hard objective
    excess: Tensor  # (T,), the largest value of the constraints


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
    """Find all changes of predicted labels on the line up to this distance from t = 0.

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


def on_grid(hard: Callable[[Tensor], Tensor], steps: Tensor) -> Line:
    """Evaluate a line at given steps; `hard` returns (f, c_1, ..., c_m) at one step."""
    values = torch.stack([hard(step) for step in steps])
    # Padded, because a maximum over no constraints is not defined.
    excess = torch.nn.functional.pad(values[:, 1:], (0, 1), value=-torch.inf).amax(dim=1)
    return Line(steps, values[:, 0], excess)


def grid(like: Tensor, reach: float) -> Tensor:
    """Return steps of both signs on a logarithmic grid."""
    steps = torch.cat((-GRID.flip(0), GRID)).to(like)
    return steps[steps.abs() <= reach]
