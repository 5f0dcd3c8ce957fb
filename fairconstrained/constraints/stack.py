"""Several constraints as one, on one table."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from typing import Self

import numpy as np
import torch
from torch import Tensor

from fairconstrained.constraints.moments import BoundConstraint, MomentConstraint
from fairconstrained.constraints.space import Space
from fairconstrained.constraints.statistics import side_by_side, sum_by

__all__ = ["Stack"]


class Stack(MomentConstraint):
    """Several moment constraints as one: one table serves them all.

    The parts are the coarsest partition that refines every member's; equal statistics are
    measured once.

    Parameters
    ----------
    space : Space
    members : sequence of BoundConstraint
        None at all leaves the problem unconstrained.

    Examples
    --------
    >>> from fairconstrained.constraints import DemographicParity, FalseNegativeRate, Space, Stack
    >>> space = Space([0, 1], ["a", "b"])
    >>> notions = DemographicParity(), FalseNegativeRate(max=0.3)
    >>> stack = Stack(space, [notion.bind(space, 0.1, 1.0) for notion in notions])
    >>> [member.name for member in stack.members], stack.n_parts
    (['demographic_parity', 'false_negative_rate'], 4)
    """

    def __init__(self, space: Space, members: Sequence[BoundConstraint]):
        self.space = space
        self.members = tuple(members)
        self.is_linear = all(member.is_linear for member in members)
        statistics = tuple(dict.fromkeys(member.statistic for member in members))
        nowhere = torch.full((1, space.n_cells), -1)
        cells = torch.cat((nowhere, *(member.part_of_cell.reshape(1, -1) for member in members)))
        parts, part_of_cell = torch.unique(cells, dim=1, return_inverse=True)
        # Cells that no member uses sort first; they are no part of the stack's either.
        unused = int((parts == -1).all(dim=0).sum())
        parts, part_of_cell = parts[:, unused:], (part_of_cell - unused).clamp_min(-1)
        super().__init__(
            part_of_cell.reshape(len(space.classes), len(space.groups)),
            side_by_side(statistics),
            sum(member.n_aux for member in members),
        )
        # The last bin takes the parts that a member does not use.
        self.member_bins = [
            own.remainder(member.n_parts + 1)
            for own, member in zip(parts[1:], members, strict=True)
        ]
        own = [member.statistic for member in members]
        self._owners = [own.index(statistic) for statistic in statistics]
        starts = np.cumsum([0, *(statistic.n_columns for statistic in statistics)])
        self.member_columns = [slice(starts[i], starts[i + 1]) for i in map(statistics.index, own)]

    @property
    def slack(self) -> Tensor:
        """All members' slacks, (m,)."""
        return torch.cat([torch.zeros(0).double(), *(member.slack for member in self.members)])

    def used_parts(self) -> Tensor:
        """Whether any member uses each part: cells that none does are a part, too."""
        used = torch.zeros(self.n_parts, dtype=torch.bool)
        for member, bins in zip(self.members, self.member_bins, strict=True):
            used |= bins.cpu() < member.n_parts
        return used

    def init_aux(self, scores: Tensor, y: Tensor, group: Tensor) -> Tensor:
        """All members' extra variables."""
        pieces = [member.init_aux(scores, y, group) for member in self.members]
        return torch.cat([scores.new_zeros(0), *pieces])

    def at(self, aux: Tensor) -> Self:
        """The stack with the members' extra variables in their statistics."""
        if self.n_aux == 0:
            return self
        members = [member.at(own_aux) for member, own_aux in self._with_aux(aux)]
        bound = copy.copy(self)
        bound.statistic = side_by_side(tuple(members[i].statistic for i in self._owners))
        return bound

    def sharpened(self) -> Self:
        """The stack with all members sharpened."""
        return self._of([member.sharpened() for member in self.members])

    def loosened(self, by: float) -> Self:
        """The stack with the slacks of those members loosened that ask for it."""
        return self._of([member.loosened(by) for member in self.members])

    def _of(self, members: Sequence[BoundConstraint]) -> Self:
        """Of these members; itself if they are its own."""
        if all(other is own for other, own in zip(members, self.members, strict=True)):
            return self
        return type(self)(self.space, members)

    def of_moments(self, sums: Tensor, counts: Tensor, aux: Tensor) -> Tensor:
        """All members' values, one after the other."""
        values = [member.of_moments(*own) for member, own in self._tables(sums, counts, aux)]
        return torch.cat([sums.new_zeros(0), *values])

    def hard_of_moments(self, sums: Tensor, counts: Tensor, aux: Tensor) -> Tensor:
        """All members' values, each as it measures them from a table."""
        values = [member.hard_of_moments(*own) for member, own in self._tables(sums, counts, aux)]
        return torch.cat([sums.new_zeros(0), *values])

    def _tables(
        self, sums: Tensor, counts: Tensor, aux: Tensor
    ) -> Iterator[tuple[BoundConstraint, tuple[Tensor, Tensor, Tensor]]]:
        """Each member with its own table, counts and extra variables."""
        tables = zip(self._with_aux(aux), self.member_bins, self.member_columns, strict=True)
        for (member, own_aux), bins, columns in tables:
            table = torch.cat((sums[:, columns], counts[:, None]), dim=1)
            own = sum_by(table, bins.to(sums.device), member.n_parts + 1)[: member.n_parts]
            yield member, (own[:, :-1], own[:, -1], own_aux)

    def hard_values(
        self, scores: Tensor, y: Tensor, group: Tensor, weight: Tensor, aux: Tensor
    ) -> Tensor:
        """All members' values, each as it measures them."""
        values = [
            member.hard_values(scores, y, group, weight, own_aux)
            for member, own_aux in self._with_aux(aux)
        ]
        return torch.cat([scores.new_zeros(0), *values])

    def convex_parts(
        self, scores: Tensor, y: Tensor, group: Tensor, weight: Tensor, aux: Tensor
    ) -> Tensor:
        """All members' convex parts, (2, m)."""
        parts = [
            member.convex_parts(scores, y, group, weight, own_aux)
            for member, own_aux in self._with_aux(aux)
        ]
        return torch.cat([scores.new_zeros((2, 0)), *parts], dim=1)

    @property
    def difference_of_convex(self) -> bool:  # type: ignore[override]
        """Whether all members are."""
        return all(member.difference_of_convex for member in self.members)

    @property
    def moving(self) -> bool:  # type: ignore[override]
        """Whether the only member is."""
        return len(self.members) == 1 and self.members[0].moving

    @property
    def offsets_matter(self) -> bool:  # type: ignore[override]
        """Whether they do to any member, or to the objective alone."""
        return not self.members or any(member.offsets_matter for member in self.members)

    def _with_aux(self, aux: Tensor) -> Iterable[tuple[BoundConstraint, Tensor]]:
        pieces = torch.split(aux, [member.n_aux for member in self.members])
        return zip(self.members, pieces, strict=True)

    def split(self, values: Tensor) -> list[Tensor]:
        """Each member's share of the values."""
        return list(torch.split(values, [len(member.slack) for member in self.members]))

    def measures(self, values: Tensor) -> dict[str, float]:
        """Each notion in its own units, by name; numbered where a name occurs twice."""
        names = [member.name for member in self.members]
        keys = [f"{n}_{i}" if names.count(n) > 1 else n for i, n in enumerate(names)]
        shares = zip(keys, self.members, self.split(values), strict=True)
        return {key: member.measure(share) for key, member, share in shares}

    def worst_measure(self, values: Tensor) -> float:
        """The notion that exceeds its slack the most, in its own units; nan if there is none."""
        if not self.members:
            return float("nan")
        shares = zip(self.members, self.split(values), strict=True)
        member, share = max(shares, key=lambda pair: float(pair[1].max()))
        return member.measure(share)
