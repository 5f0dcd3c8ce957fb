r"""Constraints that depend on the data only through a small table of group moments.

The rows are partitioned into *parts* by (label, group). With the statistics :math:`s(z_i, y_i)` of
a row and its weight :math:`w_i`, the table is

.. math:: M_q = \sum_{i \in q} w_i s(z_i, y_i), \qquad N_q = \sum_{i \in q} w_i ,

and a constraint is a function of the table: :math:`g(M, N) \le 0`. Tables of chunks, batches and
workers add up. Gradients pass through a few numbers, and private training has to protect only
these. Any number of constraints can be joined to one, on a common table.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairconstrained.comparison import Compared, compared
from fairconstrained.constraints import tables
from fairconstrained.constraints.affine import AffineMap, Combinations
from fairconstrained.constraints.tables import Placement, Space, Statistic
from fairconstrained.losses import linearized
from fairconstrained.numerics import ROUNDING

# In place of an infinite slack, which would make values infinite and their gradients nan.
NEVER_BINDS = 1e6


class MomentConstraint:
    """Base of constraints, from a partition, a statistic and a function of the table.

    A subclass implements :meth:`evaluate`, :meth:`describe` and :meth:`without_small`. It
    overrides other methods if it supports more.
    """

    space: Space  # the labels and groups that the constraint is bound to
    label_based = False  # whether hard values depend on scores by predicted labels only
    difference_of_convex = False  # whether `convex_parts` is implemented
    place = 0  # position of its criterion in a list of criteria

    def __init__(
        self,
        space: Space,
        part_of_cell: Tensor,
        statistic: Statistic,
        slack: Tensor,
        name: str,
        n_aux: int = 0,
    ):
        self.space = space
        self.partition = tables.Partition(part_of_cell, space)
        self.statistic = statistic
        self.slack = slack  # (m,), subtracted in the values
        self.name = name  # of the criterion in messages
        self.n_aux = n_aux  # number of extra primal variables
        self.n_parts = self.partition.n_parts

    @property
    def members(self) -> tuple[MomentConstraint, ...]:
        """Return the constraints of single criteria that make up this constraint."""
        return (self,)

    def evaluate(self, sums: Tensor, counts: Tensor, aux: Tensor) -> Tensor:
        """Return values, (m,), from the table of soft statistics."""
        raise NotImplementedError

    def evaluate_hard(self, sums: Tensor, counts: Tensor, aux: Tensor) -> Tensor:
        """Return hard values, (m,), from the table of hard statistics."""
        return self.evaluate(sums, counts, aux)

    def values(self, scores: Tensor, rows: Placement, aux: Tensor) -> Tensor:
        """Return the values on these rows, (m,)."""
        return self.evaluate(self.statistic_at(aux).sums(scores, rows), rows.counts(), aux)

    def hard_values(self, scores: Tensor, rows: Placement, aux: Tensor) -> Tensor:
        """Return hard values on rows, (m,), as users measure them; by default from the table."""
        return self.evaluate_hard(rows.sums(self.statistic.hard, scores), rows.counts(), aux)

    def convex_parts(self, scores: Tensor, rows: Placement, aux: Tensor) -> Tensor:
        """Return two rows (2, m), convex in scores and extra variables, that differ by `values`."""
        raise NotImplementedError

    def affine(self, counts: Tensor) -> AffineMap | None:
        """Return the map from tables to values for given counts, or None if it is not affine."""
        return None

    def linearize(
        self, scores: Tensor, y: Tensor, aux: Tensor
    ) -> tuple[Tensor, Callable[[Tensor], tuple[Tensor, Tensor]]]:
        """Return soft statistics (n, n_columns), and the derivatives of their weighted sums.

        The pullback maps weights (n, n_columns) to derivatives by the scores, (n, K), and by the
        extra variables, (n_aux,).
        """
        if self.n_aux:
            soft, pullback = linearized(lambda z, a: self.statistic_at(a).soft(z, y), scores, aux)
            return soft, pullback  # type: ignore[return-value]
        soft, on_scores = self.statistic.linearize(scores, y)
        return soft, lambda weights: (on_scores(weights), torch.zeros_like(aux))

    def init_aux(self, scores: Tensor, rows: Placement) -> Tensor:
        """Return the starting values of the extra variables."""
        return scores.new_zeros(self.n_aux)

    def statistic_at(self, aux: Tensor) -> Statistic:
        """Return the statistic at these extra variables."""
        return self.statistic

    def at_equal_scores(self) -> Self:
        """Return a constraint whose soft values have a gradient where all scores are equal."""
        return self

    def sharpened(self) -> Self:
        """Sharpen the statistic; return the constraint itself if nothing changes."""
        statistic = self.statistic.sharpened()
        return self if statistic == self.statistic else self._with(statistic=statistic)

    def loosened(self, by: float) -> Self:
        """Add to the slack if that helps solvers to start; else return the constraint itself."""
        return self

    def narrowed(self, by: Tensor) -> Self:
        """Subtract `by` (m,) from the slacks; slacks that are not negative stop at zero."""
        # Below zero no two rates are close enough; slacks that are negative already mean something
        # else.
        less = self.slack - by.to(self.slack)
        return self._with(slack=torch.where(self.slack < 0.0, less, less.clamp_min(0.0)))

    def without_rounding(self, hard: Tensor) -> Tensor:
        """Replace hard values by 0 where they differ from 0 only by rounding.

        Gaps of predicted labels stay as users compute them, unless the slack is 0: then sums of
        weights may turn no gap into a tiny one.
        """
        rounds = (self.slack.to(hard) <= 0.0) | (not self.label_based)
        return torch.where(rounds & (hard.abs() <= ROUNDING), 0.0, hard)

    def shifted(self, by: Tensor) -> Self:
        """Subtract `by` (m,) from the slacks, which may become negative."""
        return self._with(slack=self.slack - by.to(self.slack))

    def deviations(self, scores: Tensor, rows: Placement, aux: Tensor) -> Tensor:
        """Estimate standard errors of the hard values on these rows, (m,)."""
        # By the Bayesian bootstrap (Rubin 1981), with the same draws at every point.
        rng, drawn = torch.Generator(device="cpu").manual_seed(0), []
        for _ in range(100):
            factor = torch.empty_like(rows.weight, device="cpu").exponential_(generator=rng)
            reweighted = rows._replace(weight=rows.weight * factor.to(rows.weight.device))
            drawn.append(self.hard_values(scores, reweighted, aux))
        return torch.stack(drawn).std(dim=0)

    def scatter(self, scores: Tensor, rows: Placement) -> Tensor:
        """Return sums over rows from which :meth:`deviations_of` computes standard errors."""
        raise NotImplementedError

    def deviations_of(self, scatter: Tensor) -> Tensor:
        """Return :meth:`deviations` from the :meth:`scatter` of all rows, where it is defined."""
        raise NotImplementedError

    def without_small(
        self, rows: NDArray[np.int64], min_rows: int | str
    ) -> tuple[MomentConstraint, list[str]]:
        """Drop the values of rates that are not compared.

        `rows` (n_classes, n_groups) are numbers of rows, by which :func:`compared_rates` decides.
        Returns the constraint, and a description of each rate that was left out.
        """
        raise NotImplementedError

    def measure(self, values: Tensor) -> float:
        """Return the largest value without its slack, in the criterion's units; nan if empty."""
        return float((values + self.slack.to(values)).max()) if len(values) else float("nan")

    def undefined(self, values: Tensor) -> dict[int, tuple[str, ...]]:
        """Return the names of rates whose comparison is undefined, by the index of its value."""
        return {}

    def split(self, values: Tensor) -> Iterator[tuple[MomentConstraint, Tensor]]:
        """Yield each member with its values."""
        pieces = torch.split(values, [len(member.slack) for member in self.members])
        return zip(self.members, pieces, strict=True)

    def at(self, place: int) -> Self:
        """Return a copy that knows the position of its criterion in a list of criteria."""
        return self._with(place=place)

    def describe(self, j: int) -> str:
        """Return a description of the comparison of value j."""
        raise NotImplementedError

    def _with(self, **attributes: Any) -> Self:
        """Copy the constraint with other attributes."""
        other = copy.copy(self)
        vars(other).update(attributes)
        return other


