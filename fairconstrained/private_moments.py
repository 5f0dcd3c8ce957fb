r"""Group moments released with noise: all that a private linear ranking needs to see of the rows.

Three Gaussian releases, each of all rows: the columns' sum, from which a centre :math:`c` follows;
a histogram of the rows' distances from it, from which the length :math:`C` follows that few rows
exceed; and, of the rows :math:`u = (x - c) / \max(C, |x - c|)`, for every (label, group) cell

.. math:: \Big( \sqrt{s_0}\, N, \; \sqrt{s_1} \sum u, \; \sqrt{s_2} \sum u u' \Big)
          + \text{noise} , \qquad s_0 + s_1 + s_2 = 1 .

A row is in one cell and :math:`|u| \le 1`, so that adding or removing it moves each of the three
by at most 1 in the l2 norm. Whatever is computed from them later costs nothing.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from fairconstrained.constraints import Stack
from fairconstrained.constraints.surrogates import Binormal, Quadratic
from fairconstrained.features import Features, as_features
from fairconstrained.models.base import clip_factors
from fairconstrained.objectives import PairwiseLoss
from fairconstrained.privacy import (
    Gaussian,
    Phase,
    PrivacyGuarantee,
    one_off_gaussian,
    privacy_guarantee,
)
from fairconstrained.privacy.mechanisms import with_gaussian_noise
from fairconstrained.problem import Batch, Evaluation
from fairconstrained.ranking_problems import GroupMoments, MomentERM, whitened_model

__all__ = [
    "MomentPlan",
    "PrivateMomentERM",
    "Released",
    "clipped",
    "distances",
    "plan_moments",
    "release",
    "statistics",
]

# Of the budget; 1 % is left because the accountant rounds up.
_CENTRE_SHARE, _LENGTHS_SHARE, _MOMENTS_SHARE = 0.03, 0.02, 0.94
_PARTS = (0.02, 0.28, 0.70)  # s_0, s_1, s_2
_BINS = 64  # of distances
_WITHIN = 0.95  # share of rows that are not clipped
_RIDGE = 0.5  # on the objective's curvature, in units of the spectral norm of its noise


class MomentPlan(NamedTuple):
    """Noise of the three releases, and what they cost."""

    centre: Gaussian
    lengths: Gaussian
    moments: Gaussian
    privacy: PrivacyGuarantee

    @property
    def count_deviation(self) -> float:
        """Standard deviation of the noise on a cell's count."""
        return float(self.moments.noise_multiplier / _PARTS[0] ** 0.5)


@functools.cache
def plan_moments(epsilon: float, delta: float) -> MomentPlan:
    """Noise for a budget that protects the record."""
    centre, lengths, moments = (
        one_off_gaussian(share, epsilon=epsilon, delta=delta, of=words)
        for share, words in (
            (_CENTRE_SHARE, "sum of the rows"),
            (_LENGTHS_SHARE, "histogram of the rows' lengths"),
            (_MOMENTS_SHARE, "counts and moments of clipped rows in every cell"),
        )
    )
    phases = [Phase([one]) for one in (centre, lengths, moments)]
    return MomentPlan(centre, lengths, moments, privacy_guarantee(phases, delta=delta))


@dataclass(frozen=True)
class Released:
    """What the releases say, in the coordinates (x - centre) / scale of the columns."""

    counts: Tensor  # (C,) of rows, noisy
    moments: GroupMoments  # repaired: positive weights, positive semidefinite scatter
    noise: float  # spectral norm of the noise on a cell's sum of squares, about
    centre: Tensor  # (d,)
    scale: Tensor  # (d,)
    mean_deviation: Tensor  # (C,): norm of the noise on a cell's mean, about


def release(
    X: Features,
    cell: Tensor,
    n_cells: int,
    low: Tensor,
    width: Tensor,
    plan: MomentPlan,
    rng: Generator,
) -> Released:
    """Make the three releases, of columns whose publicly known range is [low, low + width]."""
    n_rows, n_features = X.shape
    middle, longest = low + 0.5 * width, 0.5 * n_features**0.5
    total = clipped_sum(X, clipped(distances(X, middle, width), longest), middle, width)
    total = with_gaussian_noise(total, plan.centre.noise_multiplier, rng)
    centre = middle + width * (longest * total / n_rows).clamp(-0.5, 0.5)
    lengths = distances(X, centre, width)
    histogram = length_histogram(lengths, 2.0 * longest)
    histogram = with_gaussian_noise(histogram, plan.lengths.noise_multiplier, rng)
    enough = histogram.cumsum(0) >= _WITHIN * n_rows
    n_bins = int(enough.int().argmax()) + 1 if enough.any() else _BINS
    length = 2.0 * longest * n_bins / _BINS
    exact = statistics(X, cell, n_cells, clipped(lengths, length), centre, width)
    deviation = plan.moments.noise_multiplier
    counts, sums, squares = (
        with_gaussian_noise(part * share**0.5, deviation, rng) / share**0.5
        for part, share in zip(exact, _PARTS, strict=True)
    )
    # Independent noise on both halves of a symmetric matrix: their mean has the radius below.
    noise = deviation / _PARTS[2] ** 0.5 * (2.0 * n_features) ** 0.5
    moments = _repaired(counts, sums, 0.5 * (squares + squares.mT), noise)
    blur = deviation * (n_features / _PARTS[1]) ** 0.5 / moments.weight
    return Released(counts, moments, noise, centre, width * length, blur)


