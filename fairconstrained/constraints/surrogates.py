r"""Smooth surrogates of the probability that a row of one part does not rank above one of another.

Each is a function of the means of a statistic of the scores in both parts. It therefore needs no
pairs, and its cost is linear in the number of rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import torch
from torch import Tensor

from fairconstrained.constraints.tables import Fractions, Placement, Statistic
from fairconstrained.numerics import NEGLIGIBLE


@dataclass(frozen=True)
class ScoreMoments(Statistic):
    """The score and its square, soft and hard, because true AUCs are measured by sorting."""

    n_columns = 2

    def soft(self, scores: Tensor, y: Tensor) -> Tensor:
        return torch.cat((scores, scores**2), dim=1)


@dataclass(frozen=True)
class SplineBins(Fractions):
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

    With squashing, scores near zero have a fine resolution and every score has a slope: features
    with heavy tails lead to some log odds beyond 8.
    """

    n_columns: int
    reach: float = 8.0

    def soft(self, scores: Tensor, y: Tensor) -> Tensor:
        rows = torch.arange(len(scores), device=scores.device)
        return self._table(scores, torch.ones_like(scores[:, 0]), rows, len(scores))

    def sums(self, scores: Tensor, rows: Placement) -> Tensor:
        """Compute the table of `soft`, with four additions for each row."""
        if rows.part.ndim == 2:
            return super().sums(scores, rows)
        return self._table(scores, rows.weight, rows.part, rows.n_parts + 1)[:-1]

    def _table(self, scores: Tensor, weight: Tensor, index: Tensor, n_rows: int) -> Tensor:
        """Add up weighted `soft` over rows of equal index, (n_rows, n_columns)."""
        shape, place = (n_rows, self.n_columns), self._place(scores)
        table: Tensor = _Table.apply(place, weight, index, shape)  # type: ignore[no-untyped-call]
        return table

    def hard(self, scores: Tensor, y: Tensor) -> Tensor:
        """Return one-hot rows, with 1 for one of the two bins of largest weight."""
        bins = 1 + _interval(self._place(scores), self.n_columns)
        columns = torch.arange(self.n_columns, device=scores.device)
        return (columns[:, None] == bins).T.to(scores.dtype)

    def sharpened(self) -> SplineBins:
        # There are three more bins than intervals, whose number doubles.
        return replace(self, n_columns=2 * self.n_columns - 3)

    def _place(self, scores: Tensor) -> Tensor:
        """Squash scores, (n,), to distances from the first knot in units of the spacing."""
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
        for column, bin_weight in enumerate((first, second, weight - first - second - last, last)):
            table[column:].index_add_(0, at, bin_weight)
        ctx.save_for_backward(at, t, weight)
        return table.reshape(shape)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        """Evaluate quadratic splines of the differences between neighbouring columns."""
        at, t, weight = ctx.saved_tensors
        difference = torch.diff(gradient.reshape(-1))
        first, second, third = (difference[column:].index_select(0, at) for column in range(3))
        # Horner's scheme in t
        bend = 0.5 * t * (first - 2.0 * second + third) + (second - first)
        return weight * (0.5 * (first + second) + t * bend), None, None, None


def _interval(place: Tensor, n_columns: int) -> Tensor:
    """Return the index of the interval between knots; ends belong to the outermost intervals."""
    return place.long().clamp(0, n_columns - 4)


class Surrogate:
    """An estimate of P(z <= z') for rows of two parts from the means of both."""

    #: Whether a linear model needs only means and covariances of the features.
    uses_score_moments = True

    @property
    def statistic(self) -> Statistic:
        """Return the statistic of the scores whose means are taken."""
        return ScoreMoments()

    def loss(self, first: Tensor, second: Tensor) -> Tensor:
        """Estimate the probability from the means (..., n_columns) of each part, (...)."""
        raise NotImplementedError


