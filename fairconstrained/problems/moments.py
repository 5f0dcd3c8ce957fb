r"""Ranking problems: on rows, and for linear models from group moments alone.

For scores :math:`z = x' \beta` the table of :math:`(z, z^2)` over a cell follows from the weight,
mean and covariance of the rows in the cell. The data are read once. After that the cost of a solver
is O(d^2) for each cell, whatever the number of rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor

from fairconstrained.constraints.moments import MomentConstraint, stacked
from fairconstrained.constraints.surrogates import Quadratic
from fairconstrained.losses import linearized
from fairconstrained.models.features import standard_scale, without_rounding
from fairconstrained.models.linear import LinearModel, whitener
from fairconstrained.problems import base
from fairconstrained.problems.baselines import MOST_ENTRIES, Baseline, rank_line
from fairconstrained.problems.erm import FairERM
from fairconstrained.problems.objectives import PairwiseLoss
from fairconstrained.problems.rows import Rows


class RankingERM(FairERM):
    """A linear model's problem on rows that starts away from constant scores."""

    def start(self) -> Tensor:
        """Return a gradient step from zero, scaled to give the scores unit variance."""
        # AUCs are discontinuous at constant scores: a solver may not get away from them.
        x = super().start()
        if x.any():
            return x
        free = replace(self, constraint=stacked(self.constraint.space, []))
        # Any direction that ranks better than chance will do; this one costs one pass.
        step = -free.linearize(x).pullback(x.new_ones(1))
        spread = self.model.scores(step, self.data.quantiles.X).std(correction=0)
        return step / spread if spread > 0 else x

    def along(self, x: Tensor, direction: Tensor, reach: float) -> base.Line:
        """Return hard values between all rank changes if there are few rows, else on a grid."""
        n_pairs = self.n_rows * (self.n_rows - 1) // 2
        # The table of all pairs must fit into memory.
        if n_pairs * (1 + self.n_constraints) > MOST_ENTRIES // 2:
            return super().along(x, direction, reach)
        X = self.data.quantiles.X
        scores, ahead = (self.model.scores(w, X)[:, 0] for w in (x, x + direction))

        def hard(t: Tensor) -> Tensor:
            return self.evaluate(x + t * direction).hard

        return rank_line(scores, ahead - scores, self._pair_values, hard, reach)

    def _pair_values(self, above: Tensor, below: Tensor) -> Tensor:
        """Return how pairs change hard values if the first row ranks higher, (k, 1 + m)."""
        rows = self.data.quantiles
        negative, positive = (rows.weight * (rows.y == label) for label in (0, 1))
        auc = positive[above] * negative[below] / (positive.sum() * negative.sum())
        columns = rows.y, rows.group, rows.weight
        notions: Any = self.constraint.members  # AUCConstraints
        placed = [(notion, notion.partition.place(*columns)) for notion in notions]
        gaps = [notion.pair_values(rows, above, below) for notion, rows in placed]
        return torch.cat((-auc[:, None], *gaps), dim=1)


