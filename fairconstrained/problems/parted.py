r"""Problems on rows in parts: every value and every gradient comes from sums over all rows.

A pass over the rows gives a table of sums, and from it follow objective and constraints. A second
pass gives the gradient of what the solver weighs them by. Nothing of a row is kept in between, and
between workers only tables and gradients travel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from fairconstrained.autograd import linearized
from fairconstrained.constraints.affine import AffineMap
from fairconstrained.constraints.moments import MomentConstraint, Rows
from fairconstrained.models import Model
from fairconstrained.problems import lines
from fairconstrained.problems.base import Batch, Evaluation, Linearization, with_penalty
from fairconstrained.problems.erm import FairERM, span_of_terms
from fairconstrained.problems.fermi import FermiERM, PenalisedTables
from fairconstrained.problems.lines import Line
from fairconstrained.problems.membership import Membership
from fairconstrained.problems.moments import MomentERM, RankingERM
from fairconstrained.problems.objectives import MeanLoss, OfRows
from fairconstrained.problems.parted_rows import PartedRows
from fairconstrained.problems.parted_scores import PartedRankingERM, PartedScoresERM

_MOST_NAMED = 400_000  # changes of labels along a line that travel between workers: 3 MB
_GOLDEN, _PLASTIC = 0.6180339887498949, 0.7548776662466927  # steps of even sequences modulo one


class Sums(NamedTuple):
    """A sum over all rows, and the table of sums by parts."""

    first: Tensor  # ()
    table: Tensor  # (n_parts, n_columns)


@dataclass(frozen=True)
class Passes:
    """Passes over rows in parts, for a model without state and a constraint without variables.

    Parameters
    ----------
    model : Model
    data : PartedRows
    risk : MeanLoss
    constraint : MomentConstraint
    """

    model: Model
    data: PartedRows
    risk: MeanLoss
    constraint: MomentConstraint

    def soft(self, w: Tensor) -> Sums:
        """Mean loss, and the table of soft statistics."""
        (sums,) = self._sums(w, self._soft)
        return sums

    def both(self, w: Tensor) -> list[Sums]:
        """`soft`, and the mean error with the table of hard statistics, in one pass."""
        return self._sums(w, self._soft, self._hard)

    def scatter(self, w: Tensor) -> Tensor:
        """Sums from which standard errors of the hard values follow."""

        def of_batch(batch: Batch) -> Tensor:
            scores, rows = self.model.scores(w, batch.X), self.constraint.place(*batch[1:])
            return self.constraint.scatter(scores, rows)

        return self.data.total(of_batch)

    def gradients(self, w: Tensor, on_risk: Tensor, on_tables: Tensor) -> Tensor:
        """Gradients of k weighted sums, (k, n_params), in one pass.

        Parameters
        ----------
        w : Tensor of shape (n_params,)
        on_risk : Tensor of shape (k,)
            Weights on the mean loss.
        on_tables : Tensor of shape (k, n_parts, n_columns)
            Weights on the soft table.
        """

        def of_batch(batch: Batch) -> Tensor:
            scores, model_pullback = self.model.linearize(w, batch.X)
            rows, total = self.constraint.place(*batch[1:]), self.data.total_weight
            _, risk_gradient = self.risk.linearize(scores, rows.y, rows.weight, total)
            soft, statistics_pullback = self.constraint.linearize(scores, rows.y, w[:0])
            of_risk, found = risk_gradient(), []
            for weight, table in zip(on_risk, on_tables, strict=True):
                on_rows = rows.on_columns(table, soft)
                found.append(model_pullback(weight * of_risk + statistics_pullback(on_rows)[0]))
            return torch.stack(found)

        return self.data.total(of_batch)

    def of_labels(self, w: Tensor, direction: Tensor, values: AffineMap, reach: float) -> Line:
        """Hard values between changes of labels along a line."""
        most = lines.most_points(values)
        steps = lines.between(self.changes(w, direction, reach), reach, most)
        columns = lines.error_and_statistics(self.risk.error, self.constraint.statistic.hard)

        def of_batch(batch: Batch) -> Tensor:
            rows = self.constraint.place(*batch[1:])
            on_line = self._on_line(w, direction, batch)
            return lines.tables_at(steps, *on_line, rows, columns, reach)

        tables = self.data.total(of_batch)
        return lines.of_tables(steps, tables, self.data.total_weight, values)

    def at_steps(self, w: Tensor, direction: Tensor, values: AffineMap, steps: Tensor) -> Line:
        """Hard values at some points of a line, in one pass."""

        def of_batch(batch: Batch) -> Tensor:
            rows = self.constraint.place(*batch[1:])
            scores, slopes = self._on_line(w, direction, batch)
            return torch.stack([self._hard(scores + step * slopes, batch, rows) for step in steps])

        totals = self.data.total(of_batch)
        tables = totals[:, 1:].reshape(len(steps), *self._shape)
        return Line(steps, totals[:, 0], values.largest(tables))

    def changes(self, w: Tensor, direction: Tensor, reach: float) -> Tensor:
        """Where labels change along a line: all changes if rows are few, else some of every rank.

        Of many rows each piece names evenly spaced changes of its own, in proportion to its rows.
        """
        own = [
            self._named(lines.changes(*self._on_line(w, direction, batch), reach), place)
            for place, batch in enumerate(self.data.batches())
        ]
        return torch.cat(self.data.workers.gather(torch.cat(own)))

    def _on_line(self, w: Tensor, direction: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Scores of the rows, and their derivatives along the line."""
        scores = self.model.scores(w, batch.X)
        return scores, self.model.scores(w + direction, batch.X) - scores

    def _soft(self, scores: Tensor, batch: Batch, rows: Rows) -> Tensor:
        risk = self.risk.soft(scores, batch.y, batch.weight, self.data.total_weight)
        return _joined(risk, self.constraint.sums(scores, rows, scores.new_zeros(0)))

    def _hard(self, scores: Tensor, batch: Batch, rows: Rows) -> Tensor:
        error = batch.weight @ self.risk.error(scores, batch.y) / self.data.total_weight
        return _joined(error, self.constraint.hard_sums(scores, rows))

    def _sums(self, w: Tensor, *terms: Callable[[Tensor, Batch, Rows], Tensor]) -> list[Sums]:
        def of_batch(batch: Batch) -> Tensor:
            rows, scores = self.constraint.place(*batch[1:]), self.model.scores(w, batch.X)
            return torch.stack([term(scores, batch, rows) for term in terms])

        totals = self.data.total(of_batch)
        return [Sums(own[0], own[1:].reshape(self._shape)) for own in totals]

    def _named(self, changes: Tensor, place: int) -> Tensor:
        """The changes that a piece names.

        Of many pieces each names few: with an offset that runs evenly over pieces and workers, all
        ranks are named alike.
        """
        if self.data.n_rows <= _MOST_NAMED:
            return changes
        offset = (_GOLDEN * place + _PLASTIC * self.data.workers.rank) % 1.0
        spacing = self.data.n_rows / _MOST_NAMED
        ranks = ((offset + torch.arange(len(changes) / spacing)) * spacing).long()
        return changes.sort().values[ranks[ranks < len(changes)].to(changes.device)]

    @property
    def _shape(self) -> tuple[int, int]:
        return self.constraint.n_parts, self.constraint.statistic.n_columns


