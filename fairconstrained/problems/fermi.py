"""The penalised problem: minimise risk plus ERMI, without constraints."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar, Literal, Self

import torch
from torch import Tensor

from fairconstrained.constraints.mutual_information import MutualInformation
from fairconstrained.problems.base import Evaluation
from fairconstrained.problems.erm import FairERM
from fairconstrained.problems.rows import Rows


@dataclass(frozen=True)
class FermiERM(FairERM):
    r"""Minimise the mean loss plus a penalty on mutual information.

    .. math::

        \min_w \; f(z) + \frac{\alpha}{2} \lVert \beta(w) \rVert^2
        + \lambda \, \mathrm{ERMI}(M(z), N), \qquad M_{qj} = \sum_i \omega_i S_{iq} F_j(z_i) .

    There are no constraints: the values of the criterion are only measured, on soft and on
    predicted labels. The memberships S of the rows are zeros and ones where the groups are known,
    and fractions elsewhere.
    """

    offers: ClassVar[frozenset[str]] = frozenset(
        {"exact", "label_tables", "mutual_information_saddle"}
    )
    in_memory_only: ClassVar[frozenset[str]] = frozenset({"mutual_information_saddle"})
    affine = None  # the penalty is no linear function of the table
    n_constraints: ClassVar[Literal[0]] = 0  # the penalty takes their place

    information: MutualInformation = field(kw_only=True)  # with the counts N
    weight: float = field(kw_only=True)  # lambda
    shift: Tensor | None = field(default=None, kw_only=True)  # added to the table M in the penalty

    def start(self) -> Tensor:
        return self.model.init()

    def saddle_gradients(
        self, x: Tensor, dual: Tensor, rows: Tensor, table: str = "labels"
    ) -> tuple[Tensor, Tensor]:
        r"""Estimate gradients of the saddle form from rows that are drawn uniformly.

        The gradient in x of risk plus :math:`\lambda \psi(\cdot, W)`, and the gradient of
        :math:`\psi` in W (n_parts, n_classes) at predicted "labels" or "probabilities".
        """
        batch, statistic = self._drawn(rows, None), self.constraint.statistic
        placed = self.placed.take(rows)._replace(weight=batch.weight)
        scores, model_pullback = self.model.linearize(x, batch.X)
        total = self.data.total_weight
        _, risk_gradient = self.risk.linearize(scores, batch.y, batch.weight, total)
        soft, on_statistics = statistic.linearize(scores, batch.y)
        weights = self.weight * self.information.weights(dual)
        on_scores = risk_gradient() + on_statistics(placed.on_columns(weights, soft))
        counted = (statistic.hard if table == "labels" else statistic.soft)(scores, batch.y)
        on_x, penalty = model_pullback(on_scores), self.model.penalty(x).gradient
        on_x[: len(penalty)] += self.alpha * penalty
        return on_x, self.information.ascent(dual, placed.sum(counted))

    def label_objective(self, x: Tensor) -> tuple[float, float]:
        """Return error plus penalty of predicted labels, and their mutual information or 0."""

        def sums(rows: Rows) -> Tensor:
            return self.hard_sums(self.model.scores(x, rows.X), self.placed_rows(rows))

        error, table = self._divided_sums(self.data.total(sums))
        if not self._is_penalised:
            return float(error), 0.0
        information = float(self.information.value(table))
        return float(error) + self.weight * information, information

    def on_rows_of(self, other: Self) -> Self:
        """Return the problem on the rows of another one, without a shift."""
        return replace(self, data=other.data, shift=None)

    def with_weight(self, weight: float) -> Self:
        r"""Return the problem with another :math:`\lambda`."""
        return replace(self, weight=weight)

    def sharpened_at(self, x: Tensor) -> Self:
        """Return the problem with probabilities twice as sharp, shifted to the labels at x."""
        return replace(self, constraint=self.constraint.sharpened(), shift=None).moved_to_labels(x)

    def moved_to_labels(self, x: Tensor, step: float = 1.0) -> Self:
        """Return the problem with its table moved to the labels at x, or itself without penalty."""
        if not self._is_penalised:
            return self
        _, soft, _, hard = self._at(x)
        apart = hard - soft
        before = torch.zeros_like(apart) if self.shift is None else self.shift
        # No shift is the paper's problem, not an estimate of one: the first step is full.
        return replace(self, shift=torch.lerp(before, apart, 1.0 if self.shift is None else step))

    def evaluate(self, x: Tensor) -> Evaluation:
        self.model.update_batch_norm(x, self.data.X)
        risk, soft, error, hard = self._at(x)
        objective = risk + self._penalty_of(soft) + self.alpha * self.model.penalty(x).value
        return Evaluation(self._measured(objective, soft), self._measured(error, hard))

    def _at(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return mean risk and table of probabilities, then error and table of labels."""
        sums = self.data.total(partial(self._soft_and_hard_sums, x, x.new_zeros(0)))
        (risk, soft), (error, hard) = map(self._divided_sums, sums)
        return risk[0], soft, error[0], hard

    def _from_sums(self, sums: Tensor, aux: Tensor) -> Tensor:
        risk, table = self._divided_sums(sums)
        return risk + self._penalty_of(table)

    @property
    def _is_penalised(self) -> bool:
        return self.weight != 0 and self.information.n_parts > 0

    def _penalty_of(self, table: Tensor) -> Tensor:
        """Return the penalty on a table of class probabilities, ()."""
        if not self._is_penalised:
            # A zero that depends on the table, so that autograd still gives a gradient.
            return (0.0 * table).sum()
        moved = table if self.shift is None else table + self.shift
        return self.weight * self.information.value(moved)

    def _measured(self, first: Tensor, table: Tensor) -> Tensor:
        values = self.constraint.evaluate(table, self.information.counts, table.new_zeros(0))
        return torch.cat((first.reshape(1), values))