@dataclass(frozen=True)
class GroupMoments:
    """Weight, mean and scatter about the mean of the rows of each cell."""

    weight: Tensor  # (C,)
    mean: Tensor  # (C, d)
    scatter: Tensor  # (C, d, d): weighted sums of squares, not divided by the weight

    @classmethod
    def from_rows(cls, data: Rows, n_groups: int) -> GroupMoments:
        """Compute moments of the (label, group) cells of all workers, in two passes."""
        n_cells = 2 * n_groups

        def cell_weights(rows: Rows) -> Tensor:
            """Return the weight of each row in each cell, (n, n_cells)."""
            one_hot = torch.nn.functional.one_hot
            group = rows.group if rows.group.ndim == 2 else one_hot(rows.group, n_groups)
            cells = one_hot(rows.y, 2)[:, :, None] * group[:, None]
            return cells.flatten(start_dim=1) * rows.weight[:, None]

        def sums(rows: Rows) -> Tensor:
            weights = cell_weights(rows)
            return torch.cat((weights.sum(dim=0)[:, None], rows.X.t_matmul(weights).T), dim=1)

        # Two passes, since sums of squares about zero lose digits where means are far from it.
        weight, mean = data.total(sums).tensor_split([1], dim=1)
        mean = mean / torch.where(weight > 0, weight, 1.0)

        def scatters(rows: Rows) -> Tensor:
            scatter = mean.new_zeros(n_cells, *2 * mean.shape[1:])
            for c, weights in enumerate(cell_weights(rows).T):
                for sign in (1.0, -1.0):  # fractions of recorded groups may be negative
                    index = torch.nonzero(sign * weights > 0)[:, 0]
                    magnitude = weights[index].abs()
                    if len(index):
                        covariance = rows.X.rows(index).covariance(magnitude, mean[c])
                        scatter[c] += sign * magnitude.sum() * covariance
            return scatter

        return cls(weight[:, 0], mean, data.total(scatters))

    def union(self, cells: Tensor) -> GroupMoments:
        """Return the moments of the union of given cells."""
        weight, means = self.weight[cells], self.mean[cells]
        mean = weight @ means / weight.sum()
        steps = means - mean
        scatter = self.scatter[cells].sum(dim=0) + steps.T @ (weight[:, None] * steps)
        return GroupMoments(weight.sum()[None], mean[None], scatter[None])

    def standard_scale(self) -> Tensor:
        """Return standard deviations of the columns, (d,); 1 for a constant column."""
        whole = self.union(torch.arange(len(self.weight)))
        variances = whole.scatter[0].diagonal() / whole.weight[0]
        return standard_scale(without_rounding(variances, whole.mean[0]))

    def by_label(self) -> tuple[GroupMoments, GroupMoments]:
        """Return moments of the negatives and of the positives: the two halves of the cells."""
        halves = torch.arange(len(self.weight)).chunk(2)
        return self.union(halves[0]), self.union(halves[1])


def whitened_model(
    moments: GroupMoments, scale: Tensor, alpha: float, curvature: float
) -> LinearModel:
    r"""Return a linear model whose penalised quadratic objective has Hessian I.

    For the original columns the Hessian is :math:`c (\Sigma_+ + \Sigma_- + \delta \delta') +
    \alpha\, \mathrm{diag}(s)^2`, with the covariance of each label, the difference :math:`\delta`
    of their means, :math:`c = 2 c_1` and the scales s of the columns in the penalty.
    """
    negative, positive = moments.by_label()
    step = positive.mean[0] - negative.mean[0]
    covariances = sum(label.scatter[0] / label.weight[0] for label in (negative, positive))
    hessian = curvature * (covariances + torch.outer(step, step))
    hessian.diagonal().add_(alpha * scale**2)
    diagonal = hessian.diagonal()
    # A constant column without penalty has no scale.
    units = torch.where(diagonal > 0, diagonal, torch.ones_like(diagonal)).rsqrt()
    none = torch.zeros_like(scale)
    return LinearModel(1, none, whitener(hessian, units), fit_intercept=False, scale=scale)