class Stack(MomentConstraint):
    """Several moment constraints as one constraint on a common table.

    The parts are the coarsest common refinement of the partitions of all members, of which there is
    at least one. Equal statistics are computed once.
    """

    members: tuple[MomentConstraint, ...] = ()

    def __init__(self, space: Space, members: Sequence[MomentConstraint]):
        self.members = tuple(members)
        statistics = tuple(dict.fromkeys(member.statistic for member in members))
        cells = torch.stack([member.partition.part_of_cell.reshape(-1) for member in members])
        parts, part_of_cell = torch.unique(cells, dim=1, return_inverse=True)
        # Cells that no member uses come first, and are in no part of the stack.
        unused = int((parts == -1).all(dim=0).sum())
        parts, part_of_cell = parts[:, unused:], (part_of_cell - unused).clamp_min(-1)
        super().__init__(
            space,
            part_of_cell.reshape(space.shape),
            tables.side_by_side(statistics),
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

    def init_aux(self, scores: Tensor, rows: Placement) -> Tensor:
        each = self._each(rows, scores.new_zeros(self.n_aux))
        return torch.cat([member.init_aux(scores, placed) for member, (placed, _) in each])

    def statistic_at(self, aux: Tensor) -> Statistic:
        if self.n_aux == 0:
            return self.statistic
        pieces = zip(self.members, torch.split(aux, self._aux_sizes), strict=True)
        at = [member.statistic_at(member_aux) for member, member_aux in pieces]
        return tables.side_by_side(tuple(at[i] for i in self._owners))

    def affine(self, counts: Tensor) -> AffineMap | None:
        shape, known, rates = (self.n_parts, self.statistic.n_columns), [], []
        each = self._tables(counts.new_zeros(shape), counts, counts.new_zeros(self.n_aux))
        for member, (_, member_counts, _) in each:
            block = member.affine(member_counts)
            if block is None:
                return None
            known.append(block)
        for block, part, columns in zip(known, self.member_parts, self.member_columns, strict=True):
            # The member's entry for each entry of the table; else its last, with coefficients 0.
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
        """Return the stack of these members, or this stack itself if no member changes."""
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
        places = self.member_parts, self.member_columns, torch.split(aux, self._aux_sizes)
        for member, part, columns, member_aux in zip(self.members, *places, strict=True):
            table = torch.cat((sums[:, columns], counts[:, None]), dim=1)
            table = tables.sum_by(table, part.to(sums.device), member.n_parts + 1)[: member.n_parts]
            yield member, (table[:, :-1], table[:, -1], member_aux)

    def _each(
        self, rows: Placement, aux: Tensor
    ) -> Iterator[tuple[MomentConstraint, tuple[Placement, Tensor]]]:
        """Yield each member with its parts of the rows and its extra variables."""
        sizes = torch.split(aux, self._aux_sizes)
        for member, part, member_aux in zip(self.members, self.member_parts, sizes, strict=True):
            yield member, (rows.in_unions(part, member.n_parts), member_aux)

    def without_small(
        self, rows: NDArray[np.int64], min_rows: int | str
    ) -> tuple[MomentConstraint, list[str]]:
        pairs = [member.without_small(rows, min_rows) for member in self.members]
        remaining = [member for member, _ in pairs if len(member.slack)]
        return stacked(self.space, remaining), [words for _, dropped in pairs for words in dropped]

    def describe(self, j: int) -> str:
        for member in self.members:
            if j < len(member.slack):
                return member.describe(j)
            j -= len(member.slack)
        raise IndexError(f"There are {len(self.slack)} values.")

    def undefined(self, values: Tensor) -> dict[int, tuple[str, ...]]:
        names, first = {}, 0
        for member, piece in self.split(values):
            names.update({first + j: words for j, words in member.undefined(piece).items()})
            first += len(piece)
        return names

    def measure(self, values: Tensor) -> float:
        """Return the measure of the criterion that exceeds its slack most, in its own units."""
        # Values are relative to their slacks, and comparable; measures are in units of their own.
        member, values = max(self.split(values), key=lambda pair: float(pair[1].max()))
        return member.measure(values)


class Unconstrained(MomentConstraint):
    """No constraint: a table without parts, and no values."""

    members = ()
    label_based = difference_of_convex = True

    def __init__(self, space: Space):
        nowhere = torch.full(space.shape, -1)
        super().__init__(space, nowhere, tables.NoColumns(), torch.zeros(0), "no constraint")

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


def stacked(space: Space, members: Sequence[MomentConstraint]) -> MomentConstraint:
    """Join constraints to one; return a single one unchanged, and none as `Unconstrained`."""
    if not members:
        return Unconstrained(space)
    return members[0] if len(members) == 1 else Stack(space, members)


def compared_rates(
    space: Space,
    cells: Any,
    rows: NDArray[np.int64],
    min_rows: int | str,
    gaps: Tensor,
    group_columns: Sequence[tuple[int, ...]] | None = None,
) -> tuple[Compared, NDArray[np.bool_]]:
    """Decide which rates over these cells are compared, and whether each is of a single group.

    `cells` (n_rates, n_cells), a scipy matrix, says how much each cell counts. One row may
    move a rate by the smallest of the `gaps` (m,) that values allow. `group_columns` has for each
    rate the columns whose values define its group, () without a group; by default a group is a
    value of one column.
    """
    cells.sort_indices()
    n_groups, places = len(space.groups) + len(space.partly), []
    # Rates of several classes rest on equal cells: each set of cells is decided once.
    place: dict[tuple[tuple[int, ...] | None, bytes], int] = {}
    family: list[int] = []
    families: dict[tuple[tuple[int, ...], bytes], int] = {}
    for r, (i, j) in enumerate(pairwise(cells.indptr)):
        columns = None if group_columns is None else group_columns[r]
        key = columns, cells.indices[i:j].tobytes() + cells.data[i:j].tobytes()
        if key not in place:
            label, group = np.divmod(cells.indices[i:j], space.shape[1])
            label, group = label[group < n_groups], group[group < n_groups]
            if columns is None:
                columns = (0,) * (len(np.unique(group)) == 1)
            condition = columns, np.unique(label).tobytes()
            number = families.setdefault(condition, len(families))
            family.append(number if columns else -1)
            place[key] = len(place)
        places.append(place[key])
    n = (cells @ rows.reshape(-1))[np.unique(places, return_index=True)[1]]
    gap = float(gaps.min()) if len(gaps) else NEVER_BINDS
    n_rows, least, alone = compared(n[:, None], gap, min_rows, families=family)
    comparison = Compared(n_rows[places, 0], least[places, 0], alone[places, 0])
    return comparison, np.array(family, dtype=int)[places] >= 0