def _joined(first: Tensor, table: Tensor) -> Tensor:
    return torch.cat((first.reshape(1), table.reshape(-1)))


@dataclass(frozen=True)
class PartedERM(PartedScoresERM):
    r"""The problem of :class:`FairERM` on rows in parts, where tables of sums decide everything.

    The model must be linear, and the constraint an affine map of its table without variables of
    its own, as constraints of rates and of losses are. Parameters are as in the base class.
    """

    risk: MeanLoss

    @cached_property
    def passes(self) -> Passes:
        """Passes over the rows."""
        return Passes(self.model, self.data, self.risk, self.constraint)

    @cached_property
    def affine(self) -> AffineMap:
        """The constraint as an affine map of its table."""
        affine = self.constraint.affine(self.counts)
        assert affine is not None  # see `class_in_parts`
        return affine

    def linearize(self, x: Tensor) -> Linearization:
        """Objective and constraints from one pass; one more gives any number of gradients."""
        risk, table = self.passes.soft(x)

        def together(weights: Tensor) -> Tensor:
            return self.passes.gradients(x, weights[:, 0], self.affine.on_table(weights[:, 1:]))

        terms = Linearization(
            torch.cat((risk[None], self.affine.of_table(table))),
            lambda weights: together(weights[None])[0],
            span_of_terms(self.affine, risk, 1),
            together,
        )
        return with_penalty(terms, self.model.penalty(x), self.alpha)

    def _evaluate(self, x: Tensor) -> Evaluation:
        soft, hard = self.passes.both(x)
        loss = soft.first + self.alpha * self.model.penalty(x).value
        pairs = (loss, soft.table), (hard.first, hard.table)
        values = (torch.cat((first[None], self.affine.of_table(table))) for first, table in pairs)
        return Evaluation(*values)

    def standard_errors(self, x: Tensor) -> Tensor:
        """Standard errors of the hard values of the constraints at `x`, (m,)."""
        return self.constraint.deviations_of(self.passes.scatter(x))

    def along(self, x: Tensor, direction: Tensor, reach: float) -> Line:
        """Hard values on a line: between changes of labels if these decide, else at some points."""
        if self.constraint.of_labels:
            return self.passes.of_labels(x, direction, self.affine, reach)
        steps = lines.grid(x, reach)
        if bool(torch.isin(torch.nonzero(direction)[:, 0], self.offsets).all()):
            most = lines.most_thresholds(self.n_rows)
            named = self.passes.changes(x, direction, reach)
            steps = torch.cat((steps, lines.between(named, reach, most)))
        return self.passes.at_steps(x, direction, self.affine, steps)