@dataclass(frozen=True)
class Quadratic(Surrogate):
    r"""The mean of :math:`c_1 (z - z' - c_2)^2` over all pairs (AUC-fairness paper, Section 3).

    .. math:: c_1 \big( \sigma^2 + \sigma'^2 + (\mu - \mu' - c_2)^2 \big)

    Constant scores have the loss :math:`c_1 c_2^2`. If it exceeds 1/2, they are infeasible for
    slack 0 (Lemma 2).

    Examples
    --------
    >>> from fairconstrained.constraints import Quadratic
    >>> Quadratic(c1=0.25).c2
    1.0
    """

    c1: float = 0.5
    c2: float = 1.0

    def loss(self, first: Tensor, second: Tensor) -> Tensor:
        """Return the mean over all pairs, from the means of (z, z^2)."""
        margin = first[..., 0] - second[..., 0] - self.c2
        return self.c1 * (_variance(first) + _variance(second) + margin**2)

    def form(self, first: Tensor, second: Tensor) -> Tensor:
        r"""Return the matrix F for which (w, 1)' F (w, 1) / 2 is the loss of scores x'w.

        Arguments are the means of :math:`(x, 1)(x, 1)'` over each part, (..., p + 1, p + 1).
        """
        mean, other = first[..., :-1, -1], second[..., :-1, -1]
        cross = mean[..., :, None] * other[..., None, :]
        form = first + second
        form[..., :-1, :-1] -= cross + cross.mT
        form[..., :-1, -1] = form[..., -1, :-1] = self.c2 * (other - mean)
        form[..., -1, -1] = self.c2**2
        return 2.0 * self.c1 * form


@dataclass(frozen=True)
class Binormal(Surrogate):
    r"""The exact probability for normal scores in both parts.

    .. math:: \Phi\Big( \frac{\mu' - \mu}{\sqrt{\sigma^2 + \sigma'^2}} \Big)

    Examples
    --------
    >>> import torch
    >>> from fairconstrained.constraints import Binormal
    >>> first, second = torch.tensor([1.0, 2.0]), torch.tensor([0.0, 1.0])  # means of (z, z^2)
    >>> Binormal().loss(first, second)
    tensor(0.2398)
    """

    def loss(self, first: Tensor, second: Tensor) -> Tensor:
        spread = (_variance(first) + _variance(second) + NEGLIGIBLE).sqrt()
        below: Tensor = torch.special.ndtr((second[..., 0] - first[..., 0]) / spread)
        return below


@dataclass(frozen=True)
class SoftBins(Surrogate):
    """Pairs counted in smooth bins of the score, where rows of the same bin count one half.

    It tends to the true probability as the number of bins grows. The cost hardly depends on the
    number of bins. Fewer bins smooth more: 64 bins rank test samples better than 256.

    Parameters
    ----------
    n_bins : int, default=64
        At least 4.
    reach : float, default=8.0
        Half of the bins are for scores of at most 0.58 `reach`; see `SplineBins`.

    Examples
    --------
    >>> from fairconstrained.constraints import SoftBins
    >>> SoftBins(n_bins=20).n_bins
    20
    """

    n_bins: int = 64
    reach: float = 8.0
    uses_score_moments = False

    def __post_init__(self) -> None:
        if self.n_bins < 4 or not 0 < self.reach < inf:
            raise ValueError(
                f"SoftBins needs four bins or more and a finite reach > 0; got {self!r}."
            )

    @property
    def statistic(self) -> Statistic:
        return SplineBins(self.n_bins, self.reach)

    def loss(self, first: Tensor, second: Tensor) -> Tensor:
        not_below = second.flip(-1).cumsum(-1).flip(-1) - 0.5 * second
        below: Tensor = torch.einsum("...c,...c->...", first, not_below)
        return below


SURROGATES: Mapping[str, Surrogate] = {
    "binormal": Binormal(),
    "quadratic": Quadratic(),
    "soft_bins": SoftBins(),
}


def _variance(means: Tensor) -> Tensor:
    return (means[..., 1] - means[..., 0] ** 2).clamp_min(0.0)
