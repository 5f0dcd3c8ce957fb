r"""Empirical risk minimisation under a moment constraint, from a model, a loss and a constraint.

All derivatives pass through score space: one forward pass of the model, closed forms (or a small
graph) on the scores, one pullback.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor

from fairconstrained.autograd import linearized
from fairconstrained.constraints.affine import AffineMap
from fairconstrained.constraints.moments import MomentConstraint, Rows
from fairconstrained.constraints.steps import Above
from fairconstrained.models import Model
from fairconstrained.problems.base import Batch, separate_estimates
from fairconstrained.problems.linearization import Evaluation, Linearization
from fairconstrained.problems.objectives import Objective

__all__ = ["FairERM"]


@dataclass(frozen=True)
class FairERM:
    r"""Empirical risk minimisation under a moment constraint.

    .. math::

        \min_{w, a}\; f(z) + \frac{\alpha}{2} \lVert \beta(w) \rVert^2
        \quad \text{s.t.} \quad g(M(z), N, a) \le 0, \qquad z_i = f_w(x_i),

    with an objective such as the mean loss,
    :math:`f(z) = \sum_i \omega_i\, \ell(z_i, y_i) / \sum_i \omega_i`, and the variables
    x = (w, a): parameters of the model and extra variables of the constraint.

    On a batch of rows the table is scaled up to the full data and divided by the full counts N, so
    that linear constraints are estimated without bias and a group that the batch lacks does no
    harm. Rows drawn otherwise than uniformly (equally many from each part) each get their scale.
    """

    model: Model
    data: Batch
    risk: Objective
    constraint: MomentConstraint
    alpha: float
    initial: Tensor | None = None  # parameters to start from, if not the model's own
    placed: Rows = field(init=False, repr=False)  # the data as the constraint sees them
    counts: Tensor = field(init=False, repr=False)
    total: Tensor = field(init=False, repr=False)
    affine: AffineMap | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "total", self.data.weight.sum())
        object.__setattr__(self, "placed", self.constraint.place(*self.data[1:]))
        object.__setattr__(self, "counts", self.placed.counts())
        object.__setattr__(self, "affine", self.constraint.affine(self.counts))

    @property
    def n_rows(self) -> int:
        """Rows of the data."""
        return len(self.data.y)

    @property
    def n_constraints(self) -> int:
        """Number m of constraint values."""
        return len(self.constraint.of_moments(*self._empty_table()))

    @property
    def strata(self) -> Tensor:
        """Parts of the constraint's table that have rows."""
        part = self.constraint.part(self.data.y, self.data.group)
        present, index = torch.unique(part, return_inverse=True)
        strata: Tensor = index - (present < 0).sum()
        return strata

    def start(self) -> Tensor:
        """Where a fit begins."""
        return self.variables(self.model.init() if self.initial is None else self.initial)

    def variables(self, w: Tensor) -> Tensor:
        """Parameters of the model, and extra variables that suit them."""
        scores = self.model.scores(w, self.data.X)
        return torch.cat((w, self.constraint.init_aux(scores, self.placed)))

    def linearize(
        self, x: Tensor, rows: Tensor | None = None, scale: Tensor | None = None
    ) -> Linearization:
        """Objective and constraints from one forward pass."""
        if rows is None and self.affine is not None and self.model.linear:
            steps = self.constraint.steps_at(self._split(x)[1])
            if steps is not None:
                return self._penalised(x, self._at_thresholds(self.affine, steps, x))
        if self.affine is not None:
            batch = self._batch(rows, scale)
            part = self.placed.part if rows is None else self.placed.part.index_select(0, rows)
            return self._linear(self.affine, x, batch, 0, part, batch.weight, [len(batch.y)])

        def terms(scores: Tensor, aux: Tensor, batch: Batch) -> Tensor:
            return torch.cat((self._risk(scores, aux, batch), self._values(scores, aux, batch)))

        return self._penalised(x, self.of_scores(terms, x, rows, scale))

    def objective(self, x: Tensor, rows: Tensor | None = None) -> Linearization:
        """Penalised risk."""
        return self._penalised(x, self.of_scores(self._risk, x, rows))

    def constraints(
        self, x: Tensor, rows: Tensor | None = None, scale: Tensor | None = None
    ) -> Linearization:
        """Constraint values."""
        return self.of_scores(self._values, x, rows, scale)

    def estimates(self, x: Tensor, rows: Tensor, *draws: tuple[Tensor, Tensor]) -> Linearization:
        """Risk from `rows`, constraints from each draw.

        Linear constraints take one forward pass and one table in all.
        """
        if self.affine is None:
            return separate_estimates(self, x, rows, *draws)
        n = len(rows)
        index = torch.cat((rows, *(drawn for drawn, _ in draws)))
        joint, part = self.data.rows(index), self.placed.part.index_select(0, index[n:])
        weight = joint.weight[n:] * torch.cat([scale for _, scale in draws]).to(joint.weight)
        sizes = [len(drawn) for drawn, _ in draws]
        return self._linear(self.affine, x, joint, n, part, weight, sizes)

    def _linear(
        self,
        affine: AffineMap,
        x: Tensor,
        batch: Batch,
        n_first: int,
        part: Tensor,
        weight: Tensor,
        sizes: list[int],
    ) -> Linearization:
        """Terms of a linear constraint: risk of the first rows (0: of all), values of the others.

        All derivatives are in closed form where they can be: autograd takes three times as long.
        """
        w, aux = self._split(x)
        scores, model_pullback = self.model.linearize(w, batch.X)
        first = slice(0, n_first or None)
        risk, risk_gradient = self.risk.linearize(
            scores[first], batch.y[first], batch.weight[first]
        )
        share = batch.weight.sum() / self.total if n_first == 0 else 1.0
        statistics, statistics_pullback = self.constraint.linearize(
            scores[n_first:], batch.y[n_first:], aux
        )
        values, table_pullback = affine.of_draws(statistics, part, weight, sizes)

        def pullback(weights: Tensor) -> Tensor:
            of_risk = (weights[0] * share) * risk_gradient()
            on_scores, on_aux = statistics_pullback(table_pullback(weights[1:]))
            on_scores = on_scores + of_risk if n_first == 0 else torch.cat((of_risk, on_scores))
            return torch.cat((model_pullback(on_scores), on_aux))

        def span() -> Tensor:
            blocks = [risk.new_ones((1, 1)), *[affine.span] * len(sizes)]
            diagonal: Tensor = torch.block_diag(*blocks)  # type: ignore[no-untyped-call]
            return diagonal

        value = torch.cat(((share * risk)[None], values))
        return self._penalised(x, Linearization(value, pullback, span))

    def _at_thresholds(self, affine: AffineMap, steps: Above, x: Tensor) -> Linearization:
        """Terms on all rows where extra variables are thresholds: many gradients in one pass."""
        scores, model_pullback = self.model.linearize(self._split(x)[0], self.data.X)
        y, part, weight, _ = self.placed
        risk, risk_gradient = self.risk.linearize(scores, y, weight)
        values, steps_pullback = affine.of_steps(steps, steps.soft(scores, y), part, weight)

        def together(weights: Tensor) -> Tensor:
            on_scores, on_aux = steps_pullback(weights[:, 1:])
            on_scores += risk_gradient() * weights[:, 0]
            return torch.cat((model_pullback(on_scores[:, None]).T, on_aux), dim=1)

        return Linearization(
            torch.cat((risk[None], values)),
            lambda weights: together(weights[None])[0],
            None,
            together,
        )

    @property
    def difference_of_convex(self) -> bool:
        """Whether `convex_parts` is there: for scores that are linear in the parameters."""
        return self.model.linear and self.constraint.difference_of_convex

    def convex_parts(self, x: Tensor) -> Linearization:
        """Objective and the constraints' two parts, (1 + 2 m,): all convex; c = first - second."""

        def terms(scores: Tensor, aux: Tensor, batch: Batch) -> Tensor:
            parts = self.constraint.convex_parts(scores, self.constraint.place(*batch[1:]), aux)
            return torch.cat((self._risk(scores, aux, batch), parts.reshape(-1)))

        return self._penalised(x, self.of_scores(terms, x))

    def evaluate(self, x: Tensor) -> Evaluation:
        """Soft and hard values from one pass of the model in evaluation mode."""
        w, aux = self._split(x)
        y, weight = self.data.y, self.data.weight
        self.model.settle(w, self.data.X)
        scores = self.model.scores(w, self.data.X)
        sums = self.constraint.sums(scores, self.placed, aux)
        loss, error = (value(scores, y, weight)[None] for value in (self.risk.soft, self.risk.hard))
        loss = loss + self.alpha * self.model.penalty(w).value
        soft = torch.cat((loss, self.constraint.of_moments(sums, self.counts, aux)))
        return Evaluation(
            soft, torch.cat((error, self.constraint.hard_values(scores, self.placed, aux)))
        )

    def sharpened(self) -> FairERM:
        """The problem at twice the temperature of the soft rates; itself without any."""
        return self._under(self.constraint.sharpened())

    def loosened(self, x: Tensor, by: float) -> tuple[FairERM, Tensor]:
        """The problem with more slack, and extra variables that suit the parameters in x."""
        problem = self._under(self.constraint.loosened(by))
        return problem, x if problem is self else problem.variables(self._split(x)[0])

    def _under(self, constraint: MomentConstraint) -> FairERM:
        return self if constraint is self.constraint else replace(self, constraint=constraint)

    @property
    def offsets(self) -> Tensor:
        """Positions of the intercept, or of the biases of a network's last layer."""
        return self.model.offsets if self.constraint.offsets_matter else self.model.offsets[:0]

    def project(self, x: Tensor) -> Tensor:
        """No set constraint here."""
        return x

    def of_scores(
        self,
        terms: Callable[[Tensor, Tensor, Batch], Tensor],
        x: Tensor,
        rows: Tensor | None = None,
        scale: Tensor | None = None,
    ) -> Linearization:
        """Terms of scores and extra variables as functions of x."""
        batch, (w, aux) = self._batch(rows, scale), self._split(x)
        scores, model_pullback = self.model.linearize(w, batch.X)
        value, terms_pullback = linearized(lambda z, a: terms(z, a, batch), scores, aux)

        def pullback(weights: Tensor) -> Tensor:
            on_scores, on_aux = terms_pullback(weights)
            return torch.cat((model_pullback(on_scores), on_aux))

        return Linearization(value, pullback)

    def _risk(self, scores: Tensor, aux: Tensor, batch: Batch) -> Tensor:
        # The weights of a draw add up to those of the data in the mean only: no ratio of sums.
        share = batch.weight.sum() / self.total
        return (share * self.risk.soft(scores, batch.y, batch.weight))[None]

    def _values(self, scores: Tensor, aux: Tensor, batch: Batch) -> Tensor:
        sums = self.constraint.sums(scores, self.constraint.place(*batch[1:]), aux)
        if self.affine is None:
            return self.constraint.of_moments(sums, self.counts, aux)
        return self.affine.of_table(sums)

    def _batch(self, rows: Tensor | None, scale: Tensor | None) -> Batch:
        """Rows with weights that add up to those of the data, exactly or in the mean over draws."""
        if rows is None:
            return self.data
        batch = self.data.rows(rows)
        factor = self.total / batch.weight.sum() if scale is None else scale.to(self.total)
        return batch._replace(weight=batch.weight * factor)

    def _penalised(self, x: Tensor, terms: Linearization) -> Linearization:
        """With the penalty added to the first of the terms."""
        if self.alpha == 0:
            return terms
        penalty = self.model.penalty(x[: self.model.n_params])

        def penalised(pullback: Callable[[Tensor], Tensor], weights: Tensor) -> Tensor:
            gradient = pullback(weights)
            of_model = gradient[..., : self.model.n_params]
            of_model += (self.alpha * weights[..., :1]) * penalty.gradient
            return gradient

        value = terms.value.clone()
        value[0] += self.alpha * penalty.value
        together = terms.together and partial(penalised, terms.together)
        pullback = partial(penalised, terms.pullback)
        return terms._replace(value=value, pullback=pullback, together=together)

    def _split(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x[: self.model.n_params], x[self.model.n_params :]

    def _empty_table(self) -> tuple[Tensor, Tensor, Tensor]:
        sums = self.counts.new_zeros((self.constraint.n_parts, self.constraint.statistic.n_columns))
        return sums, self.counts, self.counts.new_zeros(self.constraint.n_aux)
