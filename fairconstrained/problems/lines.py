r"""Hard values at the points of a line :math:`x + t d` along which scores are linear.

Values of predicted labels change at finitely many t: where the score of a row changes its sign. One
sort of the rows therefore gives all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from fairconstrained.constraints.affine import AffineMap
from fairconstrained.constraints.moments import Rows
from fairconstrained.constraints.statistics import sum_by

__all__ = ["Line", "of_labels", "on_grid"]

_MOST_ENTRIES = 10_000_000  # of all tables and values; lines with more are seen at fewer points
_APART = 1e-9  # changes that are closer, relative to their size, may be equal but for rounding
_GRID = torch.logspace(-4, 2, 25, dtype=torch.float64)

OfRows = Callable[[Tensor, Tensor], Tensor]  # scores (n, 1) and labels to values of the rows


class Line(NamedTuple):
    """Hard values at some points of a line."""

    steps: Tensor  # (T,)
    hard: Tensor  # (T, 1 + m)


def of_labels(
    scores: Tensor, slopes: Tensor, rows: Rows, error: OfRows, statistic: OfRows, values: AffineMap
) -> Line:
    """One point between any two changes of labels, and one beyond them on each side.

    Parameters
    ----------
    scores, slopes : Tensor of shape (n, 1)
        Scores at t = 0, and their derivatives by t.
    rows : Rows
    error, statistic : callable
        The error (n,) and the statistics (n, n_columns), which depend on signs of scores only.
    values : AffineMap
        From tables of the statistics to the constraints.
    """

    def columns(scores: Tensor, rows: Rows) -> Tensor:
        of_rows = torch.cat((error(scores, rows.y)[:, None], statistic(scores, rows.y)), dim=1)
        return of_rows * rows.weight[:, None]

    z, slope = scores[:, 0], slopes[:, 0]
    change = torch.where(slope == 0, torch.inf, -z / slope)
    order = change.argsort()[: int(change.isfinite().sum())]
    before, moving = torch.where(slope == 0, z, -slope)[:, None], rows.take(order)
    first = columns(before, rows)
    n_parts, m = rows.n_parts + 1, len(values.offset)
    most = max(_MOST_ENTRIES // (n_parts * first.shape[1] + m), 2)
    steps, n_changed = _between(change[order], most)
    # The sorted row i has changed at the steps before which more than i rows have changed.
    since = torch.searchsorted(n_changed, torch.arange(len(order)).to(n_changed), right=True)
    changes = columns(-before[order], moving) - columns(before[order], moving)
    tables = sum_by(changes, since * n_parts + moving.part, (len(steps) + 1) * n_parts)
    tables = tables.reshape(-1, n_parts, first.shape[1])[:-1].cumsum(dim=0)
    tables = tables + sum_by(first, rows.part, n_parts)
    errors = tables[:, :, :1].sum(dim=1) / rows.weight.sum()
    return Line(steps, torch.cat((errors, values.of_tables(tables[:, :-1, 1:])), dim=1))


def _between(change: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Steps between and beyond sorted changes, at most so many; changes before each."""
    if len(change) == 0:
        return change.new_zeros(1), torch.zeros(1, dtype=torch.long, device=change.device)
    low, high = change[:-1], change[1:]
    apart = torch.nonzero(high - low > _APART * (high.abs() + low.abs()))[:, 0]
    ends = change[[0, -1]] + change.new_tensor([-1.0, 1.0]) * (1.0 + change[[0, -1]].abs())
    steps = torch.cat((ends[:1], 0.5 * (low + high)[apart], ends[1:]))
    n_changed = torch.cat((apart.new_zeros(1), apart + 1, apart.new_full((1,), len(change))))
    if len(steps) <= most:
        return steps, n_changed
    chosen = torch.linspace(0, len(steps) - 1, most, device=change.device).long()
    return steps[chosen], n_changed[chosen]


def on_grid(hard: Callable[[Tensor], Tensor], x: Tensor) -> Line:
    """Points of both signs on a logarithmic grid; `hard` gives the values at a step."""
    steps = torch.cat((-_GRID.flip(0), _GRID)).to(x)
    return Line(steps, torch.stack([hard(step) for step in steps]))
