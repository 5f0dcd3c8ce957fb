r"""Group moments released with noise: all that a private linear ranking needs to see of the rows.

There are four Gaussian releases, each of all rows. The sum of the rows gives a centre :math:`c`. A
histogram of the rows' distances from it gives a distance :math:`C` that few rows exceed. Then
follow, of the rows :math:`u = (x - c) / \max(C, |x - c|)`, for every (label, group) cell

.. math:: \Big( \sqrt{s_0}\, N, \; \sqrt{s_1} \sum u, \; \sqrt{s_2} \sum u u' \Big)
          + \text{noise} , \qquad s_0 + s_1 + s_2 = 1 .

and the binned scores of the solution computed from these moments. A row is in one cell and one bin,
and :math:`|u| \le 1`: it adds to each of the four at most 1 in the l2 norm.
A solution fits the noise in the moments that it was computed from, whose gaps are too small (a9a,
inter-group, epsilon 1: 0.02 for a true 0.046): the last release corrects them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Generator, Tensor

from fairconstrained.constraints.moments import MomentConstraint, stacked
from fairconstrained.constraints.surrogates import Binormal, Quadratic, SoftBins
from fairconstrained.models.features import Features, as_features, clip_factors
from fairconstrained.privacy.accounting import Budget, PrivacyGuarantee
from fairconstrained.privacy.mechanisms import Releases
from fairconstrained.privacy.plans import plan_releases
from fairconstrained.problems.base import Evaluation
from fairconstrained.problems.moments import GroupMoments, MomentERM, whitened_model
from fairconstrained.problems.objectives import PairwiseLoss
from fairconstrained.problems.private.coordinates import chunk_sums
from fairconstrained.problems.private.erm import SURE
from fairconstrained.problems.rows import Rows

# The releases with their fractions of the budget; 1 % is left because the accountant rounds up.
_CENTRE, _NORMS = "sum of the rows", "histogram of the rows' norms"
_MOMENTS = "counts and moments of clipped rows in every cell"
_SCORES = "binned scores in every cell"
_FRACTIONS = {_CENTRE: 0.03, _NORMS: 0.02, _MOMENTS: 0.64, _SCORES: 0.30}
# Shares of the budget of counts, sums and squares (s_0, s_1, s_2): there are 1, d and d^2 of them.
_PARTS = (0.02, 0.28, 0.70)
# Bins of distances: the clipping norm is right to 1/64 of twice the longest.
_BINS = 64
# Bins of scores: with more of them, each has fewer rows than noise.
_SCORE_BINS = 12


def plan_moments(budget: Budget) -> PrivacyGuarantee:
    """Plan the noise of the four releases for a budget that protects the record."""
    return plan_releases(_FRACTIONS, budget)


@dataclass(frozen=True)
class Released:
    """Moments from the releases, in the coordinates (x - centre) / scale of the columns."""

    counts: Tensor  # (C,) of rows, noisy
    moments: GroupMoments  # repaired: positive weights, positive semidefinite scatter
    noise: float  # approximate spectral norm of the noise on a cell's sum of squares
    centre: Tensor  # (d,)
    scale: Tensor  # (d,)
    count_deviation: float  # standard deviation of the noise on a cell's count
    mean_deviation: Tensor  # (C,): approximate norm of the noise on a cell's mean
    far: bool = False  # whether most rows are outside of the public range, by the histogram


def made_up(n_cells: int, n_features: int, n_rows: int) -> Released:
    """Return placeholder moments: of standard normal rows, equally many in each cell."""
    weight = torch.full((n_cells,), n_rows / n_cells, dtype=torch.float64)
    mean = weight.new_zeros((n_cells, n_features))
    one = torch.eye(n_features, dtype=torch.float64)
    moments = GroupMoments(weight, mean, weight[:, None, None] * one)
    return Released(weight, moments, 0.0, mean[0], torch.ones_like(mean[0]), 0.0, 0.0 * weight)


def release(
    X: Features,
    n_rows: int,
    cell: Tensor,
    n_cells: int,
    low: Tensor,
    width: Tensor,
    releases: Releases,
    rng: Generator,
) -> Released:
    """Make the first three releases, of columns whose public range is [low, low + width]."""
    n_features = X.shape[1]
    middle, longest = low + 0.5 * width, 0.5 * n_features**0.5

    def factors(u: Tensor, most: float) -> Tensor:  # that bring rows to norms of at most one
        return clip_factors(torch.linalg.vector_norm(u, dim=1), most) / most

    def by_norm(_: slice, u: Tensor) -> Tensor:  # in equal bins, the last of which is open
        index = (torch.linalg.vector_norm(u, dim=1) / (2.0 * longest) * _BINS).long()
        return torch.bincount(index.clamp(0, _BINS - 1), minlength=_BINS).to(u)

    total = chunk_sums(X, middle, width, lambda _, u: factors(u, longest) @ u)
    total = releases.noisy(_CENTRE, total, 1.0, rng)
    centre = middle + width * (longest * total / n_rows).clamp(-0.5, 0.5)
    histogram = releases.noisy(_NORMS, chunk_sums(X, centre, width, by_norm), 1.0, rng)
    # Noise grows with the clipping norm, and clipped rows bias moments: one row in twenty is.
    enough = histogram.cumsum(0) >= 0.95 * n_rows
    n_bins = int(enough.int().argmax()) + 1 if enough.any() else _BINS
    largest = 2.0 * longest * n_bins / _BINS

    def by_cell(rows: slice, u: Tensor) -> Tensor:  # counts, sums and squares, one after the other
        u = factors(u, largest)[:, None] * u
        by_cell = [u[cell[rows] == c] for c in range(n_cells)]
        counts = u.new_tensor([len(own) for own in by_cell])
        squares = [(own.T @ own).reshape(-1) for own in by_cell]
        return torch.cat((counts, *[own.sum(dim=0) for own in by_cell], *squares))

    sizes = [n_cells, n_cells * n_features, n_cells * n_features**2]
    exact = torch.split(chunk_sums(X, centre, width, by_cell), sizes)
    roots = [fraction**0.5 for fraction in _PARTS]
    scaled = [part * root for part, root in zip(exact, roots, strict=True)]
    noisy = releases.noisy_parts(_MOMENTS, scaled, 1.0, rng)
    counts, sums, squares = (part / root for part, root in zip(noisy, roots, strict=True))
    squares = squares.reshape(n_cells, n_features, n_features)
    deviation = releases.plan.noise(_MOMENTS)
    # Independent noise on both halves of a symmetric matrix: their mean has the radius below.
    noise = deviation / roots[2] * (2.0 * n_features) ** 0.5
    sums = sums.reshape(n_cells, n_features)
    moments = _repaired(counts, sums, 0.5 * (squares + squares.mT), noise)
    blur = deviation * (n_features / _PARTS[1]) ** 0.5 / moments.weight
    far = n_bins == _BINS  # no further than a diagonal are rows within the range
    count_noise = float(deviation / roots[0])
    return Released(counts, moments, noise, centre, width * largest, count_noise, blur, far)


def score_table(z: Tensor, cell: Tensor, n_cells: int) -> Tensor:
    """Count rows of each cell by bins of scores, equally likely if normal, (C, bins)."""
    index = (torch.special.ndtr(z) * _SCORE_BINS).long().clamp(0, _SCORE_BINS - 1)
    counts = torch.bincount(cell * _SCORE_BINS + index, minlength=n_cells * _SCORE_BINS)
    return counts.reshape(n_cells, _SCORE_BINS).to(z)


def _repaired(counts: Tensor, sums: Tensor, squares: Tensor, noise: float) -> GroupMoments:
    """Shrink covariances towards the pooled one by their noise; project to the PSD cone."""
    weight = counts.clamp_min(1.0)
    mean = sums / weight[:, None]
    scatter = squares - weight[:, None, None] * mean[:, :, None] * mean[:, None, :]
    pooled = _semidefinite(scatter.sum(dim=0) / weight.sum())
    size = pooled.diagonal().mean().clamp_min(torch.finfo(pooled.dtype).tiny)
    reliability = (1.0 / (1.0 + (noise / (weight * size)) ** 2))[:, None, None]
    mixed = reliability * scatter / weight[:, None, None] + (1.0 - reliability) * pooled
    covariance = torch.stack(list(map(_semidefinite, mixed)))
    return GroupMoments(weight, mean, covariance * weight[:, None, None])


def _semidefinite(matrix: Tensor) -> Tensor:
    """Return the nearest positive semidefinite matrix: drop negative eigenvalues."""
    values, vectors = torch.linalg.eigh(matrix)
    return torch.matmul(vectors * values.clamp_min(0.0), vectors.T)


@dataclass(frozen=True)
class PrivateMomentERM(MomentERM):
    """The pairwise problem of released moments, without rows.

    Hard values are AUCs of normal scores, moved by `shift` to the AUCs of the released score table.
    The noise on the curvature is added to the penalty: directions of mostly noise would look good.
    """

    released: Released = field(kw_only=True)
    releases: Releases = field(kw_only=True)
    shift: Tensor = field(kw_only=True)  # (m,)
    noise: Tensor = field(kw_only=True)  # (m,): deviations of the gaps by the released score table

    def one_label(self, x: Tensor) -> tuple[int, str] | None:
        r"""Return the label that nearly all rows are predicted to have, and a description.

        Return None if the released moments leave that open. Of scores with variance v at most
        :math:`v / (v + t^2)` are further from their mean than a threshold at distance t, on its
        side (Cantelli's inequality); noise may have moved the mean and the variance.
        """
        slope, offset = self.log_odds_scale(x)
        mean, square = self._score_moments(x).T
        weight = torch.stack([label.weight.sum() for label in self.moments.by_label()])
        size = torch.linalg.vector_norm(self.model.unpack(x)[0])
        sum_noise = (self.released.mean_deviation * self.moments.weight).reshape(2, -1)
        away = (mean + offset / slope).abs() - size * sum_noise.norm(dim=1) / weight
        n_groups = sum_noise.shape[1]
        variance = square - mean**2 + size**2 * self.released.noise * n_groups**0.5 / weight
        others = variance / (variance + away.clamp_min(0.0) ** 2)
        error = float(weight @ others / weight.sum())
        label, other = (slope * mean + offset > 0).int().tolist()
        if label != other or not error < SURE:
            return None
        return label, f"all rows, by the released moments (error {error:.2g})"

    @classmethod
    def of(
        cls, released: Released, constraint: MomentConstraint, alpha: float, releases: Releases
    ) -> PrivateMomentERM:
        """Pose the problem; `alpha` penalises the coefficients of the released coordinates."""
        moments, surrogate = released.moments, Quadratic()
        by_label = [label.weight.item() for label in moments.by_label()]
        cells = len(moments.weight) / 2
        noise = released.noise * cells**0.5 * sum(w**-2 for w in by_label) ** 0.5
        # Noise of this norm may turn directions of little curvature into directions of descent.
        alpha += 0.5 * 2.0 * surrogate.c1 * noise
        ones = torch.ones_like(released.scale)  # the columns are already scaled
        model = whitened_model(moments, ones, alpha, 2.0 * surrogate.c1)
        none = moments.weight[:0]
        no_rows = Rows((as_features(moments.mean[:0]),), none.long(), none.long(), none)
        risk = PairwiseLoss(surrogate, (by_label[0] / sum(by_label), by_label[1] / sum(by_label)))
        zeros = none.new_zeros(sum(len(member.slack) for member in constraint.members))
        made: dict[str, Any] = {"moments": moments, "released": released, "releases": releases}
        return cls(model, no_rows, risk, constraint, alpha, shift=zeros, noise=zeros, **made)

    def deviations_of_estimates(self) -> Tensor:
        """Return standard deviations of the noise on the measured gaps, (m,)."""
        return self.noise

    def values(self, x: Tensor) -> Tensor:
        """Return (f, c_1, ..., c_m), the constraints moved by the shift."""
        values = super().values(x)
        return values + torch.cat((values.new_zeros(1), self.shift))

    def corrected(self, x: Tensor, X: Features, cell: Tensor, rng: Generator) -> PrivateMomentERM:
        """Return the problem whose gaps agree at x with a noisy table of the scores there."""
        coef = self.model.unpack(x)[0] / self.released.scale[:, None]
        scores = (X.matmul(coef) - self.released.centre @ coef)[:, 0]
        mean, square = torch.tensor(self.risk.fractions).to(x) @ self._score_moments(x)
        z = (scores - mean) / (square - mean**2).clamp_min(1e-12).sqrt()
        exact = score_table(z, cell, len(self.moments.weight))
        table = self.releases.noisy(_SCORES, exact, 1.0, rng)
        sums = self.constraint.partition.pooled(table)
        cells_of_part = self.constraint.partition.pooled(torch.ones_like(table[:, 0]))
        members: Any = self.constraint.members  # AUCConstraints
        binned = [member.changed(surrogate=SoftBins(_SCORE_BINS)) for member in members]
        stack = stacked(self.constraint.space, binned)

        def gaps(sums: Tensor) -> Tensor:
            return stack.evaluate(sums, sums.sum(dim=1).clamp_min(1.0), x.new_zeros(0))

        slopes = torch.autograd.functional.jacobian(gaps, sums)  # type: ignore[no-untyped-call]
        variances = self.releases.plan.noise(_SCORES) ** 2 * cells_of_part
        noise = torch.einsum("mpb,p->m", slopes**2, variances).sqrt()
        return replace(self, shift=gaps(sums) - self.values(x)[1:] + self.shift, noise=noise)

    def evaluate(self, x: Tensor) -> Evaluation:
        soft = self.linearize(x).value
        hard = soft.clone()
        hard[0] = Binormal().loss(*self._score_moments(x).flip(0))
        return Evaluation(soft, hard)

    def log_odds_scale(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the slope and offset that make normal scores of equal variances log odds."""
        mean, square = self._score_moments(x).T
        weight = torch.stack([label.weight[0] for label in self.moments.by_label()])
        variance = (weight @ (square - mean**2) / weight.sum()).clamp_min(1e-12)
        slope = ((mean[1] - mean[0]) / variance).clamp_min(1e-6)
        return slope, torch.log(weight[1] / weight[0]) - slope * (0.5 * (mean[0] + mean[1]))

    def _score_moments(self, x: Tensor) -> Tensor:
        """Return means of (z, z^2) of the negatives and of the positives, (2, 2)."""
        coef, rows = self.model.unpack(x)[0][:, 0], []
        for label in self.moments.by_label():
            mean = label.mean[0] @ coef
            variance = (label.scatter[0] @ coef) @ coef / label.weight[0]
            rows.append(torch.stack((mean, variance + mean**2)))
        return torch.stack(rows)
