"""Any number of constraints as one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Self

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairconstrained.constraints.affine import AffineMap, Combinations
from fairconstrained.constraints.moments import MomentConstraint
from fairconstrained.constraints.steps import Above
from fairconstrained.constraints.tables import (
    NoColumns,
    Placement,
    Space,
    Statistic,
    side_by_side,
    sum_by,
)


class Stack(MomentConstraint):
    """Several moment constraints as one constraint on a common table.

    The parts are the coarsest common refinement of the partitions of all members, of which there is
    at least one. Equal statistics are computed once.
    """

    def __init__(self, space: Space, members: Sequence[MomentConstraint]):
        self._members = tuple(members)
        statistics = tuple(dict.fromkeys(member.statistic for member in members))
        cells = torch.stack([member.partition.part_of_cell.reshape(-1) for member in members])
        parts, part_of_cell = torch.unique(cells, dim=1, return_inverse=True)
        # Cells that no member uses come first, and are in no part of the stack.
        unused = int((parts == -1).all(dim=0).sum())
        parts, part_of_cell = parts[:, unused:], (part_of_cell - unused).clamp_min(-1)
        super().__init__(
            space,
            part_of_cell.reshape(space.shape),
            side_by_side(statistics),
            torch.cat([member.slack.double() for member in members]),
            " and ".join(member.name for member in members),
            sum(member.n_aux for member in members),
        )
        self.label_based = all(member.label_based for member in members)
        self.difference_of_convex = all(member.difference_of_convex for member in members)
        # Parts that a member does not use get the number after its last part.
        self.member_parts = [
            part.remainder(member.n_parts + 1) for part, member in zip(parts, members, strict=True)
        ]
        each = [member.statistic for member in members]
        self._owners = [each.index(statistic) for statistic in statistics]
        starts = np.cumsum([0, *(statistic.n_columns for statistic in statistics)])
        self._aux_sizes = [member.n_aux for member in members]
        self.member_columns = [slice(starts[i], starts[i + 1]) for i in map(statistics.index, each)]

    @property
    def members(self) -> tuple[MomentConstraint, ...]:
        return self._members

    def init_aux(self, scores: Tensor, rows: Placement) -> Tensor:
        each = self._each(rows, scores.new_zeros(self.n_aux))
        return torch.cat([member.init_aux(scores, placed) for member, (placed, _) in each])

    def statistic_at(self, aux: Tensor) -> Statistic:
        if self.n_aux == 0:
            return self.statistic
        pieces = zip(self.members, torch.split(aux, self._aux_sizes), strict=True)
        at = [member.statistic_at(member_aux) for member, member_aux in pieces]
        return side_by_side(tuple(at[i] for i in self._owners))

    def steps_at(self, aux: Tensor) -> Above | None:
        return self.members[0].steps_at(aux) if len(self.members) == 1 else None

    def affine(self, counts: Tensor) -> AffineMap | None:
        shape = (self.n_parts, self.statistic.n_columns)
        tables = self._tables(counts.new_zeros(shape), counts, counts.new_zeros(self.n_aux))
        maps = [member.affine(member_counts) for member, (_, member_counts, _) in tables]
        known = [block for block in maps if block is not None]
        if len(known) < len(maps):
            return None
        rates = []
        for block, part, columns in zip(known, self.member_parts, self.member_columns, strict=True):
            # The member's entry for each of the table's; if none, its last, with coefficients 0.
            entry = np.full(shape, block.rates.shape[1] - 1)
            first = part.numpy()[:, None] * block.n_columns
            entry[:, columns] = first + np.arange(block.n_columns)
            rates.append(block.rates[:, entry.reshape(-1)])
        combinations = [block for member in known for block in member.combinations]
        offset = torch.cat([block.offset for block in known])
        return AffineMap(combinations, sp.vstack(rates), offset, shape)

    def at_equal_scores(self) -> Self:
        return self._of([member.at_equal_scores() for member in self.members])

    def sharpened(self) -> Self:
        return self._of([member.sharpened() for member in self.members])

    def loosened(self, by: float) -> Self:
        return self._of([member.loosened(by) for member in self.members])

    def narrowed(self, by: Tensor) -> Self:
        return self._of([member.narrowed(piece) for member, piece in self.split(by)])

    def without_rounding(self, hard: Tensor) -> Tensor:
        return torch.cat([member.without_rounding(p) for member, p in self.split(hard)])

    def shifted(self, by: Tensor) -> Self:
        return self._of([member.shifted(piece) for member, piece in self.split(by)])

    def deviations(self, scores: Tensor, rows: Placement, aux: Tensor) -> Tensor:
        errors = [m.deviations(scores, *args).to(scores) for m, args in self._each(rows, aux)]
        return torch.cat(errors)

    def scatter(self, scores: Tensor, rows: Placement) -> Tensor:
        each = self._each(rows, scores.new_zeros(self.n_aux))
        return torch.cat([m.scatter(scores, part).reshape(-1) for m, (part, _) in each])

    def deviations_of(self, scatter: Tensor) -> Tensor:
        columns = [member.statistic.n_columns + 1 for member in self.members]
        sizes = [m.n_parts * k * (k + 1) for m, k in zip(self.members, columns, strict=True)]
        pieces = zip(self.members, torch.split(scatter, sizes), strict=True)
        return torch.cat([member.deviations_of(piece) for member, piece in pieces])

    def _of(self, members: Sequence[MomentConstraint]) -> Self:
        """Stack these members; return the stack itself if no member changes."""
        # Solvers see by identity that nothing can change any more.
        if all(other is member for other, member in zip(members, self.members, strict=True)):
            return self
        return type(self)(self.space, members)

    def evaluate(self, sums: Tensor, counts: Tensor, aux: Tensor) -> Tensor:
        return torch.cat([m.evaluate(*args) for m, args in self._tables(sums, counts, aux)])

    def evaluate_hard(self, sums: Tensor, counts: Tensor, aux: Tensor) -> Tensor:
        return torch.cat([m.evaluate_hard(*args) for m, args in self._tables(sums, counts, aux)])

    def hard_values(self, scores: Tensor, rows: Placement, aux: Tensor) -> Tensor:
        return torch.cat([m.hard_values(scores, *args) for m, args in self._each(rows, aux)])

    def convex_parts(self, scores: Tensor, rows: Placement, aux: Tensor) -> Tensor:
        parts = [m.convex_parts(scores, *args) for m, args in self._each(rows, aux)]
        return torch.cat(parts, dim=1)

    def _tables(
        self, sums: Tensor, counts: Tensor, aux: Tensor
    ) -> Iterator[tuple[MomentConstraint, tuple[Tensor, Tensor, Tensor]]]:
        """Yield each member with its table, counts and extra variables."""
        members = zip(self.members, self.member_parts, strict=True)
        pieces = zip(members, self.member_columns, torch.split(aux, self._aux_sizes), strict=True)
        for (member, part), columns, member_aux in pieces:
            table = torch.cat((sums[:, columns], counts[:, None]), dim=1)
            member_table = sum_by(table, part.to(sums.device), member.n_parts + 1)[: member.n_parts]
            yield member, (member_table[:, :-1], member_table[:, -1], member_aux)

    def _each(
        self, rows: Placement, aux: Tensor
    ) -> Iterator[tuple[MomentConstraint, tuple[Placement, Tensor]]]:
        """Yield each member with its parts of the rows and its extra variables."""
        pieces = zip(
            self.members, self.member_parts, torch.split(aux, self._aux_sizes), strict=True
        )
        for member, part, member_aux in pieces:
            yield member, (rows.in_unions(part, member.n_parts), member_aux)

    def without_small(
        self, rows: NDArray[np.int64], min_rows: int | str
    ) -> tuple[MomentConstraint, list[str]]:
        pairs = [member.without_small(rows, min_rows) for member in self.members]
        remaining = [member for member, _ in pairs if len(member.slack)]
        return stacked(self.space, remaining), [words for _, dropped in pairs for words in dropped]

    def describe(self, j: int) -> str:
        first = 0
        for member in self.members:
            if j < first + len(member.slack):
                return member.describe(j - first)
            first += len(member.slack)
        raise IndexError(f"There are {first} values; got {j}.")

    def split(self, values: Tensor) -> Iterator[tuple[MomentConstraint, Tensor]]:
        """Yield each member with its values."""
        pieces = torch.split(values, [len(member.slack) for member in self.members])
        return zip(self.members, pieces, strict=True)

    def measures(self, values: Tensor) -> dict[str, float]:
        """Measure each criterion in its own units, by name; names that occur twice are numbered."""
        names = [member.name for member in self.members]
        keys = [f"{n}_{i}" if names.count(n) > 1 else n for i, n in enumerate(names)]
        pieces = zip(keys, self.split(values), strict=True)
        return {key: member.measure(piece) for key, (member, piece) in pieces}

    def undefined(self, values: Tensor) -> dict[int, str]:
        names: dict[int, str] = {}
        first = 0
        for member, piece in self.split(values):
            names |= {first + j: words for j, words in member.undefined(piece).items()}
            first += len(piece)
        return names

    def measure(self, values: Tensor) -> float:
        """Measure the criterion that exceeds its slack most, in its own units."""
        # Values are relative to their slacks, and comparable; measures are in units of their own.
        member, values = max(self.split(values), key=lambda pair: float(pair[1].max()))
        return member.measure(values)


class Unconstrained(MomentConstraint):
    """No constraint: a table without parts, and no values."""

    members = ()
    label_based = difference_of_convex = True

    def __init__(self, space: Space):
        nowhere = torch.full(space.shape, -1)
        super().__init__(space, nowhere, NoColumns(), torch.zeros(0), "no constraint")

    def evaluate(self, sums: Tensor, counts: Tensor, aux: Tensor) -> Tensor:
        return counts

    def affine(self, counts: Tensor) -> AffineMap:
        nothing = np.zeros((0, 0))
        return AffineMap([Combinations.of(nothing)], nothing, counts, (0, 0))

    def convex_parts(self, scores: Tensor, rows: Placement, aux: Tensor) -> Tensor:
        return scores.new_zeros((2, 0))

    def deviations(self, scores: Tensor, rows: Placement, aux: Tensor) -> Tensor:
        return scores.new_zeros(0)

    def scatter(self, scores: Tensor, rows: Placement) -> Tensor:
        return scores.new_zeros(0)

    def deviations_of(self, scatter: Tensor) -> Tensor:
        return scatter

    def measures(self, values: Tensor) -> dict[str, float]:
        return {}


def stacked(space: Space, members: Sequence[MomentConstraint]) -> MomentConstraint:
    """Return several constraints as one; a single one as it is, none as one without values."""
    if not members:
        return Unconstrained(space)
    return members[0] if len(members) == 1 else Stack(space, members)
