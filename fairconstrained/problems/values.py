r"""Empirical risk minimisation under a moment constraint: values and gradients on all rows.

A pass over the rows gives a table of sums, and from it follow objective and constraints. Functions
of single rows are differentiated in closed form, the function of the table by its affine map or by
autograd.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from math import sqrt
from typing import Any, Self

import torch
from torch import Tensor

from fairconstrained.constraints.affine import AffineMap
from fairconstrained.constraints.moments import MomentConstraint
from fairconstrained.constraints.steps import Above
from fairconstrained.constraints.tables import Placement, blocks_of
from fairconstrained.losses import linearized
from fairconstrained.models.features import Model
from fairconstrained.models.linear import LinearModel
from fairconstrained.problems.base import Evaluation, Linearization
from fairconstrained.problems.objectives import Objective
from fairconstrained.problems.rows import Rows, Sums

OnScores = Callable[[Tensor], tuple[Tensor, Tensor]]  # weights on sums to (on_scores, on_aux)


@dataclass(frozen=True)
class ERM:
    r"""Empirical risk minimisation under a moment constraint.

    .. math::

        \min_{w, a}\; f(z) + \frac{\alpha}{2} \lVert \beta(w) \rVert^2
        \quad \text{s.t.} \quad g(M(z), N, a) \le 0, \qquad z_i = f_w(x_i),

    with an objective such as the mean loss,
    :math:`f(z) = \sum_i \omega_i\, \ell(z_i, y_i) / \sum_i \omega_i`. The variables x = (w, a) are
    the parameters of the model and the extra variables of the constraint.

    Rows in memory, in blocks and of several workers give the same values. Where a constraint
    depends on the order of all scores, hard values of more than 400,000 rows that are not in memory
    are computed from quantiles (:attr:`~fairconstrained.problems.rows.Rows.quantiles`).
    """

    model: Model  # linear, if the rows are not in memory
    data: Rows
    risk: Objective
    constraint: MomentConstraint
    alpha: float  # weight of half the squared norm of the coefficients
    initial: Tensor | None = None  # parameters (n_params,) to start from in place of the model's
    # Parameters of baselines: of the unconstrained solution, and of the log odds of two classes in
    # a linear model, on which group thresholds are found.
    free: Tensor | None = None
    log_odds: Tensor | None = None
    # Returns the point and multipliers of a simpler model fitted to the rows of a problem: a warm
    # start for training on them.
    simpler: Callable[[Any], tuple[Tensor, Tensor]] | None = None

    @cached_property
    def placed(self) -> Placement:
        """All rows, in memory, with their parts of the constraint's table."""
        return self.constraint.partition.place(self.data.y, self.data.group, self.data.weight)

    @cached_property
    def counts(self) -> Tensor:
        """Weight in each part of the table, (n_parts,)."""
        return self.placed.counts() if self.data.in_memory else self.data.counts(self.constraint)

    @cached_property
    def affine(self) -> AffineMap | None:
        """The values as an affine map of the sums over rows, or None."""
        return self.constraint.affine(self.counts) if self.risk.is_additive else None

    @property
    def n_rows(self) -> int:
        """Number of rows of all workers."""
        return self.data.n_rows

    @cached_property
    def n_constraints(self) -> int:
        """Number m of constraint values."""
        return len(self.constraint.slack)

    @property
    def offsets(self) -> Tensor:
        """Positions of the intercepts, or of the biases of the last layer of a network."""
        return self.model.offsets

    def start(self) -> Tensor:
        """Return the start, (n_variables,): the unconstrained solution if it is feasible."""
        if self.initial is not None:
            return self.variables(self.initial)
        if self.free is not None:
            x = self.variables(self.free)
            if self.evaluate(x).hard[1:].max() <= 0.0:
                return x
        return self.variables(self.model.init())

    def variables(self, w: Tensor) -> Tensor:
        """Append to the parameters w the matching extra variables of the constraint."""
        if not self.constraint.n_aux:
            return w
        if self.subsampled is not self:
            return self.subsampled.variables(w)
        rows = self.data.quantiles
        scores = self.model.scores(w, rows.X)
        return torch.cat((w, self.constraint.init_aux(scores, self.placed_rows(rows))))

    def subsample(self) -> Self:
        """Return the problem on a weighted subsample of the rows, or itself if there are few."""
        data = self.data.subsample(self.constraint)
        return self if data is self.data else replace(self, data=data)

    @cached_property
    def subsampled(self) -> Self:
        """The cached `subsample`, for quantities that need no exact value."""
        return self.subsample()

    def __getstate__(self) -> dict[str, Any]:
        """Drop the cached subsample before the problem is sent to workers with their own rows."""
        self.counts  # noqa: B018 (caches the counts of all workers, which none can compute alone)
        return {name: value for name, value in vars(self).items() if name != "subsampled"}

    # ------------------------------------------------------------------ values and gradients

    def linearize(self, x: Tensor) -> Linearization:
        """Linearize objective and constraints in one pass over all rows."""
        w, aux = x.tensor_split([self.model.n_params])
        penalty, affine = self.model.penalty(w), self.affine
        sums, on_sums = self.data.linearized(partial(self._piece_sums, x))
        if affine is None:
            value, pullback = linearized(self._from_sums, sums, aux)
        else:
            risk, table = self._divided_sums(sums)
            value = torch.cat((risk, affine.values(table)))
        value = value.clone()
        value[0] += self.alpha * penalty.value

        def pullbacks(weights: Tensor) -> Tensor:
            if affine is None:
                sum_weights, on_aux = map(torch.stack, zip(*map(pullback, weights), strict=True))
            else:
                on_table = affine.on_table(weights[:, 1:]).flatten(start_dim=1)
                sum_weights = torch.cat((weights[:, :1], on_table), dim=1)
                on_aux = torch.zeros_like(aux)
            gradients = on_sums(sum_weights)
            gradients[:, : len(w)] += (self.alpha * weights[:, :1]) * penalty.gradient
            gradients[:, len(w) :] += on_aux
            return gradients

        span = partial(self._span, value, 1)
        return Linearization(value, lambda weights: pullbacks(weights[None])[0], span, pullbacks)

    def evaluate(self, x: Tensor) -> Evaluation:
        """Evaluate soft and hard values in one pass of the model in evaluation mode."""
        # Evaluation mode normalises by statistics of all the data at this point.
        self.model.update_batch_norm(x[: self.model.n_params], self.data.X)
        w, aux = x.tensor_split([self.model.n_params])
        if self.sums_decide:
            sums, hard_sums = self.data.total(partial(self._soft_and_hard_sums, w, aux))
            error, table = self._divided_sums(hard_sums)
            values = self.constraint.evaluate_hard(table, self.counts, aux)
            hard = torch.cat((error, self.constraint.without_rounding(values)))
        else:
            # The order of all scores matters here, so workers send their scores.
            pairs = self.data.gather(partial(self._sums_and_scores, w, aux))
            worker_sums, scores = zip(*pairs, strict=True)
            sums, hard = sum(worker_sums), self.hard(torch.cat(scores), aux)
        soft = self._from_sums(sums, aux)
        soft[0] += self.alpha * self.model.penalty(w).value
        return Evaluation(soft, hard)

    def hard(self, scores: Tensor, aux: Tensor) -> Tensor:
        """Return hard values from the scores of the representative rows."""
        rows = self.data.quantiles
        error = self.risk.hard(scores, rows.y, rows.weight)[None]
        values = self.constraint.hard_values(scores, self.placed_rows(rows), aux)
        return torch.cat((error, self.constraint.without_rounding(values)))

    def standard_errors(self, x: Tensor) -> Tensor:
        """Return standard errors of the hard constraint values at `x`, (m,)."""
        w, aux = x.tensor_split([self.model.n_params])
        in_one_group = self.data.group.ndim == 1  # rates of several groups err together
        if self.sums_decide and in_one_group and not self.data.in_memory:

            def scatter(rows: Rows) -> Tensor:
                return self.constraint.scatter(self.model.scores(w, rows.X), self.placed_rows(rows))

            return self.constraint.deviations_of(self.data.total(scatter))
        some = self.data.sample
        scores = self.model.scores(w, some.X).detach()
        errors = self.constraint.deviations(scores, self.placed_rows(some), aux)
        # The sample stands for all rows: errors fall with the root of their number.
        return errors * sqrt(some.n_rows / self.n_rows)

    # ------------------------------------------------------------------ sums over rows

    def _piece_sums(self, x: Tensor, rows: Rows) -> Sums:
        """Sum over a piece of the rows, and return the map from weights on sums to gradients."""
        w, aux = x.tensor_split([self.model.n_params])
        placed = self.placed_rows(rows)
        scores, model_pullback = self.model.linearize(w, rows.X)
        is_affine, steps = self.affine is not None, self.constraint.statistic_at(aux)
        # Extra variables are the thresholds of such steps.
        thresholds = steps if self.constraint.n_aux and isinstance(steps, Above) else None
        if is_affine and thresholds is not None and isinstance(self.model, LinearModel):
            return self._at_thresholds(thresholds, scores, placed, model_pullback)
        if is_affine:
            sums, on_scores = self._in_closed_form(scores, aux, placed)
        else:
            sums, pullback = linearized(lambda z, a: self._sums(z, placed, a), scores, aux)
            on_scores = pullback  # type: ignore[assignment]

        def gradients(weights: Tensor) -> Tensor:
            stacked = []
            for z, a in map(on_scores, weights):
                stacked.append(torch.cat((model_pullback(z), a)))
            return torch.stack(stacked)

        return sums, gradients

    def _in_closed_form(
        self, scores: Tensor, aux: Tensor, rows: Placement
    ) -> tuple[Tensor, OnScores]:
        """Sum risk and statistics, and return the map from weights on sums to scores.

        Autograd takes 1.4 times as long for a pass over 40,000 rows (docs/decisions.md). With many
        rows only the scores are stored: the statistics of a block fit into the cache and are
        computed again for the gradient. Storing them would take five vectors of length n.
        """
        total = self.data.total_weight
        risk, risk_gradient = self.risk.linearize(scores, rows.y, rows.weight, total)
        blocks = blocks_of(scores, *rows[:3])

        @lru_cache(maxsize=1)
        def placed(i: int) -> tuple[Placement, Tensor, Callable[[Tensor], tuple[Tensor, Tensor]]]:
            z, y, part, weight = blocks[i]
            block = Placement(y, part, weight, rows.n_parts)
            return block, *self.constraint.linearize(z, block.y, aux)

        table = scores.new_zeros(())
        for block, soft, _ in map(placed, range(len(blocks))):
            table = table + block.sum(soft)

        def pullback(weights: Tensor) -> tuple[Tensor, Tensor]:
            on_table, parts = weights[1:].reshape(table.shape), []
            for block, soft, on_statistics in map(placed, range(len(blocks))):
                parts.append(on_statistics(block.on_columns(on_table, soft)))
            on_blocks, on_aux = zip(*parts, strict=True)
            # A single block keeps its memory layout, which makes products with it faster.
            on_scores = on_blocks[0] if len(blocks) == 1 else torch.cat(on_blocks)
            return on_scores + weights[0] * risk_gradient(), torch.stack(on_aux).sum(dim=0)

        return torch.cat((risk[None], table.reshape(-1))), pullback

    def _at_thresholds(
        self,
        steps: Above,
        scores: Tensor,
        rows: Placement,
        model_pullback: Callable[[Tensor], Tensor],
    ) -> Sums:
        """Sum where extra variables are thresholds, with many gradients in one product.

        With one pullback for each, 20 gradients over 40,000 rows take 4.0 times as long. One
        gradient takes about the same time (docs/decisions.md).
        """
        total = self.data.total_weight
        risk, risk_gradient = self.risk.linearize(scores, rows.y, rows.weight, total)
        soft, part_weights = steps.soft(scores, rows.y), rows.weights()
        # For few parts, products take an eighth of the time of sums by index.
        table = part_weights @ soft

        def gradients(weights: Tensor) -> Tensor:
            tables, slopes = weights[:, 1:].reshape(-1, *table.shape), steps.slopes(soft)
            on_scores = risk_gradient() * weights[:, 0]
            for q, row_weight in enumerate(part_weights):
                inside = torch.nonzero(row_weight)[:, 0]
                weight = row_weight.index_select(0, inside)[:, None]
                weighted = slopes.index_select(0, inside) * weight
                on_scores.index_add_(0, inside, weighted @ tables[:, q].T)
            on_aux = -(tables * (part_weights @ slopes)).sum(dim=1)
            return torch.cat((model_pullback(on_scores[:, None]).T, on_aux), dim=1)

        return torch.cat((risk[None], table.reshape(-1))), gradients

    def _soft_and_hard_sums(self, w: Tensor, aux: Tensor, rows: Rows) -> Tensor:
        """Sum over a piece of the rows for soft and hard values, (2, n_sums)."""
        placed, scores = self.placed_rows(rows), self.model.scores(w, rows.X)
        return torch.stack((self._sums(scores, placed, aux), self.hard_sums(scores, placed)))

    def _sums_and_scores(self, w: Tensor, aux: Tensor, local: Rows) -> tuple[Tensor, Tensor]:
        """Return sums over a worker's rows, and its scores in the quantiles."""
        sums, scores = [], []
        for rows in local.pieces():
            scores.append(self.model.scores(w, rows.X))
            sums.append(self._sums(scores[-1], self.placed_rows(rows), aux))
        return torch.stack(sums).sum(dim=0), self.data.to_quantiles(local, torch.cat(scores))

    def _sums(self, scores: Tensor, rows: Placement, aux: Tensor) -> Tensor:
        """Sum objective and then constraint over a piece of the rows, as one vector."""
        risk = self.risk.sums(scores, rows.y, rows.weight) / self.data.total_weight
        table = self.constraint.statistic_at(aux).sums(scores, rows)
        return torch.cat((risk.reshape(-1), table.reshape(-1)))

    def _from_sums(self, sums: Tensor, aux: Tensor) -> Tensor:
        """Compute (f, c_1, ..., c_m) from the sums over all rows, without the penalty."""
        risk_sums, table = self._divided_sums(sums)
        risk = risk_sums if self.risk.is_additive else self.risk.from_sums(risk_sums)[None]
        return torch.cat((risk, self.constraint.evaluate(table, self.counts, aux)))

    def _divided_sums(self, sums: Tensor) -> tuple[Tensor, Tensor]:
        """Split sums into those for the objective and the table of the constraint."""
        shape = self.constraint.n_parts, self.constraint.statistic.n_columns
        risk_sums, table = sums.tensor_split([len(sums) - shape[0] * shape[1]])
        return risk_sums, table.reshape(shape)

    @property
    def sums_decide(self) -> bool:
        """Whether sums over rows determine the hard values, without the order of scores."""
        by_sums = self.affine is not None or self.constraint.label_based
        return not self.constraint.n_aux and by_sums and self.risk.row_error is not None

    def hard_sums(self, scores: Tensor, rows: Placement) -> Tensor:
        """Sum over a piece of the rows for the hard values."""
        fraction = rows.weight.sum() / self.data.total_weight
        error = self.risk.hard(scores, rows.y, rows.weight) * fraction
        table = rows.sums(self.constraint.statistic.hard, scores)
        return torch.cat((error[None], table.reshape(-1)))

    def placed_rows(self, rows: Rows) -> Placement:
        """Return rows with their parts, cached for all rows in memory."""
        if rows is self.data:
            return self.placed
        return self.constraint.partition.place(rows.y, rows.group, rows.weight)

    def _span(self, like: Tensor, n_draws: int) -> Tensor | None:
        """Return the span of the risk and of each draw's values, or None if it is unknown."""
        if self.affine is None or self.constraint.n_aux:
            return None
        blocks = [like.new_ones((1, 1)), *[self.affine.span] * n_draws]
        diagonal: Tensor = torch.block_diag(*blocks)  # type: ignore[no-untyped-call]
        return diagonal
