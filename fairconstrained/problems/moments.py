r"""Problems of ranking: on rows, and for linear models from group moments alone.

For scores :math:`z = x' \beta` the table of :math:`(z, z^2)` over a cell of rows follows from the
cell's weight, mean and covariance: the data are read once, and what a solver does after that costs
d x d for each cell, whatever the number of rows. Moments of chunks merge exactly, so that streams
need no rows either.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from fairconstrained.constraints import Stack
from fairconstrained.constraints.surrogates import Quadratic
from fairconstrained.models import Linear, whitener
from fairconstrained.models.features import Features
from fairconstrained.problems import Batch, Evaluation, FairERM, Linearization
from fairconstrained.problems.objectives import PairwiseLoss

__all__ = ["GroupMoments", "MomentERM", "RankingERM", "whitened_model"]


class RankingERM(FairERM):
    """A linear model's problem on rows, begun away from constant scores.

    There AUCs are 1/2, but any other scores, however small, can have any AUC: a solver that starts
    from zero meets a step and may stay.
    """

    def start(self) -> Tensor:
        """One gradient step from zero, of the length that gives the scores unit variance."""
        x = super().start()
        step = -self.objective(x).pullback(x.new_ones(1))
        scores = self.model.scores((x + step)[: self.model.n_params], self.data.X)
        deviation = scores.std(correction=0)
        return x + step / deviation if deviation > 0 else x


@dataclass(frozen=True)
class GroupMoments:
    """Weight, mean and scatter about the mean of the rows of each cell."""

    weight: Tensor  # (C,)
    mean: Tensor  # (C, d)
    scatter: Tensor  # (C, d, d): weighted sums of squares, not divided

    @classmethod
    def none(cls, n_cells: int, n_features: int) -> GroupMoments:
        """Of no rows."""
        shape = (n_cells, n_features)
        zeros = torch.zeros(*shape, n_features, dtype=torch.float64)
        return cls(zeros[:, 0, 0].clone(), zeros[:, 0].clone(), zeros)

    @classmethod
    def of(cls, X: Features, cell: Tensor, weight: Tensor, n_cells: int) -> GroupMoments:
        """Of these rows; one pass."""
        moments = cls.none(n_cells, X.shape[1])
        for c in set(cell.tolist()):
            index = torch.where(cell == c)[0]
            rows, w = X.rows(index), weight[index]
            mean = rows.mean(w)
            moments.weight[c] = w.sum()
            moments.mean[c] = mean
            moments.scatter[c] = rows.covariance(w, mean) * w.sum()
        return moments

    def merged(self, other: GroupMoments) -> GroupMoments:
        """Of the rows of both (Chan, Golub and LeVeque 1983): no large numbers are subtracted."""
        weight = self.weight + other.weight
        share = other.weight / torch.where(weight > 0, weight, torch.ones_like(weight))
        step = other.mean - self.mean
        mean = self.mean + share[:, None] * step
        between = (self.weight * share)[:, None, None] * step[:, :, None] * step[:, None, :]
        return GroupMoments(weight, mean, self.scatter + other.scatter + between)

    def spread(self, cells: Tensor, n_cells: int) -> GroupMoments:
        """The same moments in a longer list of cells, at the given positions."""
        longer = GroupMoments.none(n_cells, self.mean.shape[1])
        for all_cells, known in zip(vars(longer).values(), vars(self).values(), strict=True):
            all_cells[cells] = known
        return longer

    def union(self, cells: Tensor) -> GroupMoments:
        """Of the given cells as one."""
        total = GroupMoments(self.weight[:1] * 0, self.mean[:1] * 0, self.scatter[:1] * 0)
        for c in cells.tolist():
            total = total.merged(
                GroupMoments(self.weight[c : c + 1], self.mean[c : c + 1], self.scatter[c : c + 1])
            )
        return total

    def by_label(self) -> tuple[GroupMoments, GroupMoments]:
        """Of the negatives and of the positives: the first and second half of the cells."""
        halves = torch.arange(len(self.weight)).chunk(2)
        return self.union(halves[0]), self.union(halves[1])


def whitened_model(moments: GroupMoments, alpha: float, curvature: float) -> Linear:
    r"""Linear model in coordinates where the penalised quadratic objective is half a square.

    Its Hessian is :math:`c (\Sigma_+ + \Sigma_- + \delta \delta') + \alpha I`, with the labels'
    covariances, the difference :math:`\delta` of their means and :math:`c = 2 c_1`.
    """
    negative, positive = moments.by_label()
    step = positive.mean[0] - negative.mean[0]
    covariances = sum(label.scatter[0] / label.weight[0] for label in (negative, positive))
    hessian = curvature * (covariances + torch.outer(step, step))
    hessian.diagonal().add_(alpha)
    diagonal = hessian.diagonal()
    scale = torch.where(diagonal > 0, diagonal, torch.ones_like(diagonal)).rsqrt()
    none = torch.zeros_like(scale)
    return Linear(1, none, whitener(hessian, scale), fit_intercept=False)


@dataclass(frozen=True)
class MomentERM:
    r"""Pairwise risk of a linear model under a constraint, both functions of group moments.

    Parameters
    ----------
    model : Linear
        Without intercept, which changes no AUC.
    moments : GroupMoments
        Of the finest cells: label times group.
    risk : PairwiseLoss
        With a surrogate of score moments, as the constraint has.
    constraint : Stack
        Of AUC constraints.
    alpha : float
        Weight of half the squared norm of the coefficients.
    data : Batch
        Rows on which hard values are measured: all, or those that a stream keeps.
    """

    model: Linear
    moments: GroupMoments
    risk: PairwiseLoss
    constraint: Stack
    alpha: float
    data: Batch
    counts: Tensor = field(init=False, repr=False)
    _mean: Tensor = field(init=False, repr=False)
    _scatter: Tensor = field(init=False, repr=False)

    def __post_init__(self) -> None:
        moments = self.moments
        # No AUC depends on it, but squares of scores far from zero would lose digits.
        centred = moments.mean - moments.weight @ moments.mean / moments.weight.sum()
        root = self._root
        part = self.constraint.part_of_cell.reshape(-1)
        counts = moments.weight.new_zeros(self.constraint.n_parts + 1)
        counts.index_add_(0, part.remainder(self.constraint.n_parts + 1), moments.weight)
        for name, value in (
            ("_mean", centred @ root),
            ("_scatter", root.T @ moments.scatter @ root),
            ("counts", counts[:-1]),
        ):
            object.__setattr__(self, name, value)

    @property
    def n_rows(self) -> int:
        """Rows on which hard values are measured."""
        return len(self.data.y)

    @property
    def n_constraints(self) -> int:
        """Number m of constraint values."""
        return len(self.values(self.start())) - 1

    @property
    def offsets(self) -> Tensor:
        """None: shifts change no AUC."""
        return torch.zeros(0, dtype=torch.long)

    def start(self) -> Tensor:
        """One Newton step on the objective from zero: the optimum, if it is quadratic."""
        # At zero itself the scores are constant and a binormal AUC has no gradient.
        negative, positive = self.moments.by_label()
        step = (positive.mean[0] - negative.mean[0])[:, None]
        return self.model.coordinates(step)[:, 0]

    def variables(self, w: Tensor) -> Tensor:
        """Parameters of the model: there are no others."""
        return w

    def values(self, x: Tensor) -> Tensor:
        """(f, c_1, ..., c_m) at x, differentiable, from O(d^2) operations for each cell."""
        mean = self._mean @ x
        weight = self.moments.weight
        square = (self._scatter @ x) @ x + weight * mean**2
        table = torch.stack((weight * mean, square), dim=1)
        by_label = table.reshape(2, -1, 2).sum(dim=1)
        part = self.constraint.part_of_cell.reshape(-1).remainder(self.constraint.n_parts + 1)
        sums = torch.zeros(len(self.counts) + 1, 2, dtype=x.dtype).index_add(0, part, table)[:-1]
        risk = self.risk.of_sums(by_label / weight.sum())
        values = self.constraint.of_moments(sums, self.counts, x.new_zeros(0))
        return torch.cat((risk[None], values))

    def linearize(self, x: Tensor, rows: Tensor | None = None) -> Linearization:
        """Objective and constraints; there are no rows to choose from."""
        x = x.detach().requires_grad_()
        with torch.enable_grad():
            terms = self.values(x)
        penalty = self.model.penalty(x.detach())

        def pullback(weights: Tensor) -> Tensor:
            (gradient,) = torch.autograd.grad(terms, x, weights, retain_graph=True)
            return gradient + self.alpha * weights[0] * penalty.gradient

        value = terms.detach().clone()
        value[0] += self.alpha * penalty.value
        return Linearization(value, pullback)

    @property
    def _root(self) -> Tensor:
        transform = self.model.transform
        return transform if transform.ndim == 2 else torch.diag(transform)

    @property
    def is_quadratic(self) -> bool:
        """Whether objective and constraints are quadratic in x: the paper's surrogate."""
        surrogates = [
            self.risk.surrogate,
            *(member.surrogate for member in self.constraint.members),  # type: ignore[attr-defined]
        ]
        return all(isinstance(surrogate, Quadratic) for surrogate in surrogates)

    def quadratic_forms(self) -> tuple[Tensor, Tensor, Tensor]:
        """Hessians, gradients and values of (f, c_1, ..., c_m) at zero, where all are quadratic."""
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
            part = member.part_of_cell.reshape(-1).remainder(member.n_parts + 1)
            sums = matrices.new_zeros(member.n_parts + 1, *matrices.shape[1:])
            counts = weight.new_zeros(member.n_parts + 1)
            sums.index_add_(0, part, matrices)
            counts.index_add_(0, part, weight)
            forms.append(member.forms(sums[:-1], counts[:-1]))  # type: ignore[attr-defined]
        form = torch.cat(forms)
        root = self._root
        form[0, :-1, :-1] += self.alpha * root.T @ root
        return form[:, :-1, :-1], form[:, :-1, -1], 0.5 * form[:, -1, -1]

    def evaluate(self, x: Tensor) -> Evaluation:
        """Soft values from moments, hard values from the rows."""
        rows = self.data
        scores = self.model.scores(x, rows.X)
        risk = self.risk.hard(scores, rows.y, rows.weight)
        values = self.constraint.hard_values(
            scores, self.constraint.place(*rows[1:]), x.new_zeros(0)
        )
        return Evaluation(self.linearize(x).value, torch.cat((risk[None], values)))

    def objective(self, x: Tensor, rows: Tensor | None = None) -> Linearization:
        """Penalised risk."""
        return self.linearize(x).part(slice(0, 1))

    def constraints(self, x: Tensor, rows: Tensor | None = None) -> Linearization:
        """Constraint values."""
        return self.linearize(x).part(slice(1, None))

    def sharpened(self) -> MomentERM:
        """Itself: surrogates of moments have no sharpness."""
        return self

    def loosened(self, x: Tensor, by: float) -> tuple[MomentERM, Tensor]:
        """Itself: any start will do."""
        return self, x

    def project(self, x: Tensor) -> Tensor:
        """No set constraint here."""
        return x
