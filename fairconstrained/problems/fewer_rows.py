"""Fewer rows that stand for all: a fraction of them, or one of each label and group."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fairconstrained.constraints.statistics import blocks_of

_MANY_ROWS = 200_000  # of more rows a solver sees about so many first, or fewer
_LEAST = 16  # one row in so many at most
_FEW_OF_CELL = 1_000  # rows of a label and group that are kept at least, if it has so many
_GOLDEN = 0.6180339887498949


def thinned(data: Any, shape: tuple[int, int]) -> Any:
    """The rows of :func:`spaced` instead of the data, or the data itself."""
    chosen = spaced(data, shape)
    return data if chosen is None else data.kept(*chosen)


def spaced(data: Any, shape: tuple[int, int]) -> tuple[Tensor, Tensor] | None:
    """Indices and weights of rows that stand for all: a fraction of each label and group.

    None if the data are few, or if these rows would be more than half of them.

    The fraction is the same for all but small cells, of which at least 1,000 rows are kept. Rows
    are spaced by the golden ratio, which no order of the rows repeats. Of several workers they are
    those that one worker would choose who has the rows of all, in the order of the workers.

    Parameters
    ----------
    data : Batch or PartedRows
    shape : (n_classes, n_groups)
    """
    if data.n_rows <= _MANY_ROWS:
        return None
    ones = data.weight.new_ones(1).expand(len(data.y))
    counts = data.sum_by_cell(ones, shape).reshape(-1)
    most = min(1.0 / _LEAST, _MANY_ROWS / data.n_rows)
    fraction = (_FEW_OF_CELL / counts.clamp_min(1.0)).clamp(most, 1.0)
    if fraction @ counts > 0.5 * data.n_rows:  # most cells are small
        return None
    found, start = [], 0
    for y, group in blocks_of(data.y, data.group):
        own = fraction[y.long() * shape[1] + group.long()]
        place = torch.arange(start, start + len(y), device=y.device)
        spaced = ((data.n_before + place).double() * _GOLDEN).frac()
        chosen = torch.nonzero(spaced < own)[:, 0]
        found.append((place[chosen], 1.0 / own[chosen]))
        start += len(y)
    index, stands_for = map(torch.cat, zip(*found, strict=True))
    return index, data.weight[index] * stands_for


def by_cell(data: Any, shape: tuple[int, int]) -> Any:
    """One row of each label and group, which has the weight of all of them.

    Parameters are as in :func:`spaced`.
    """
    n_cells = shape[0] * shape[1]
    first = torch.full((n_cells,), len(data.y), device=data.y.device)
    weight, start = data.weight.new_zeros(n_cells), 0
    for y, group, own in blocks_of(data.y, data.group, data.weight):
        cell = y.long() * shape[1] + group.long()
        place = torch.arange(start, start + len(y), device=y.device)
        first.scatter_reduce_(0, cell, place, "amin")
        weight.index_add_(0, cell, own)
        start += len(y)
    index, order = first[weight > 0].sort()
    return data.kept(index, weight[weight > 0][order])
