"""Histograms that are smooth functions of the scores, as fast as hard histograms."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fairconstrained.constraints.placement import Placement
from fairconstrained.constraints.statistics import Statistic


@dataclass(frozen=True)
class SplineBins(Statistic):
    r"""Weights of a row in `n_columns` bins: cubic B-splines of its squashed score.

    The score is squashed to :math:`\tilde z = z / \sqrt{1 + (z / r)^2}` with the reach :math:`r`.
    Knots are equally spaced on [-r, r]. A row at the relative position t between two knots has the
    weights

    .. math::

        \tfrac16 (1 - t)^3, \quad \tfrac23 - t^2 + \tfrac12 t^3, \quad
        \tfrac16 + \tfrac12 (t + t^2 - t^3), \quad \tfrac16 t^3

    in the four bins around it (there are three more bins than intervals). They add up to 1, and
    their second derivatives are continuous, as Newton steps and L-BFGS require. Only four weights
    of a row are nonzero, so the cost of a table hardly depends on the number of bins.

    Squashing gives scores near zero a fine resolution and every score a slope. The scores of a
    logistic model are log odds, few of which lie beyond 8, but features with heavy tails give some.
    """

    n_columns: int
    reach: float = 8.0

    @property
    def widths(self) -> tuple[int, ...]:
        """All columns together."""
        return (self.n_columns,)

    def soft(self, scores: Tensor, y: Tensor) -> Tensor:
        """Weights of each row in the bins."""
        rows = torch.arange(len(scores), device=scores.device)
        return self._table(scores, torch.ones_like(scores[:, 0]), rows, len(scores))

    def sums(self, scores: Tensor, rows: Placement) -> Tensor:
        """The table of `soft`, by four additions for each row."""
        if rows.part.ndim == 2:
            return super().sums(scores, rows)
        return self._table(scores, rows.weight, rows.part, rows.n_parts + 1)[:-1]

    def _table(self, scores: Tensor, weight: Tensor, index: Tensor, n_rows: int) -> Tensor:
        """Weighted sums of `soft` over rows of equal index, (n_rows, n_columns)."""
        table: Tensor = _Table.apply(  # type: ignore[no-untyped-call]
            self._place(scores), weight, index, (n_rows, self.n_columns)
        )
        return table

    def hard(self, scores: Tensor, y: Tensor) -> Tensor:
        """One-hot indicator of one of the two bins with the largest weights."""
        bins = 1 + _interval(self._place(scores), self.n_columns)
        columns = torch.arange(self.n_columns, device=scores.device)
        return (columns[:, None] == bins).T.to(scores.dtype)

    def sharpened(self) -> SplineBins:
        """Histograms with twice as many knots."""
        return replace(self, n_columns=2 * self.n_columns - 3)

    def _place(self, scores: Tensor) -> Tensor:
        """Squashed scores, (n,), as distances from the first knot in units of the spacing."""
        z = scores[:, 0] / self.reach
        return 0.5 * (self.n_columns - 3) * (z * (1.0 + z**2).rsqrt() + 1.0)


class _Table(torch.autograd.Function):
    """Sums of cubic B-splines over rows of equal index, and derivatives by their positions."""

    @staticmethod
    def forward(
        ctx: Any, place: Tensor, weight: Tensor, index: Tensor, shape: tuple[int, int]
    ) -> Tensor:
        """Fill the flattened table, in which the rows are contiguous."""
        n_parts, n_columns = shape
        interval = _interval(place, n_columns)
        t = place - interval
        rest, square, sixth = 1.0 - t, t * t, weight / 6.0
        first, last = sixth * rest * rest * rest, sixth * square * t
        second = weight * (2.0 / 3.0 + (0.5 * t - 1.0) * square)
        at = index * n_columns + interval
        table = place.new_zeros(n_parts * n_columns)
        for column, of_bin in enumerate((first, second, weight - first - second - last, last)):
            table[column:].index_add_(0, at, of_bin)
        ctx.save_for_backward(at, t, weight)
        return table.reshape(shape)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        """Quadratic splines of the differences between neighbouring columns."""
        at, t, weight = ctx.saved_tensors
        difference = torch.diff(gradient.reshape(-1))
        first, second, third = (difference[column:].index_select(0, at) for column in range(3))
        # Horner's scheme in t
        bend = 0.5 * t * (first - 2.0 * second + third) + (second - first)
        return weight * (0.5 * (first + second) + t * bend), None, None, None


def _interval(place: Tensor, n_columns: int) -> Tensor:
    """Index of the interval between knots; the ends belong to the outermost intervals."""
    return place.long().clamp(0, n_columns - 4)
