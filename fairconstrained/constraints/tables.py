"""Rows as constraints see them: cells, parts, statistics of a row, and sums over parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from fairconstrained import losses
from fairconstrained.inputs.groups import group_name
from fairconstrained.numerics import VECTOR_ROWS

# Groups in a description: more would bury the sentence around them.
_MOST_NAMES = 10
OfRows = Callable[[Tensor, Tensor], Tensor]  # scores and labels to values of the rows, (n, k)
Linear = tuple[Tensor, Callable[[Tensor], Tensor]]  # values and their pullback


class Space(NamedTuple):
    """The labels and groups of the training data, in the order of their indices.

    Examples
    --------
    >>> import numpy as np
    >>> from fairconstrained.constraints import Space
    >>> Space(["no", "yes"], ["a", "b"]).describe(np.array([[True, False], [False, False]]))
    'group a, label no'
    """

    classes: Sequence[Any]
    groups: Sequence[Any]
    unknown: int = 0  # indices of rows of unknown group, after those of the groups
    n_control: int = 0  # number of control features, the last of the crossed columns
    weights: Tensor | None = None  # of cells, of :attr:`shape`, if known groups represent labels
    partly: Sequence[Any] = ()  # labels of the first unknown indices: tuples with some None
    columns: Sequence[str] = ()  # names of the crossed columns, if they have any

    @property
    def shape(self) -> tuple[int, int]:
        """Return the number of labels, and of indices of groups, known or not."""
        return len(self.classes), len(self.groups) + self.unknown

    @property
    def crossed(self) -> tuple[int, ...]:
        """Return the positions of the crossed columns that are not control features."""
        first = next(iter(self.labels_of("parallel")), ())
        return tuple(range(len(first) - self.n_control)) if isinstance(first, tuple) else (0,)

    def _standing(self, known: Any) -> Tensor:
        """Return the factor by which rows of `known` groups represent a label, (n_classes, 1)."""
        weights: Any = self.weights
        total, represented = weights.sum(dim=1), weights[:, known].sum(dim=1)
        return torch.where(represented > 0, total / represented, 1.0)[:, None]

    def labels_of(self, attributes: str) -> list[Any]:
        """Return the labels of groups; of parallel attributes, also groups that lack one."""
        return [*self.groups, *(self.partly if attributes == "parallel" else ())]

    def factors_by(self, place: int) -> Any:
        """Return the weights of cells, of :attr:`shape`, by which one attribute is compared.

        Rows in which this attribute is known represent all rows of their label. The weights are
        relative to :meth:`factors`.
        """
        every, labels = np.ones(self.shape), self.labels_of("parallel")
        if self.weights is None:
            return every
        known = [i for i, label in enumerate(labels) if label[place] is not None]
        return every * self._standing(known).numpy() / self.factors().numpy()

    def shares(self, y: Tensor, group: Tensor) -> Tensor:
        """Return shares of rows in groups, (n, n_indices), the last for unknown groups.

        A row of known group represents that many rows of its label, itself included. The last
        column has the rows of unknown group, less the rows represented by others: shares add up to
        one, and sums over all groups equal sums over the rows.
        """
        factor = self.factors().to(y.device)[y, group]
        shares = factor.new_zeros((len(y), self.shape[1]))
        shares.scatter_(1, group[:, None], factor[:, None])
        # The last column loses as much as the known groups gain, so sums over all groups stay.
        shares[:, -1] += 1.0 - factor
        return shares

    def factors(self) -> Tensor:
        """Return the weight of rows of each label and group in constraints, of :attr:`shape`."""
        every = torch.ones(self.shape, dtype=torch.float64)
        if self.weights is not None:
            every[:, : len(self.groups)] *= self._standing(range(len(self.groups)))
        return every

    def describe(self, cells: NDArray[np.bool_], columns: Sequence[int] = ()) -> str:
        """Return a description of the rows in some cells, booleans of :attr:`shape`.

        It names the values of `columns` and of control features, if these tell its groups apart.
        """
        every = self.labels_of("parallel")
        groups: list[int] = np.flatnonzero(cells[:, : len(every)].any(axis=0)).tolist()
        labels: list[int] = np.flatnonzero(cells.any(axis=1)).tolist()
        words = []
        common: list[str] = []
        # Groups crossed from several columns: "all women" is shorter than each combination. An
        # attribute with a single value covers all rows, and is named all the same.
        some = columns or self.partly or len(groups) < len(every)
        if groups and isinstance(every[0], tuple) and some:
            common = self._common(groups, columns)
        if common or not {*range(len(self.groups))} <= {*groups}:
            named = common or list(dict.fromkeys(map(group_name, map(every.__getitem__, groups))))
            if len(named) > _MOST_NAMES:
                named[_MOST_NAMES - 1 :] = [f"{len(named) - _MOST_NAMES + 1} more"]
            words.append("group " + " or ".join(named))
        if len(labels) < len(self.classes):
            words.append("label " + " or ".join(str(self.classes[i]) for i in labels))
        return ", ".join(words) or "all rows"

    def _common(self, groups: list[int], only: Sequence[int]) -> list[str]:
        """Return the values that only these groups share, as one text in a list; empty if none."""
        columns = list(zip(*self.labels_of("parallel"), strict=True))
        members = [{column[i] for i in groups} for column in columns]
        alike = [k for k, values in enumerate(members) if len(values) == 1 and None not in values]
        if only:
            alike = [k for k in alike if k in only or k >= len(self.crossed)]
        values = list(zip(*(columns[k] for k in alike), strict=True))
        same = [i for i, value in enumerate(values) if value == values[groups[0]]]
        return [" & ".join(map(self._value, alike, values[groups[0]]))] if same == groups else []

    def _value(self, place: int, value: Any) -> str:
        """Return the name of a value, with its column if other columns have this value, too."""
        columns = zip(*self.labels_of("parallel"), strict=True)
        shared = any(value in column for k, column in enumerate(columns) if k != place)
        name = group_name(value)
        return f"{self.columns[place]}={name}" if shared and self.columns else name


class Placement(NamedTuple):
    """Label, weight and part of each row, as a constraint sees them.

    :meth:`Partition.place` creates them. A row is in one part, or belongs to parts by
    fractions where its group is known with a probability only.
    """

    y: Tensor  # (n,) class indices
    part: Tensor  # (n,) from 0 to n_parts, which is no part; or (n, n_parts): fractions of rows
    weight: Tensor  # (n,) positive
    n_parts: int

    def take(self, index: Tensor) -> Placement:
        """Select rows by index, in the given order; the index may be on the CPU."""
        index = index.to(self.y.device)
        y, part = self.y.index_select(0, index), self.part.index_select(0, index)
        return Placement(y, part, self.weight.index_select(0, index), self.n_parts)

    def sum(self, columns: Tensor) -> Tensor:
        """Add up weighted columns (n, k) over the rows of each part, (n_parts, k)."""
        weighted = columns * self.weight[:, None]
        if self.part.ndim == 2:
            return self.part.T @ weighted
        return sum_by(weighted, self.part, self.n_parts + 1)[:-1]

    def sums(self, function: OfRows, scores: Tensor) -> Tensor:
        """Compute the table of a function of scores and labels by blocks, (n_parts, k)."""
        table = scores.new_zeros(())
        for z, y, part, weight in blocks_of(scores, *self[:3]):
            table = table + Placement(y, part, weight, self.n_parts).sum(function(z, y))
        return table

    def sums_at(self, columns: Tensor, place: Tensor, n_places: int) -> Tensor:
        """Return :meth:`sum` at each place from 0 to n_places - 1, (n_places, n_parts, k)."""
        weighted = columns * self.weight[:, None]
        if self.part.ndim == 2:
            by_part = (self.part[:, :, None] * weighted[:, None]).flatten(start_dim=1)
            return sum_by(by_part, place, n_places).reshape(n_places, self.n_parts, -1)
        n_parts = self.n_parts + 1
        table = sum_by(weighted, place * n_parts + self.part, n_places * n_parts)
        return table.reshape(n_places, n_parts, -1)[:, :-1]

    def on_columns(self, on_table: Tensor, like: Tensor) -> Tensor:
        """Pull the derivative by :meth:`sum` back to the columns, in the layout of `like`."""
        if self.part.ndim == 2:
            return self.weight[:, None] * (self.part @ on_table)
        padded = F.pad(on_table, (0, 0, 0, 1))  # of rows in no part
        return look_up(padded, self.part, like) * self.weight[:, None]

    def copies(self) -> tuple[Any, Placement]:
        """Return row indices and a placement with a copy of each row for each of its parts."""
        if self.part.ndim == 1:
            return slice(None), self
        row, part = torch.nonzero(self.part, as_tuple=True)
        weight = self.weight[row] * self.part[row, part]
        return row, Placement(self.y[row], part, weight, self.n_parts)

    def counts(self) -> Tensor:
        """Return the weight of each part, (n_parts,)."""
        return self.sum(torch.ones_like(self.weight)[:, None])[:, 0]

    def weights(self) -> Tensor:
        """Return the weight of each row in each part, (n_parts, n)."""
        if self.part.ndim == 2:
            return self.part.T * self.weight
        numbers = torch.arange(self.n_parts, device=self.part.device)[:, None]
        return (self.part == numbers) * self.weight

    def in_unions(self, union: Tensor, n_unions: int) -> Placement:
        """Return the rows placed in unions of parts, (n_parts,); `n_unions` stands for no union."""
        union = union.to(self.part.device)
        if self.part.ndim == 2:
            part = sum_by(self.part.T, union, n_unions + 1)[:-1].T
        else:
            part = torch.cat((union, union.new_full((1,), n_unions)))[self.part]
        return self._replace(part=part, n_parts=n_unions)


@dataclass(frozen=True, eq=False)
class Partition:
    """Parts of the rows, as sets of (label, group) cells."""

    part_of_cell: Tensor  # (n_classes, n_groups), -1 for cells in no part
    space: Space

    @cached_property
    def n_parts(self) -> int:
        """Return the number of parts."""
        return int(self.part_of_cell.max()) + 1 if self.part_of_cell.numel() else 0

    def part(self, y: Tensor, group: Tensor) -> Tensor:
        """Return the part of each row, (n,); -1 for rows in no part."""
        return self.part_of_cell.to(y.device)[y.long(), group.long()]

    def place(self, y: Tensor, group: Tensor, weight: Tensor) -> Placement:
        """Assign each row to its part, which constraints use in place of groups.

        `y` (n,) and `group` (n,) are indices; or fractions (n, n_groups) that add up to one say how
        much of each row belongs to each group.
        """
        # The number after the last part, in place of -1, is an index that sums can drop.
        part_of_cell = self.part_of_cell.to(y.device).remainder(self.n_parts + 1)
        if self.space.weights is not None and group.ndim == 1:
            group = self.space.shares(y, group)
        if group.ndim == 2:
            parts = group.new_zeros((len(y), self.n_parts + 1))
            parts = parts.scatter_add(1, part_of_cell[y], group)[:, :-1]
            # With contiguous columns, sums take a seventh of the time.
            return Placement(y, parts.T.contiguous().T, weight, self.n_parts)
        # One look-up in a flat table is faster than a look-up by two indices.
        cell = torch.add(group, y, alpha=self.part_of_cell.shape[1])
        return Placement(y, part_of_cell.reshape(-1).index_select(0, cell), weight, self.n_parts)

    def cells(self) -> list[NDArray[np.bool_]]:
        """Return the cells of each part, as boolean arrays of shape (n_classes, n_groups)."""
        return [(self.part_of_cell == part).cpu().numpy() for part in range(self.n_parts)]

    def pooled(self, cells: Tensor) -> Tensor:
        """Add up values of cells, (n_cells, ...), over the cells of each part, (n_parts, ...)."""
        n_parts = self.n_parts + 1  # the last one takes cells in no part
        part = self.part_of_cell.to(cells.device).reshape(-1).remainder(n_parts)
        return cells.new_zeros(n_parts, *cells.shape[1:]).index_add(0, part, cells)[:-1]


def blocks_of(*columns: Tensor) -> Sequence[tuple[Tensor, ...]]:
    """Split columns of the same rows into blocks: vectors of all rows are slow to allocate."""
    if len(columns[0]) <= VECTOR_ROWS:
        return [columns]
    return list(zip(*(torch.split(column, VECTOR_ROWS) for column in columns), strict=True))


def sum_by(rows: Tensor, index: Tensor, n_parts: int) -> Tensor:
    """Add up rows with equal index, (n_parts, n_columns)."""
    # Following the layout in memory takes at most half the time.
    if rows.stride(0) == 1:
        return rows.new_zeros((rows.shape[1], n_parts)).index_add(1, index, rows.T).T
    return rows.new_zeros((n_parts, rows.shape[1])).index_add(0, index, rows)


def look_up(table: Tensor, index: Tensor, like: Tensor) -> Tensor:
    """Select rows of a table by index, (n, n_columns), with the memory layout of `like`."""
    if like.stride(0) == 1:
        return table.T.contiguous().gather(1, index.expand(table.shape[1], -1)).T
    return table.index_select(0, index)


class Statistic:
    """Base of statistics of a row, functions of its scores and its label.

    A subclass has ``n_columns`` and :meth:`soft`. To be released privately it has ``widths``: the
    numbers of neighbouring columns that are not negative and add up to one for every row, and 1 for
    a column from 0 to 1 by itself.
    """

    n_columns: int

    @property
    def widths(self) -> tuple[int, ...]:
        """Return no widths by default: nothing bounds the columns, so no table is released."""
        return ()

    def soft(self, scores: Tensor, y: Tensor) -> Tensor:
        """Return differentiable values, (n, n_columns)."""
        raise NotImplementedError

    def linearize(self, scores: Tensor, y: Tensor) -> Linear:
        """Return `soft`, and the map from weights (n, n_columns) to derivatives by the scores."""
        soft, pullback = losses.linearized(lambda z: self.soft(z, y), scores)
        return soft, lambda weights: pullback(weights)[0]

    def sums(self, scores: Tensor, rows: Placement) -> Tensor:
        """Return the table of `soft`, (n_parts, n_columns)."""
        return rows.sums(self.soft, scores)

    def hard(self, scores: Tensor, y: Tensor) -> Tensor:
        """Return values as users measure them on predicted labels, (n, n_columns)."""
        return self.soft(scores, y)

    def predicted(self, table: Tensor, counts: Tensor) -> Tensor:
        """Return counts by predicted label from a hard, maybe noisy, table; empty if unknown."""
        return table[:, :0]

    def sharpened(self) -> Statistic:
        """Return the statistic with soft values closer to the hard ones, if possible."""
        return self


class Fractions(Statistic):
    """Base of statistics whose columns are not negative and add up to one for every row."""

    @property
    def widths(self) -> tuple[int, ...]:
        return (self.n_columns,)


@dataclass(frozen=True)
class ClassProbabilities(Fractions):
    """Tempered class probabilities; hard values are the one-hot predicted class."""

    n_columns: int
    temperature: float = 1.0

    def soft(self, scores: Tensor, y: Tensor) -> Tensor:
        return losses.class_probabilities(scores, self.temperature)

    def linearize(self, scores: Tensor, y: Tensor) -> Linear:
        p = self.soft(scores, y)
        return p, partial(losses.through_probabilities, p, temperature=self.temperature)

    def hard(self, scores: Tensor, y: Tensor) -> Tensor:
        classes = torch.arange(self.n_columns, device=scores.device)
        return (losses.hard_classes(scores) == classes[:, None]).T.to(scores.dtype)

    def predicted(self, table: Tensor, counts: Tensor) -> Tensor:
        return table

    def sharpened(self) -> ClassProbabilities:
        return replace(self, temperature=2.0 * self.temperature)


@dataclass(frozen=True)
class Losses(Statistic):
    """The loss of a row, whose soft and hard values are the same."""

    loss: losses.Loss
    n_columns = 1

    def soft(self, scores: Tensor, y: Tensor) -> Tensor:
        return self.loss(scores, y)[:, None]

    def linearize(self, scores: Tensor, y: Tensor) -> Linear:
        return self.soft(scores, y), lambda weights: weights * self.loss.gradient(scores, y)


class NoColumns(Statistic):
    """A statistic without columns, where there is no constraint."""

    n_columns = 0

    def soft(self, scores: Tensor, y: Tensor) -> Tensor:
        return scores[:, :0]

    hard = soft

    def linearize(self, scores: Tensor, y: Tensor) -> Linear:
        return scores[:, :0], partial(torch.matmul, other=scores.new_zeros(0, scores.shape[1]))


@dataclass(frozen=True)
class Columns(Statistic):
    """Several statistics side by side."""

    members: tuple[Statistic, ...]

    @property
    def n_columns(self) -> int:  # type: ignore[override]
        """Number of columns of all members."""
        return sum(member.n_columns for member in self.members)

    @property
    def widths(self) -> tuple[int, ...]:
        return tuple(width for member in self.members for width in member.widths)

    def soft(self, scores: Tensor, y: Tensor) -> Tensor:
        return _side_by_side(scores, [member.soft(scores, y) for member in self.members])

    def linearize(self, scores: Tensor, y: Tensor) -> Linear:
        terms = [member.linearize(scores, y) for member in self.members]
        widths = [member.n_columns for member in self.members]

        def pullback(weights: Tensor) -> Tensor:
            pieces = zip(terms, torch.split(weights, widths, dim=1), strict=True)
            return sum((pull(piece) for (_, pull), piece in pieces), torch.zeros_like(scores))

        return _side_by_side(scores, [soft for soft, _ in terms]), pullback

    def sums(self, scores: Tensor, rows: Placement) -> Tensor:
        none = scores.new_zeros((rows.n_parts, 0))
        return torch.cat([none, *(member.sums(scores, rows) for member in self.members)], dim=1)

    def hard(self, scores: Tensor, y: Tensor) -> Tensor:
        return _side_by_side(scores, [member.hard(scores, y) for member in self.members])

    def predicted(self, table: Tensor, counts: Tensor) -> Tensor:
        """Return counts by predicted label from the first member whose columns show them."""
        tables = torch.split(table, [member.n_columns for member in self.members], dim=1)
        pairs = zip(self.members, tables, strict=True)
        labels = (member.predicted(columns, counts) for member, columns in pairs)
        return next((numbers for numbers in labels if numbers.numel()), table[:, :0])

    def sharpened(self) -> Columns:
        return Columns(tuple(member.sharpened() for member in self.members))


def side_by_side(statistics: tuple[Statistic, ...]) -> Statistic:
    """Join several statistics into one; return a single one unchanged, which saves copies."""
    return statistics[0] if len(statistics) == 1 else Columns(statistics)


def _side_by_side(scores: Tensor, blocks: Sequence[Tensor]) -> Tensor:
    """Join blocks of columns, (n, n_columns), with columns contiguous in memory."""
    return torch.cat([scores.new_zeros((0, len(scores))), *(block.T for block in blocks)]).T
