"""Statistics of a row: functions of its scores and its label."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf

import torch
from torch import Tensor

from fairconstrained.constraints.placement import Placement
from fairconstrained.losses import (
    Loss,
    class_probabilities,
    hard_classes,
    linearized,
    through_probabilities,
)

Linear = tuple[Tensor, Callable[[Tensor], Tensor]]  # values and their pullback


class Statistic:
    """Base of statistics of a row, functions of its scores and its label.

    A subclass has ``n_columns`` and implements :meth:`soft`. By default its hard values are the
    soft ones, it cannot be sharpened, and derivatives come from autograd. A statistic that may be
    released privately has ``widths``: the numbers of neighbouring columns that are not negative and
    add up to one for every row, and 1 for a column from 0 to 1 by itself. Others have none.
    """

    n_columns: int

    @property
    def widths(self) -> tuple[int, ...]:
        """Empty: nothing is known about the columns, and no table of them is released."""
        return ()

    @property
    def bound(self) -> float:
        """Largest l1 norm of a row's statistics: the sensitivity of the table to one row."""
        return float(len(self.widths)) if sum(self.widths) == self.n_columns else inf

    def soft(self, scores: Tensor, y: Tensor) -> Tensor:
        """Differentiable values, (n, n_columns)."""
        raise NotImplementedError

    def linearize(self, scores: Tensor, y: Tensor) -> Linear:
        """`soft`, and the map from weights (n, n_columns) to derivatives by the scores."""
        soft, pullback = linearized(lambda z: self.soft(z, y), scores)
        return soft, lambda weights: pullback(weights)[0]

    def sums(self, scores: Tensor, rows: Placement) -> Tensor:
        """The table of `soft`, (n_parts, n_columns)."""
        return rows.sums(self.soft, scores)

    def hard(self, scores: Tensor, y: Tensor) -> Tensor:
        """Values as users measure them on predicted labels, (n, n_columns)."""
        return self.soft(scores, y)

    def sharpened(self) -> Statistic:
        """The statistic with soft values closer to the hard ones, if possible."""
        return self


@dataclass(frozen=True)
class ClassProbabilities(Statistic):
    """Tempered class probabilities; hard values are the one-hot predicted class."""

    n_columns: int
    temperature: float = 1.0

    @property
    def widths(self) -> tuple[int, ...]:
        """All columns together."""
        return (self.n_columns,)

    def soft(self, scores: Tensor, y: Tensor) -> Tensor:
        """Class probabilities."""
        return class_probabilities(scores, self.temperature)

    def linearize(self, scores: Tensor, y: Tensor) -> Linear:
        """In closed form."""
        p = self.soft(scores, y)
        return p, lambda weights: through_probabilities(p, weights, self.temperature)

    def hard(self, scores: Tensor, y: Tensor) -> Tensor:
        """One-hot predictions."""
        classes = torch.arange(self.n_columns, device=scores.device)
        return (hard_classes(scores) == classes[:, None]).T.to(scores.dtype)

    def sharpened(self) -> ClassProbabilities:
        """Twice the temperature."""
        return replace(self, temperature=2.0 * self.temperature)


@dataclass(frozen=True)
class Losses(Statistic):
    """The loss of a row, whose soft and hard values are the same."""

    loss: Loss
    n_columns = 1

    def soft(self, scores: Tensor, y: Tensor) -> Tensor:
        """The loss as one column."""
        return self.loss(scores, y)[:, None]

    def linearize(self, scores: Tensor, y: Tensor) -> Linear:
        """In closed form."""
        return self.soft(scores, y), lambda weights: weights * self.loss.gradient(scores, y)


class NoColumns(Statistic):
    """Nothing, where there is no constraint."""

    n_columns = 0

    def soft(self, scores: Tensor, y: Tensor) -> Tensor:
        """No values, (n, 0)."""
        return scores[:, :0]

    def linearize(self, scores: Tensor, y: Tensor) -> Linear:
        """Zeros."""
        return scores[:, :0], lambda weights: torch.zeros_like(scores)


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
        """Widths of all members."""
        return tuple(width for member in self.members for width in member.widths)

    def soft(self, scores: Tensor, y: Tensor) -> Tensor:
        """Soft values of all members, side by side."""
        return _side_by_side(scores, [member.soft(scores, y) for member in self.members])

    def linearize(self, scores: Tensor, y: Tensor) -> Linear:
        """Sum of the derivatives of all members."""
        terms = [member.linearize(scores, y) for member in self.members]
        widths = [member.n_columns for member in self.members]

        def pullback(weights: Tensor) -> Tensor:
            pieces = zip(terms, torch.split(weights, widths, dim=1), strict=True)
            return sum((own(piece) for (_, own), piece in pieces), torch.zeros_like(scores))

        return _side_by_side(scores, [soft for soft, _ in terms]), pullback

    def sums(self, scores: Tensor, rows: Placement) -> Tensor:
        """Tables of all members, side by side."""
        none = scores.new_zeros((rows.n_parts, 0))
        return torch.cat([none, *(member.sums(scores, rows) for member in self.members)], dim=1)

    def hard(self, scores: Tensor, y: Tensor) -> Tensor:
        """Hard values of all members, side by side."""
        return _side_by_side(scores, [member.hard(scores, y) for member in self.members])

    def sharpened(self) -> Columns:
        """All members sharpened."""
        return Columns(tuple(member.sharpened() for member in self.members))


def side_by_side(statistics: tuple[Statistic, ...]) -> Statistic:
    """Several statistics as one. A single one is returned as it is, which saves copies."""
    return statistics[0] if len(statistics) == 1 else Columns(statistics)


def _side_by_side(scores: Tensor, blocks: Sequence[Tensor]) -> Tensor:
    """Join blocks of columns, (n, n_columns), with columns contiguous in memory."""
    none = scores.new_zeros((0, len(scores)))
    return torch.cat([none, *(block.T for block in blocks)]).T