def distances(X: Features, centre: Tensor, width: Tensor) -> Tensor:
    """Norms of (x - centre) / width."""
    return X.square_norms(centre, 1.0 / width).sqrt()


def clipped(lengths: Tensor, longest: float) -> Tensor:
    """Factors that bring vectors of these lengths to a norm of at most one."""
    return clip_factors(lengths, longest) / longest


def clipped_sum(X: Features, factor: Tensor, centre: Tensor, width: Tensor) -> Tensor:
    """Sum of factor (x - centre) / width."""
    return (X.t_matmul(factor[:, None])[:, 0] - centre * factor.sum()) / width


def length_histogram(lengths: Tensor, longest: float) -> Tensor:
    """Rows in each of equal bins on [0, longest]; the last one is open."""
    index = (lengths / longest * _BINS).long().clamp(0, _BINS - 1)
    return torch.bincount(index, minlength=_BINS).to(lengths)


def statistics(
    X: Features, cell: Tensor, n_cells: int, factor: Tensor, centre: Tensor, width: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Counts (C,), sums (C, d) and sums of squares (C, d, d) of u = factor (x - centre) / width."""
    none = GroupMoments.none(n_cells, X.shape[1])
    counts, sums, squares = none.weight, none.mean, none.scatter
    for c in torch.unique(cell).tolist():
        index = torch.where(cell == c)[0]
        rows, factors = X.rows(index), factor[index]
        counts[c] = len(index)
        sums[c] = clipped_sum(rows, factors, centre, width)
        weight = factors**2
        squares[c] = rows.covariance(weight, centre) * weight.sum() / torch.outer(width, width)
    return counts, sums, squares


def _repaired(counts: Tensor, sums: Tensor, squares: Tensor, noise: float) -> GroupMoments:
    """Moments that exist: cells lean on the pooled covariance as far as they are noise."""
    weight = counts.clamp_min(1.0)
    mean = sums / weight[:, None]
    scatter = squares - weight[:, None, None] * mean[:, :, None] * mean[:, None, :]
    pooled = _semidefinite(scatter.sum(dim=0) / weight.sum())
    size = pooled.diagonal().mean().clamp_min(torch.finfo(pooled.dtype).tiny)
    own = 1.0 / (1.0 + (noise / (weight * size)) ** 2)
    mixed = own[:, None, None] * scatter / weight[:, None, None]
    covariance = torch.stack(
        [_semidefinite(one + (1.0 - share) * pooled) for one, share in zip(mixed, own, strict=True)]
    )
    return GroupMoments(weight, mean, covariance * weight[:, None, None])


def _semidefinite(matrix: Tensor) -> Tensor:
    """Without its negative eigenvalues: the nearest positive semidefinite matrix."""
    values, vectors = torch.linalg.eigh(matrix)
    repaired: Tensor = (vectors * values.clamp_min(0.0)) @ vectors.T
    return repaired


@dataclass(frozen=True)
class PrivateMomentERM(MomentERM):
    """The pairwise problem of released moments: what counts as measured is binormal as well.

    It holds no rows. The noise on the curvature of its objective enters the penalty, without which
    directions that are mostly noise would be taken for good ones.
    """

    released: Released
    privacy: PrivacyGuarantee

    @classmethod
    def of(
        cls, released: Released, constraint: Stack, alpha: float, privacy: PrivacyGuarantee
    ) -> PrivateMomentERM:
        """Pose the problem; `alpha` penalises the coefficients of the released coordinates."""
        moments, surrogate = released.moments, Quadratic()
        by_label = [label.weight.item() for label in moments.by_label()]
        cells = len(moments.weight) / 2
        noise = released.noise * cells**0.5 * sum(w**-2 for w in by_label) ** 0.5
        alpha += _RIDGE * 2.0 * surrogate.c1 * noise
        model = whitened_model(moments, alpha, 2.0 * surrogate.c1)
        nobody = torch.zeros(0, dtype=torch.long)
        none = Batch(as_features(moments.mean[:0].numpy()), nobody, nobody, moments.weight[:0])
        shares = (by_label[0] / sum(by_label), by_label[1] / sum(by_label))
        risk = PairwiseLoss(surrogate, shares)
        return cls(model, moments, risk, constraint, alpha, none, released, privacy)

    def evaluate(self, x: Tensor) -> Evaluation:
        """Soft values, and for hard ones 1 - AUC and the gaps of normal scores."""
        soft = self.linearize(x).value
        hard = soft.clone()
        hard[0] = Binormal().loss(*self._score_moments(x).flip(0))
        return Evaluation(soft, hard)

    def log_odds_scale(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Slope and offset that make scores log odds, were they normal with one variance."""
        negative, positive = self._score_moments(x)
        weight = torch.stack([label.weight[0] for label in self.moments.by_label()])
        variances = torch.stack([m[1] - m[0] ** 2 for m in (negative, positive)])
        variance = (weight @ variances / weight.sum()).clamp_min(1e-12)
        slope = ((positive[0] - negative[0]) / variance).clamp_min(1e-6)
        middle = 0.5 * (negative[0] + positive[0])
        return slope, torch.log(weight[1] / weight[0]) - slope * middle

    def _score_moments(self, x: Tensor) -> Tensor:
        """Means of (z, z^2) of the negatives and of the positives, (2, 2)."""
        coef = self.model.unpack(x)[0][:, 0]
        rows = []
        for label in self.moments.by_label():
            mean = label.mean[0] @ coef
            variance = (label.scatter[0] @ coef) @ coef / label.weight[0]
            rows.append(torch.stack((mean, variance + mean**2)))
        return torch.stack(rows)