@dataclass(frozen=True)
class MomentERM(base.FixedSoftness, FairERM):
    """Pairwise risk of a linear model under a constraint, both functions of group moments.

    Hard values are measured on the rows. There is no intercept, which changes no AUC.
    """

    offers: ClassVar[frozenset[str]] = frozenset(
        {"exact", "sharpness", "more_slack", "quadratic_forms"}
    )

    model: LinearModel
    risk: PairwiseLoss
    moments: GroupMoments = field(kw_only=True)  # of the (label, group) cells

    @cached_property
    def counts(self) -> Tensor:
        return self._by_part(self.moments.weight, self.constraint)

    @cached_property
    def _mean(self) -> Tensor:
        # No AUC depends on the centre, and squares of scores far from zero would lose digits.
        weight, mean = self.moments.weight, self.moments.mean
        return (mean - weight @ mean / weight.sum()) @ self._root

    @cached_property
    def _scatter(self) -> Tensor:
        return torch.matmul(self._root.T @ self.moments.scatter, self._root)

    def _by_part(self, table: Tensor, constraint: MomentConstraint) -> Tensor:
        """Sum over the cells of each part, with their factors in the constraints."""
        factors = self._factors.reshape(-1, *[1] * (table.ndim - 1))
        return constraint.partition.pooled(table * factors)

    @cached_property
    def _factors(self) -> Tensor:
        return self.constraint.space.factors().reshape(-1).to(self.moments.weight)

    def start(self) -> Tensor:
        """Return a Newton step on the objective from zero: the optimum if it is quadratic."""
        # At zero the scores are constant, and the binormal AUC has no gradient.
        negative, positive = self.moments.by_label()
        return self.model.coordinates((positive.mean[0] - negative.mean[0])[:, None])[:, 0]

    @cached_property
    def baselines(self) -> list[Baseline]:
        """Return zero, where all scores are equal, and the unconstrained solution."""
        # An intercept changes no AUC: there are no other constants.
        zero = Baseline(self.model.init(), equal=True)
        return [zero] if self.free is None else [zero, Baseline(self.free)]

    def values(self, x: Tensor) -> Tensor:
        """Return (f, c_1, ..., c_m) at x, differentiable, in O(d^2) operations for each cell."""
        mean = self._mean @ x
        weight = self.moments.weight
        table = torch.stack((weight * mean, (self._scatter @ x) @ x + weight * mean**2), dim=1)
        risk = self.risk.from_sums(table.reshape(2, -1, 2).sum(dim=1) / weight.sum())
        sums = self._by_part(table, self.constraint)
        return torch.cat((risk[None], self.constraint.evaluate(sums, self.counts, x[:0])))

    def linearize(self, x: Tensor, rows: Tensor | None = None) -> base.Linearization:
        """Linearize objective and constraints from moments."""
        value, pullback = linearized(self.values, x)
        terms = base.Linearization(value, lambda weights: pullback(weights)[0])
        return base.with_penalty(terms, self.model.penalty(x), self.alpha)

    def evaluate(self, x: Tensor) -> base.Evaluation:
        """Evaluate soft values from moments and hard values from the rows."""
        scores = self.model.scores(x, self.data.quantiles.X)
        return base.Evaluation(self.linearize(x).value, self.hard(scores, x[:0]))

    @property
    def _root(self) -> Tensor:
        transform = self.model.transform
        return transform if transform.ndim == 2 else torch.diag(transform)

    @property
    def is_quadratic(self) -> bool:
        """Whether all surrogates are the quadratic one of the paper."""
        terms: Any = (self.risk, *self.constraint.members)
        return all(isinstance(term.surrogate, Quadratic) for term in terms)

    def quadratic_forms(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return Hessians, gradients and values of quadratic (f, c_1, ..., c_m) at zero."""
        weight = self.moments.weight
        extended = torch.cat((self._mean, torch.ones_like(weight)[:, None]), dim=1)
        matrices = weight[:, None, None] * extended[:, :, None] * extended[:, None, :]
        matrices[:, :-1, :-1] += self._scatter
        negative, positive = (
            half.sum(dim=0) / w.sum()
            for half, w in zip(matrices.chunk(2), weight.chunk(2), strict=True)
        )
        forms = [self.risk.surrogate.form(positive, negative)[None]]  # type: ignore[attr-defined]
        for member in self.constraint.members:
            sums, counts = (self._by_part(table, member) for table in (matrices, weight))
            forms.append(member.forms(sums, counts))  # type: ignore[attr-defined]
        form = torch.cat(forms)
        scaled = self.model.scale[:, None] * self._root
        form[0, :-1, :-1] += self.alpha * scaled.T @ scaled
        return form[:, :-1, :-1], form[:, :-1, -1], 0.5 * form[:, -1, -1]
