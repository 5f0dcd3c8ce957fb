r"""Smooth surrogates of the probability that a row of one part does not rank above one of another.

Each is a function of the means of a statistic of the scores in both parts. It therefore needs no
pairs, and its cost is linear in the number of rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor

from fairconstrained.constraints.spline_bins import SplineBins
from fairconstrained.constraints.statistics import Statistic

_SPREAD = 1e-9  # added to variances, since constant scores would give 0 / 0


@dataclass(frozen=True)
class ScoreMoments(Statistic):
    """The score and its square, soft and hard, because true AUCs are measured by sorting."""

    n_columns = 2

    def soft(self, scores: Tensor, y: Tensor) -> Tensor:
        """(z, z^2)."""
        return torch.cat((scores, scores**2), dim=1)


class Surrogate:
    """An estimate of P(z <= z') for rows of two parts from the means of both."""

    #: Whether a linear model needs only means and covariances of the features.
    of_score_moments = True

    @property
    def statistic(self) -> Statistic:
        """The statistic of the scores whose means are taken."""
        return ScoreMoments()

    def loss(self, first: Tensor, second: Tensor) -> Tensor:
        """Estimate from the means (..., n_columns) of each part, (...)."""
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
        """The mean over all pairs, from the means of (z, z^2)."""
        margin = first[..., 0] - second[..., 0] - self.c2
        return self.c1 * (_variance(first) + _variance(second) + margin**2)

    def form(self, first: Tensor, second: Tensor) -> Tensor:
        r"""The matrix F for which (w, 1)' F (w, 1) / 2 is the loss of scores x'w.

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
        """The probability, from the means of (z, z^2)."""
        spread = (_variance(first) + _variance(second) + _SPREAD).sqrt()
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
    of_score_moments = False

    def __post_init__(self) -> None:
        if self.n_bins < 4 or not 0 < self.reach < inf:
            raise ValueError(
                f"SoftBins needs four bins or more and a finite reach > 0; got {self!r}."
            )

    @property
    def statistic(self) -> Statistic:
        """Weights of a row in the bins."""
        return SplineBins(self.n_bins, self.reach)

    def loss(self, first: Tensor, second: Tensor) -> Tensor:
        """The probability, from the two histograms."""
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
