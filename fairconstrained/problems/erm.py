"""The problem that solvers see: values on all rows or drawn ones, and related problems."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar, Self

import torch
from torch import Generator, Tensor

from fairconstrained.constraints.affine import AffineMap
from fairconstrained.constraints.tables import Placement
from fairconstrained.models.features import Features
from fairconstrained.models.linear import LinearModel
from fairconstrained.problems import base
from fairconstrained.problems.base import Linearization
from fairconstrained.problems.baselines import Baseline, along, baselines
from fairconstrained.problems.rows import Rows
from fairconstrained.problems.saddle import Saddle
from fairconstrained.problems.values import ERM


@dataclass(frozen=True)
class FairERM(ERM):
    """Empirical risk minimisation with the capabilities that solvers need.

    The table of a draw of rows is scaled up to all rows and divided by the counts N of all rows.
    Linear constraints are then estimated without bias, and a group may be missing in the draw. In
    the same way mean losses are divided by the weight of all rows. If rows are not drawn uniformly,
    as with equally many from each part, each row has a scale.
    """

    offers: ClassVar[frozenset[str]] = frozenset(
        {
            *("exact", "sharpness", "more_slack", "draws", "held_out"),
            *("convex_parts", "convex_bounds", "saddle"),
        }
    )
    in_memory_only: ClassVar[frozenset[str]] = frozenset(
        {"draws", "held_out", "convex_parts", "convex_bounds", "saddle"}
    )

    @property
    def strata(self) -> Tensor:
        """Parts of the constraint's table that have rows, numbered without gaps, (n_rows,)."""
        # Rows whose groups are fractions are in no single part: all are one stratum.
        if self.data.group.ndim > 1:
            return torch.zeros(self.n_rows, dtype=torch.long)
        part = self.constraint.partition.part(self.data.y, self.data.group)
        present, index = torch.unique(part, return_inverse=True)
        strata: Tensor = index - (present < 0).sum()
        return strata

    # ------------------------------------------------------------------ estimates from draws

    def linearize(self, x: Tensor, rows: Tensor | None = None) -> Linearization:
        """Linearize objective and constraints on all rows, or estimate them from drawn rows."""
        if rows is None:
            return super().linearize(x)
        if self.affine is not None:
            batch, whole = self._drawn(rows, None), slice(None)
            placed = self.placed.take(rows)._replace(weight=batch.weight)
            return self._on_draws(self.affine, x, batch.X, placed, whole, whole, [len(rows)])

        def terms(*arguments: Any) -> Tensor:
            return torch.cat((self._risk(*arguments), self._values(*arguments)))

        return self._penalised(x, self.linearize_scores(terms, x, rows))

    def objective(self, x: Tensor, rows: Tensor | None = None) -> Linearization:
        """Linearize the penalised risk alone, on all rows in memory or on drawn rows."""
        return self._penalised(x, self.linearize_scores(self._risk, x, rows))

    def constraints(
        self, x: Tensor, rows: Tensor | None = None, scale: Tensor | None = None
    ) -> Linearization:
        """Linearize the constraints alone; `scale` is how many rows each drawn row represents."""
        return self.linearize_scores(self._values, x, rows, scale)

    def linearize_scores(
        self,
        values: Callable[[Tensor, Tensor, Rows], Tensor],
        x: Tensor,
        rows: Tensor | None = None,
        scale: Tensor | None = None,
    ) -> Linearization:
        """Linearize a function of scores, extra variables and drawn rows by autograd."""
        batch = self._drawn(rows, scale)
        return base.through_scores(lambda z, a: values(z, a, batch), self.model, x, batch.X)

    def estimates(self, x: Tensor, rows: Tensor, *draws: tuple[Tensor, Tensor]) -> Linearization:
        if self.affine is None or not draws:
            return base.separate_estimates(self, x, rows, *draws)
        # Linear constraints take one forward pass and one table for all draws.
        n = len(rows)
        scales = [self.data.total_weight.new_full((n,), self.n_rows / n)]
        scales += [scale.to(self.data.total_weight) for _, scale in draws]
        index = torch.cat((rows, *(drawn for drawn, _ in draws)))
        X, placed = self.data.X.rows(index), self.placed.take(index)
        placed.weight.mul_(torch.cat(scales))
        parts, sizes = (slice(0, n), slice(n, None)), [len(drawn) for drawn, _ in draws]
        return self._on_draws(self.affine, x, X, placed, *parts, sizes)

    def _on_draws(
        self,
        affine: AffineMap,
        x: Tensor,
        X: Features,
        rows: Placement,
        first: slice,
        drawn: slice,
        sizes: Sequence[int],
    ) -> Linearization:
        """Linearize the risk of the `first` rows, and a linear constraint on each of the draws.

        Autograd takes 1.9 times as long for a step on a batch of 128 rows, and 4.1 times for three
        draws of 128 rows (docs/decisions.md).
        """
        w, aux = x.tensor_split([self.model.n_params])
        scores, model_pullback = self.model.linearize(w, X)
        risk, risk_gradient = self.risk.linearize(
            scores[first], rows.y[first], rows.weight[first], self.data.total_weight
        )
        y, part, weight = rows.y[drawn], rows.part[drawn], rows.weight[drawn]
        statistics, statistics_pullback = self.constraint.linearize(scores[drawn], y, aux)
        values, table_pullback = affine.draw_values(statistics, part, weight, sizes)

        def pullback(weights: Tensor) -> Tensor:
            from_risk = weights[0] * risk_gradient()
            from_values, on_aux = statistics_pullback(table_pullback(weights[1:]))
            # With one draw for both, gradients by the same scores add up.
            same = first == drawn
            on_scores = from_values + from_risk if same else torch.cat((from_risk, from_values))
            return torch.cat((model_pullback(on_scores), on_aux))

        value = torch.cat((risk[None], values))
        span = partial(self._span, value, len(sizes))
        return self._penalised(x, Linearization(value, pullback, span))

    def _drawn(self, rows: Tensor | None, scale: Tensor | None) -> Rows:
        """Return drawn rows, each with the weight of the rows it represents.

        By default all represent equally many. The sum of their weights equals the data's in
        expectation only, so dividing by the batch's sum would be biased.
        """
        if rows is None:
            return self.data
        batch = self.data.take(rows)
        factor = self.n_rows / len(rows) if scale is None else scale.to(self.data.total_weight)
        return replace(batch, weight=batch.weight * factor)

    def _risk(self, scores: Tensor, aux: Tensor, rows: Rows) -> Tensor:
        """Estimate the objective, (1,), from drawn rows."""
        return self.risk.soft(scores, rows.y, rows.weight, self.data.total_weight)[None]

    def _values(self, scores: Tensor, aux: Tensor, rows: Rows) -> Tensor:
        """Estimate the constraints from drawn rows."""
        sums = self.constraint.statistic_at(aux).sums(scores, self.placed_rows(rows))
        if self.affine is None:
            return self.constraint.evaluate(sums, self.counts, aux)
        return self.affine.values(sums)

    def _penalised(self, x: Tensor, terms: Linearization) -> Linearization:
        return base.with_penalty(terms, self.model.penalty(x[: self.model.n_params]), self.alpha)

    # ------------------------------------------------------------------ rows held out

    def split_holdout(self, every: int, rng: Generator) -> tuple[Self, Tensor]:
        y, group = self.data.y.cpu(), self.data.group.cpu()
        if group.ndim > 1:  # a row with probabilities counts for its likeliest group
            group = group.argmax(dim=1)
        cell = y * (group.max() + 1) + group
        # Drawn on the CPU, so that a seed holds out the same rows on every device.
        train, held = (rows.to(self.data.y.device) for rows in base.one_in(every, cell, rng))
        # A label without rows held out could not be judged.
        if len(torch.unique(self.data.y[held])) < len(torch.unique(y)):
            return self, torch.arange(len(y), device=self.data.y.device)
        return replace(self, data=self.data.take(train)), held

    def warm_point(self, x: Tensor, dual: Tensor) -> tuple[Tensor, Tensor]:
        return (x, dual) if self.simpler is None else self.simpler(self)

    def holdout_risk(self, x: Tensor, rows: Tensor) -> Tensor:
        held = self.data.take(rows)
        at = self.model.scores(x[: self.model.n_params], held.X), held.y, held.weight
        return torch.stack((self.risk.soft(*at), self.risk.hard(*at)))

    # ------------------------------------------------------------------ similar problems

    def sharpened(self) -> Self:
        """Return the problem with soft rates twice as sharp, or itself without soft rates."""
        constraint = self.constraint.sharpened()
        return self if constraint is self.constraint else replace(self, constraint=constraint)

    def loosened(self, x: Tensor, by: float) -> tuple[Self, Tensor]:
        """Return the problem with more slack, and x with extra variables to match."""
        constraint = self.constraint.loosened(by)
        if constraint is self.constraint:
            return self, x
        problem = replace(self, constraint=constraint)
        return problem, problem.variables(x[: self.model.n_params])

    @cached_property
    def baselines(self) -> list[Baseline]:
        """Points that the results of solvers must not be worse than."""
        return baselines(self)

    along = along

    # ------------------------------------------------------------------ differences of convex parts

    @property
    def difference_of_convex(self) -> bool:
        """Whether `convex_parts` exists: scores must be linear in the parameters."""
        return isinstance(self.model, LinearModel) and self.constraint.difference_of_convex

    def convex_parts(self, x: Tensor) -> Linearization:
        """Linearize the objective and both convex parts of the constraints, (1 + 2 m,)."""

        def terms(scores: Tensor, aux: Tensor, rows: Rows) -> Tensor:
            parts = self.constraint.convex_parts(scores, self.placed_rows(rows), aux)
            return torch.cat((self._risk(scores, aux, rows), parts.reshape(-1)))

        return self._penalised(x, self.linearize_scores(terms, x))

    @property
    def has_convex_bounds(self) -> bool:
        """Whether the constraints are differences of convex functions of the scores."""
        return self.constraint.difference_of_convex

    def convex_bounds(self, x: Tensor, anchor: Tensor, *draw: Tensor) -> Linearization:
        r"""Linearize convex upper bounds on the constraints, tight at an anchor, from drawn rows.

        Let :math:`c = c^+ - c^-` with both parts convex in the scores z and the extra variables a.
        With the values :math:`z_0, a_0` at an anchor,

        .. math:: g(z, a) = c^+(z, a) - c^-(z_0, a_0)
                  - \nabla c^-(z_0, a_0)' \big( (z, a) - (z_0, a_0) \big) \ge c(z, a) .

        For a linear model this gives the subproblem (31) of the partial-parity paper. For other
        models it is still a bound, because c is a function of scores. A linearization in the
        parameters would give no bound.
        """
        w_0, aux_0 = anchor.tensor_split([self.model.n_params])
        parts = self.constraint.convex_parts

        def bounds(scores: Tensor, aux: Tensor, rows: Rows) -> Tensor:
            with torch.no_grad():
                # The bound is in the scores: no derivative by the anchor's parameters is needed.
                scores_0 = self.model.scores(w_0, rows.X)
            at = (scores_0.requires_grad_(), aux_0.clone().requires_grad_())
            placed = self.placed_rows(rows)
            concave = parts(at[0], placed, at[1])[1]
            # The slopes times a step, J d, are the derivative in u of the linear map u -> (J'u)'d.
            # torch's forward mode would give them directly, but compiles scripts on first use.
            u = torch.ones_like(concave, requires_grad=True)
            slopes = torch.autograd.grad(concave @ u, at, create_graph=True, materialize_grads=True)
            along = (slopes[0] * (scores - scores_0.detach())).sum()
            along = along + (slopes[1] * (aux - aux_0)).sum()
            (change,) = torch.autograd.grad(along, u, create_graph=True)
            linear: Tensor = concave.detach() + change
            return parts(scores, placed, aux)[0] - linear

        return self.linearize_scores(bounds, x, *draw)

    def saddle(self) -> Saddle | None:
        """Return the min-max form of AUCs with one quadratic surrogate, or None."""
        return Saddle.of(self)
