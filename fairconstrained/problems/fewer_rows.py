"""Fewer rows that stand for all: evenly spaced ones, and one of each label and group."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import torch

from fairconstrained.constraints.moments import MomentConstraint
from fairconstrained.constraints.statistics import blocks_of

__all__ = ["OnFewerRows", "by_cell", "thinned"]

_MANY_ROWS = 200_000  # of more rows a solver sees about so many first, or fewer
_LEAST = 16  # one row in so many at most
_FEW_OF_CELL = 1_000  # rows of a label and group that are all kept


def thinned(data: Any, shape: tuple[int, int]) -> Any:
    """Evenly spaced rows and all rows of small cells, weighted up; the data itself if few.

    Parameters
    ----------
    data : Batch or PartedRows
    shape : (n_classes, n_groups)
    """
    if data.n_rows <= _MANY_ROWS:
        return data
    every = max(_LEAST, -(-data.n_rows // _MANY_ROWS))
    ones = data.weight.new_ones(1).expand(len(data.y))
    small = data.sum_by_cell(ones, shape).reshape(-1) < _FEW_OF_CELL
    found, start = [], 0
    for y, group in blocks_of(data.y, data.group):
        of_small = small[y.long() * shape[1] + group.long()]
        place = torch.arange(start, start + len(y), device=y.device)
        chosen = torch.nonzero(of_small | (place % every == 0))[:, 0]
        found.append((place[chosen], torch.where(of_small[chosen], 1.0, float(every))))
        start += len(y)
    index, stands_for = map(torch.cat, zip(*found, strict=True))
    return data.kept(index, data.weight[index] * stands_for)


def by_cell(data: Any, shape: tuple[int, int]) -> Any:
    """One row of each label and group, which has the weight of all of them.

    Parameters are as in :func:`thinned`.
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


class OnFewerRows:
    """A problem that is posed on fewer rows as well."""

    data: Any  # Batch or PartedRows
    constraint: MomentConstraint

    def thinned(self) -> Self:
        """The problem on some hundred thousand rows that stand for all; itself if few."""
        return self._on(thinned(self.data, self._shape_of_cells))

    def by_cell(self) -> Self:
        """The problem on one row of each label and group, which has the weight of all of them.

        Where all scores are equal, its values are those of this problem.
        """
        return self._on(by_cell(self.data, self._shape_of_cells))

    @property
    def _shape_of_cells(self) -> tuple[int, int]:
        n_classes, n_groups = self.constraint.part_of_cell.shape
        return n_classes, n_groups

    def _on(self, data: Any) -> Self:
        return self if data is self.data else replace(self, data=data)  # type: ignore[type-var]