class PartedFermi(PenalisedTables):
    r"""The problem of :class:`FermiERM` on rows in parts.

    The parameters are those of :class:`FermiERM`.
    """

    risk: MeanLoss

    def linearize(self, x: Tensor) -> Linearization:
        """The penalised objective."""
        risk, table = self._soft_at(x)
        value, on_table = linearized(lambda table: self._penalty_of(table)[None], table)
        statistic, total = self.constraint.statistic, self.data.total_weight

        def pullback(weights: Tensor) -> Tensor:
            (tables,) = on_table(weights)

            def of_members(own: Membership) -> Tensor:
                scores, model_pullback = self.model.linearize(x, own.X)
                _, of_risk = self.risk.linearize(scores, own.y, own.weight, total)
                soft, of_statistic = statistic.linearize(scores, own.y)
                on_scores = of_statistic(own.on_statistics(tables, soft))
                return model_pullback(weights * of_risk() + on_scores)

            return self.data.total(of_members)

        terms = Linearization(risk[None] + value, pullback)
        return with_penalty(terms, self.model.penalty(x), self.alpha)

    def _soft_at(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self._sums(x, self.risk.loss, self.constraint.statistic.soft)

    def _hard_at(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self._sums(x, self.risk.error, self.constraint.statistic.hard)

    def _sums(self, x: Tensor, risk: OfRows, statistic: OfRows) -> tuple[Tensor, Tensor]:
        def of_members(own: Membership) -> Tensor:
            scores = self.model.scores(x, own.X)
            mean = own.weight @ risk(scores, own.y) / self.data.total_weight
            return _joined(mean, own.sums(statistic(scores, own.y)))

        sums = self.data.total(of_members)
        return sums[0], sums[1:].reshape(self.constraint.n_parts, -1)


# The problem on rows in parts for each problem that has one.
PARTED: Mapping[type, type] = {
    FairERM: PartedERM,
    FermiERM: PartedFermi,
    RankingERM: PartedRankingERM,
    MomentERM: MomentERM,
}


def class_in_parts(kind: type, constraint: MomentConstraint) -> type:
    """The class of a problem on rows in parts, for this constraint."""
    kind = PARTED[kind]
    counts = torch.ones(constraint.n_parts, dtype=torch.float64)
    of_tables = constraint.n_aux == 0 and constraint.affine(counts) is not None
    return PartedScoresERM if kind is PartedERM and not of_tables else kind
