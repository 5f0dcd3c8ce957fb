r"""Empirical risk minimisation under a moment constraint, from a model, a loss and a constraint.

All derivatives pass through the scores: one forward pass of the model, closed forms or a small
autograd graph on the scores, and one pullback.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import torch
from torch import Generator, Tensor

from fairconstrained.autograd import linearized
from fairconstrained.constraints.affine import AffineMap
from fairconstrained.constraints.moments import MomentConstraint, Rows
from fairconstrained.constraints.statistics import BLOCK_ROWS, blocks_of, look_up
from fairconstrained.constraints.steps import Above
from fairconstrained.models import Model
from fairconstrained.models.features import Features
from fairconstrained.models.linear import LinearModel
from fairconstrained.problems.base import (
    Batch,
    Evaluation,
    Linearization,
    WithAllRows,
    one_in,
    separate_estimates,
    with_penalty,
)
from fairconstrained.problems.lines import Line, grid, of_labels, on_grid, thresholds
from fairconstrained.problems.majorant import Majorant
from fairconstrained.problems.objectives import Objective
from fairconstrained.problems.saddle import Saddle
from fairconstrained.problems.variants import Varied


def through_scores(
    terms: Callable[[Tensor, Tensor], Tensor], model: Model, x: Tensor, X: Features
) -> Linearization:
    """Linearize differentiable functions of scores and extra variables at x = (w, a)."""
    w, aux = x[: model.n_params], x[model.n_params :]
    scores, model_pullback = model.linearize(w, X)
    value, terms_pullback = linearized(terms, scores, aux)

    def pullback(weights: Tensor) -> Tensor:
        on_scores, on_aux = terms_pullback(weights)
        return torch.cat((model_pullback(on_scores), on_aux))

    return Linearization(value, pullback)


@dataclass(frozen=True)
class FairERM(Varied, WithAllRows):
    r"""Empirical risk minimisation under a moment constraint.

    .. math::

        \min_{w, a}\; f(z) + \frac{\alpha}{2} \lVert \beta(w) \rVert^2
        \quad \text{s.t.} \quad g(M(z), N, a) \le 0, \qquad z_i = f_w(x_i),

    with an objective such as the mean loss,
    :math:`f(z) = \sum_i \omega_i\, \ell(z_i, y_i) / \sum_i \omega_i`. The variables x = (w, a) are
    the parameters of the model and the extra variables of the constraint.

    The table of a draw of rows is scaled up to all rows and divided by the counts N of all rows.
    Linear constraints are then estimated without bias, and a group may be missing in the draw. In
    the same way mean losses are divided by the weight of all rows. If rows are not drawn uniformly,
    as with equally many from each part, each row has a scale.

    Parameters
    ----------
    model : Model
    data : Batch
    risk : Objective
    constraint : MomentConstraint
    alpha : float
        Weight of half the squared norm of the coefficients.
    initial : Tensor of shape (n_params,), optional
        Starting parameters; default: those of the model.
    free : Tensor of shape (n_params,), optional
        A solution of the problem without constraints, which no result may be worse than.
    simpler : callable, optional
        Gives the point and the multipliers of a simpler model that is fitted to the rows of a
        problem, from which training on them begins.
    """

    offers: ClassVar[frozenset[str]] = frozenset(
        {
            *("exact", "sharpness", "more_slack", "draws", "held_out"),
            *("convex_parts", "convex_bounds", "saddle"),
        }
    )

    model: Model
    data: Batch
    risk: Objective
    constraint: MomentConstraint
    alpha: float
    initial: Tensor | None = None
    free: Tensor | None = None
    simpler: Callable[[Any], tuple[Tensor, Tensor]] | None = None

    @cached_property
    def total(self) -> Tensor:
        """Sum of the weights."""
        return self.data.weight.sum()

    @cached_property
    def placed(self) -> Rows:
        """The rows with the part of each, as the constraint sees them."""
        return self.constraint.place(*self.data[1:])

    @cached_property
    def counts(self) -> Tensor:
        """Weight in each part of the table, (n_parts,)."""
        return self.placed.counts()

    @cached_property
    def affine(self) -> AffineMap | None:
        """The constraint as an affine map of its table, or None."""
        return self.constraint.affine(self.counts)

    @property
    def n_rows(self) -> int:
        """Number of rows of the data."""
        return len(self.data.y)

    @cached_property
    def n_constraints(self) -> int:
        """Number m of constraint values."""
        sums = self.counts.new_zeros((self.constraint.n_parts, self.constraint.statistic.n_columns))
        aux = self.counts.new_zeros(self.constraint.n_aux)
        return len(self.constraint.of_moments(sums, self.counts, aux))

    @property
    def strata(self) -> Tensor:
        """Parts of the constraint's table that have rows, numbered without gaps, (n_rows,)."""
        part = self.constraint.part(self.data.y, self.data.group)
        present, index = torch.unique(part, return_inverse=True)
        strata: Tensor = index - (present < 0).sum()
        return strata

    def variables(self, w: Tensor) -> Tensor:
        """The parameters w, with extra variables of the constraint that suit them."""
        if not self.constraint.n_aux:
            return w
        if self.few is not self:
            return self.few.variables(w)
        scores = self.model.scores(w, self.data.X)
        return torch.cat((w, self.constraint.init_aux(scores, self.placed)))

    # ------------------------------------------------------------------ values and gradients

    def linearize(self, x: Tensor, rows: Tensor | None = None) -> Linearization:
        """Objective and constraints from one forward pass."""
        if self.affine is None:
            batch = self._batch(rows, None)

            def terms(scores: Tensor, aux: Tensor) -> Tensor:
                risk = self.risk.soft(scores, batch.y, batch.weight, self.total)[None]
                return torch.cat((risk, self._values(scores, aux, batch)))

            return self._penalised(x, through_scores(terms, self.model, x, batch.X))
        if rows is None and isinstance(self.model, LinearModel):
            steps = self.constraint.steps_at(self._split(x)[1])
            if steps is not None:
                return self._penalised(x, self._at_thresholds(self.affine, steps, x))
        if rows is None and self.n_rows > BLOCK_ROWS:
            return self._penalised(x, self._on_blocks(self.affine, x))
        batch, placed = self._batch(rows, None), self.placed
        if rows is not None:
            placed = placed.take(rows)._replace(weight=batch.weight)
        whole, sizes = slice(None), [len(batch.y)]
        return self._penalised(
            x, self._in_closed_form(self.affine, x, batch.X, placed, whole, whole, sizes)
        )

    def objective(self, x: Tensor, rows: Tensor | None = None) -> Linearization:
        """The penalised risk alone."""
        batch = self._batch(rows, None)

        def risk(scores: Tensor, aux: Tensor) -> Tensor:
            return self.risk.soft(scores, batch.y, batch.weight, self.total)[None]

        return self._penalised(x, through_scores(risk, self.model, x, batch.X))

    def constraints(
        self, x: Tensor, rows: Tensor | None = None, scale: Tensor | None = None
    ) -> Linearization:
        """The constraints alone; `scale` is the number of rows that each row stands for."""
        return self.of_scores(self._values, x, rows, scale)

    def of_scores(
        self,
        values: Callable[[Tensor, Tensor, Batch], Tensor],
        x: Tensor,
        rows: Tensor | None = None,
        scale: Tensor | None = None,
    ) -> Linearization:
        """Linearize a function of scores, extra variables and a batch by autograd."""
        batch = self._batch(rows, scale)
        return through_scores(lambda z, a: values(z, a, batch), self.model, x, batch.X)

    def estimates(self, x: Tensor, rows: Tensor, *draws: tuple[Tensor, Tensor]) -> Linearization:
        """Estimate the risk from `rows` and the constraints from each draw.

        Linear constraints take one forward pass and one table for all draws.
        """
        if self.affine is None or not draws:
            return separate_estimates(self, x, rows, *draws)
        n = len(rows)
        scales = [self.total.new_full((n,), self.n_rows / n)]
        scales += [scale.to(self.total) for _, scale in draws]
        index = torch.cat((rows, *(drawn for drawn, _ in draws)))
        X, placed = self.data.X.rows(index), self.placed.take(index)
        placed.weight.mul_(torch.cat(scales))
        first, later = slice(0, n), slice(n, None)
        sizes = [len(drawn) for drawn, _ in draws]
        return self._penalised(
            x, self._in_closed_form(self.affine, x, X, placed, first, later, sizes)
        )

    def _evaluate(self, x: Tensor) -> Evaluation:
        w, aux = self._split(x)
        y, weight = self.data.y, self.data.weight
        scores = self.model.scores(w, self.data.X)
        sums = self.constraint.sums(scores, self.placed, aux)
        loss = self.risk.soft(scores, y, weight)[None] + self.alpha * self.model.penalty(w).value
        soft = torch.cat((loss, self.constraint.of_moments(sums, self.counts, aux)))
        return Evaluation(soft, self.hard(scores, aux))

    # ------------------------------------------------------------------ rows held out

    def divided(self, every: int, rng: Generator) -> tuple[Self, Tensor]:
        """Return the problem on most rows, and one in `every` rows of each label and group.

        If a label has too few rows for that in all groups, every row is in both.
        """
        y, group = self.data.y.cpu(), self.data.group.cpu()
        cell = y * (group.max() + 1) + group
        kept, held = (rows.to(self.data.y.device) for rows in one_in(every, cell, rng))
        if len(torch.unique(self.data.y[held])) < len(torch.unique(y)):
            return self, torch.arange(len(y), device=self.data.y.device)
        return replace(self, data=self.data.rows(kept)), held

    def begun(self, x: Tensor, dual: Tensor) -> tuple[Tensor, Tensor]:
        """Return where training on these rows begins: here, or at the simpler model."""
        return (x, dual) if self.simpler is None else self.simpler(self)

    def risks(self, x: Tensor, rows: Tensor) -> Tensor:
        """Soft and hard objective of these rows alone, without penalty, as in prediction, (2,)."""
        batch = self.data.rows(rows)
        scores = self.model.scores(self._split(x)[0], batch.X)
        soft, hard = (
            risk(scores, batch.y, batch.weight) for risk in (self.risk.soft, self.risk.hard)
        )
        return torch.stack((soft, hard))

    # ------------------------------------------------------------------ routes that exist for speed

    def _in_closed_form(
        self,
        affine: AffineMap,
        x: Tensor,
        X: Features,
        rows: Rows,
        first: slice,
        drawn: slice,
        sizes: Sequence[int],
    ) -> Linearization:
        """Risk of the `first` rows, and a linear constraint on each of the draws.

        Autograd takes 3.6 times as long for a step on a batch of 128 rows, 4.1 times for three
        draws of 128 rows, and 1.4 times for a pass over 40,000 rows
        (``python -m benchmarks.speed.routes``).
        """
        w, aux = self._split(x)
        scores, model_pullback = self.model.linearize(w, X)
        risk, risk_gradient = self.risk.linearize(
            scores[first], rows.y[first], rows.weight[first], self.total
        )
        statistics, statistics_pullback = self.constraint.linearize(
            scores[drawn], rows.y[drawn], aux
        )
        values, table_pullback = affine.of_draws(
            statistics, rows.part[drawn], rows.weight[drawn], sizes
        )

        def pullback(weights: Tensor) -> Tensor:
            of_risk = weights[0] * risk_gradient()
            of_values, on_aux = statistics_pullback(table_pullback(weights[1:]))
            same = first == drawn
            on_scores = of_values + of_risk if same else torch.cat((of_risk, of_values))
            return torch.cat((model_pullback(on_scores), on_aux))

        span = span_of_terms(affine, risk, len(sizes))
        return Linearization(torch.cat((risk[None], values)), pullback, span)

    def _on_blocks(self, affine: AffineMap, x: Tensor) -> Linearization:
        """`_in_closed_form` on all rows, keeping nothing but the scores.

        The statistics of some rows at a time fit into the cache and are computed again for the
        pullback. To keep them would take five vectors of length n.
        """
        w, aux = self._split(x)
        scores, model_pullback = self.model.linearize(w, self.data.X)
        rows, constraint = self.placed, self.constraint
        risk, risk_gradient = self.risk.linearize(scores, rows.y, rows.weight)
        values = affine.of_table(constraint.sums(scores, rows, aux))

        def pullback(weights: Tensor) -> Tensor:
            on_scores, on_aux = weights[0] * risk_gradient(), torch.zeros_like(aux)
            on_table = torch.nn.functional.pad(affine.on_table(weights[1:]), (0, 0, 0, 1))
            for total, z, y, part, weight in blocks_of(on_scores, scores, *rows[:3]):
                soft, statistics_pullback = constraint.linearize(z, y, aux)
                on_rows = look_up(on_table, part, soft) * weight[:, None]
                of_scores, of_aux = statistics_pullback(on_rows)
                total += of_scores
                on_aux += of_aux
            return torch.cat((model_pullback(on_scores), on_aux))

        return Linearization(
            torch.cat((risk[None], values)), pullback, span_of_terms(affine, risk, 1)
        )

    def _at_thresholds(self, affine: AffineMap, steps: Above, x: Tensor) -> Linearization:
        """All terms on all rows where extra variables are thresholds: many gradients in one pass.

        With one pullback for each, 20 gradients over 40,000 rows take 4.0 times as long. One
        gradient takes about the same time (``python -m benchmarks.speed.routes``).
        """
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

    # ------------------------------------------------------------------ other protocols

    @property
    def difference_of_convex(self) -> bool:
        """Whether `convex_parts` exists: scores must be linear in the parameters."""
        return isinstance(self.model, LinearModel) and self.constraint.difference_of_convex

    def convex_parts(self, x: Tensor) -> Linearization:
        """The objective and both convex parts of the constraints, (1 + 2 m,)."""
        batch = self.data

        def terms(scores: Tensor, aux: Tensor) -> Tensor:
            risk = self.risk.soft(scores, batch.y, batch.weight, self.total)[None]
            parts = self.constraint.convex_parts(scores, self.placed, aux)
            return torch.cat((risk, parts.reshape(-1)))

        return self._penalised(x, through_scores(terms, self.model, x, batch.X))

    @property
    def has_convex_bounds(self) -> bool:
        """Whether the constraints are differences of convex functions of the scores."""
        return self.constraint.difference_of_convex

    def convex_bounds(self, anchor: Tensor) -> Majorant:
        """Convex upper bounds on the constraints, equal to them at an anchor."""
        return Majorant(self, anchor)

    def saddle(self) -> Saddle | None:
        """The min-max form of AUCs with one quadratic surrogate, or None for other problems."""
        return Saddle.of(self)

    @property
    def offsets(self) -> Tensor:
        """Positions of the intercepts, or of the biases of the last layer of a network."""
        return self.model.offsets

    # ------------------------------------------------------------------ comparisons of results

    def along(self, x: Tensor, direction: Tensor, reach: float) -> Line:
        """Hard values on a line: all of them if labels determine them, else at some points."""
        moved = torch.nonzero(direction)[:, 0]
        moves_offsets = bool(torch.isin(moved, self.model.offsets).all())
        if not (isinstance(self.model, LinearModel) or moves_offsets):
            steps = grid(x, reach)
            return on_grid(lambda step: self.evaluate(x + step * direction).hard, steps)
        w, aux = self._split(x)
        scores = self.model.scores(w, self.data.X)
        slopes = self.model.scores(w + self._split(direction)[0], self.data.X) - scores
        if self.risk.of_rows and self.affine is not None and self.constraint.of_labels:
            of_rows = self.risk.of_rows, self.constraint.statistic.hard
            return of_labels(scores, slopes, self.placed, *of_rows, self.affine, reach)
        steps = grid(x, reach)
        if moves_offsets:
            steps = torch.cat((steps, thresholds(scores, slopes, reach)))
        return on_grid(lambda step: self.hard(scores + step * slopes, aux), steps)

    # ------------------------------------------------------------------ pieces

    def hard(self, scores: Tensor, aux: Tensor) -> Tensor:
        """Hard values of these scores of all rows."""
        error = self.risk.hard(scores, self.data.y, self.data.weight)[None]
        return torch.cat((error, self.constraint.hard_values(scores, self.placed, aux)))

    def _values(self, scores: Tensor, aux: Tensor, batch: Batch) -> Tensor:
        sums = self.constraint.sums(scores, self.constraint.place(*batch[1:]), aux)
        if self.affine is None:
            return self.constraint.of_moments(sums, self.counts, aux)
        return self.affine.of_table(sums)

    def _batch(self, rows: Tensor | None, scale: Tensor | None) -> Batch:
        """Rows, each with the weight of the rows that it stands for.

        By default all stand for as many. The sum of their weights is then that of the data in
        expectation only: to divide by the batch's own sum would be biased.
        """
        if rows is None:
            return self.data
        batch = self.data.rows(rows)
        factor = self.n_rows / len(rows) if scale is None else scale.to(self.total)
        return batch._replace(weight=batch.weight * factor)

    def _penalised(self, x: Tensor, terms: Linearization) -> Linearization:
        return with_penalty(terms, self.model.penalty(self._split(x)[0]), self.alpha)


def span_of_terms(affine: AffineMap, risk: Tensor, n_draws: int) -> Callable[[], Tensor]:
    """The span of the risk and of the values of each draw."""

    def span() -> Tensor:
        blocks = [risk.new_ones((1, 1)), *[affine.span] * n_draws]
        diagonal: Tensor = torch.block_diag(*blocks)  # type: ignore[no-untyped-call]
        return diagonal

    return span
