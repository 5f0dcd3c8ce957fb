r"""Problems on rows in parts that compare the order of scores: gaps at all thresholds, and AUCs.

Soft values are functions of sums over rows, and so are their gradients. Hard values are those of
rows that stand for the rows of all workers (:mod:`fairconstrained.problems.representatives`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from fairconstrained.autograd import linearized
from fairconstrained.constraints import Stack
from fairconstrained.constraints.moments import MomentConstraint
from fairconstrained.models import Model
from fairconstrained.problems import lines
from fairconstrained.problems.base import (
    Batch,
    Evaluation,
    Linearization,
    WithAllRows,
    with_penalty,
)
from fairconstrained.problems.erm import FairERM
from fairconstrained.problems.lines import Line
from fairconstrained.problems.moments import away_from_equal
from fairconstrained.problems.objectives import Objective
from fairconstrained.problems.parted_rows import PartedRows
from fairconstrained.problems.representatives import EveryonesColumns
from fairconstrained.problems.variants import Varied


@dataclass(frozen=True)
class PartedScoresERM(Varied, WithAllRows):
    r"""The problem of :class:`FairERM` on rows in parts, for any constraint and objective.

    The model must be linear, with one output. Parameters are those of :class:`FairERM`, with
    :class:`PartedRows` for `data`.
    """

    model: Model
    data: PartedRows
    risk: Objective
    constraint: MomentConstraint
    alpha: float
    initial: Tensor | None = None
    free: Tensor | None = None

    @cached_property
    def of_all(self) -> FairERM:
        """The problem on what stands for the rows of all workers."""
        rows = self.data.representatives
        return FairERM(self.model, rows, self.risk, self.constraint, self.alpha)

    offers: ClassVar[frozenset[str]] = frozenset({"exact", "sharpness", "more_slack"})

    @cached_property
    def counts(self) -> Tensor:
        """Weight in each part of the table, (n_parts,)."""
        return self.data.count_parts(self.constraint)

    @property
    def n_rows(self) -> int:
        """Number of rows of all workers."""
        return self.data.n_rows

    @property
    def n_constraints(self) -> int:
        """Number m of constraint values."""
        return len(self.constraint.slack)

    @property
    def offsets(self) -> Tensor:
        """Positions of the intercepts."""
        return self.model.offsets

    def variables(self, w: Tensor) -> Tensor:
        """The parameters w, with extra variables of the constraint that suit them."""
        return self.of_all.variables(w) if self.constraint.n_aux else w

    # ------------------------------------------------------------------ values and gradients

    def linearize(self, x: Tensor) -> Linearization:
        """Objective and constraints from one pass; one more gives any number of gradients."""
        w, aux = self._split(x)
        sums = self.data.total(lambda batch: self._sums(self.model.scores(w, batch.X), aux, batch))
        value, on_table = linearized(self._of_sums, sums, aux)

        def together(weights: Tensor) -> Tensor:
            on_sums, on_aux = _stacked([on_table(row) for row in weights])
            gradients = self.data.total(lambda batch: self._gradients(w, aux, batch, on_sums))
            gradients[:, len(w) :] += on_aux
            return gradients

        terms = Linearization(value, lambda weights: together(weights[None])[0], None, together)
        return with_penalty(terms, self.model.penalty(w), self.alpha)

    def _evaluate(self, x: Tensor) -> Evaluation:
        w, aux = self._split(x)
        scores = []

        def of_batch(batch: Batch) -> Tensor:
            scores.append(self.model.scores(w, batch.X))
            return self._sums(scores[-1], aux, batch)

        soft = self._of_sums(self.data.total(of_batch), aux)
        soft[0] += self.alpha * self.model.penalty(w).value
        return Evaluation(soft, self._hard(torch.cat(scores), aux))

    def _sums(self, scores: Tensor, aux: Tensor, batch: Batch) -> Tensor:
        """Sums over some rows, of the objective and then of the constraint, as one vector."""
        risk = self.risk.sums(scores, batch.y, batch.weight)
        table = self.constraint.sums(scores, self.constraint.place(*batch[1:]), aux)
        return torch.cat((risk.reshape(-1), table.reshape(-1)))

    def _of_sums(self, sums: Tensor, aux: Tensor) -> Tensor:
        """(f, c_1, ..., c_m) from the sums over all rows, without the penalty."""
        shape = self.constraint.n_parts, self.constraint.statistic.n_columns
        of_risk, table = sums.tensor_split([len(sums) - shape[0] * shape[1]])
        risk = self.risk.of_sums(of_risk / self.data.total_weight)
        values = self.constraint.of_moments(table.reshape(shape), self.counts, aux)
        return torch.cat((risk[None], values))

    def _gradients(self, w: Tensor, aux: Tensor, batch: Batch, on_sums: Tensor) -> Tensor:
        """Gradients of weighted sums over some rows, (k, n_variables), from weights (k, .)."""
        scores, model_pullback = self.model.linearize(w, batch.X)
        _, pullback = linearized(lambda z, a: self._sums(z, a, batch), scores, aux)
        on_scores, on_aux = _stacked([pullback(row) for row in on_sums])
        return torch.cat((model_pullback(on_scores.movedim(0, -1)).T, on_aux), dim=1)

    def _hard(self, scores: Tensor, aux: Tensor) -> Tensor:
        """Hard values from the scores of this worker's rows, (n, 1)."""
        return self.of_all.hard(self._of_all(scores), aux)

    def _of_all(self, scores: Tensor) -> Tensor:
        """What stands for the scores of all workers, from this worker's."""
        columns: EveryonesColumns = self.of_all.data.X  # type: ignore[assignment]
        return columns.of_scores(scores)

    # ------------------------------------------------------------------ other protocols

    def along(self, x: Tensor, direction: Tensor, reach: float) -> Line:
        """Hard values at some points of a line."""
        w, aux = self._split(x)
        moved = w + self._split(direction)[0]
        scores, ahead = (
            torch.cat([self.model.scores(at, batch.X) for batch in self.data.batches()])
            for at in (w, moved)
        )
        slopes, steps = ahead - scores, lines.grid(x, reach)
        if bool(torch.isin(torch.nonzero(direction)[:, 0], self.offsets).all()):
            # All slopes are equal, so that those of other rows belong to these scores as well.
            named = lines.thresholds(self._of_all(scores), self._of_all(slopes), reach)
            steps = torch.cat((steps, named))
        return lines.on_grid(lambda step: self._hard(scores + step * slopes, aux), steps)


class PartedRankingERM(PartedScoresERM):
    """The problem of :class:`RankingERM` on rows in parts."""

    def start(self) -> Tensor:
        """A gradient step from zero, scaled to give the scores unit variance."""
        x, space = super().start(), self.constraint.space  # type: ignore[attr-defined]
        if x.any():
            return x
        step = -replace(self, constraint=Stack(space, [])).linearize(x).pullback(x.new_ones(1))
        return away_from_equal(x, step, self.model, self.data.representatives)


def _stacked(pairs: list[tuple[Tensor, ...]]) -> list[Tensor]:
    """The first of all pairs as one tensor, and the second."""
    return [torch.stack(own) for own in zip(*pairs, strict=True)]
