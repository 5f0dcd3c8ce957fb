"""The penalised problem: minimise risk plus ERMI, without constraints."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self

import torch
from torch import Tensor

from fairconstrained.constraints import MomentConstraint
from fairconstrained.constraints.mutual_information import MutualInformation
from fairconstrained.constraints.statistics import Statistic
from fairconstrained.models import Model
from fairconstrained.problems.base import Evaluation, Linearization, with_penalty
from fairconstrained.problems.erm import through_scores
from fairconstrained.problems.membership import Members, Membership
from fairconstrained.problems.objectives import Objective

TABLES = ("labels", "probabilities")  # what W may answer to
Terms = Callable[[Tensor, Membership], Tensor]


def counted_by(statistic: Statistic, table: str) -> Callable[[Tensor, Tensor], Tensor]:
    """What a row adds to the table that W answers to, a function of its scores and label."""
    return statistic.hard if table == "labels" else statistic.soft


@dataclass(frozen=True)
class PenalisedTables(ABC):
    r"""Minimise the mean loss plus a penalty on mutual information: what tables of sums decide.

    A subclass computes the tables from the rows.

    Parameters
    ----------
    model : Model
    data : Members
    risk : Objective
    constraint : MomentConstraint
        The notion that is measured.
    alpha : float
        Weight of half the squared norm of the coefficients.
    information : MutualInformation
        With the counts N: exact, released or public.
    weight : float
        :math:`\lambda`.
    shift : Tensor of shape (n_parts, n_classes), optional
        Added to the table M in the penalty; default: nothing.
    """

    offers: ClassVar[frozenset[str]] = frozenset({"exact", "label_tables"})

    model: Model
    data: Members
    risk: Objective
    constraint: MomentConstraint
    alpha: float
    information: MutualInformation
    weight: float
    shift: Tensor | None = None

    @property
    def n_rows(self) -> int:
        """Number of rows of all workers."""
        return self.data.n_rows

    @property
    def n_constraints(self) -> Literal[0]:
        """Zero: the penalty takes the place of constraints."""
        return 0

    def start(self) -> Tensor:
        """Point at which a fit begins."""
        return self.model.init()

    def variables(self, w: Tensor) -> Tensor:
        """Parameters of the model: there are no other variables."""
        return w

    @abstractmethod
    def linearize(self, x: Tensor) -> Linearization:
        """The penalised objective."""

    def evaluate(self, x: Tensor) -> Evaluation:
        """Objective and error, each with the measured values of the notion."""
        (risk, soft), (error, hard) = self._soft_at(x), self._hard_at(x)
        objective = risk + self._penalty_of(soft) + self.alpha * self.model.penalty(x).value
        return Evaluation(self._measured(objective, soft), self._measured(error, hard))

    @property
    def offsets(self) -> Tensor:
        """Positions of the intercepts, or of the biases of the last layer of a network."""
        return self.model.offsets

    def of_labels(self, x: Tensor) -> tuple[float, float]:
        """Error plus penalty of predicted labels, and their mutual information (0 if unused)."""
        error, table = self._hard_at(x)
        if not self._is_penalised:
            return float(error), 0.0
        information = float(self.information.value(table))
        return float(error) + self.weight * information, information

    def on_rows_of(self, other: Self) -> Self:
        """The problem on the rows of another one, without a shift."""
        return replace(self, data=other.data, shift=None)

    def of_weight(self, weight: float) -> Self:
        r"""The problem with another :math:`\lambda`."""
        return replace(self, weight=weight)

    def thinned(self) -> Self:
        """The problem on a part of its rows, or itself if these are few."""
        data = self.data.thinned()
        return self if data is self.data else replace(self, data=data)

    def sharpened_at(self, x: Tensor) -> Self:
        """The problem with probabilities twice as sharp, and the table of the labels at x."""
        return replace(self, constraint=self.constraint.sharpened(), shift=None).moved_to_labels(x)

    def moved_to_labels(self, x: Tensor, step: float = 1.0) -> Self:
        """The problem with its table shifted towards that of the labels at x; itself if unused."""
        if not self._is_penalised:
            return self
        apart = self._hard_at(x)[1] - self._soft_at(x)[1]
        before = torch.zeros_like(apart) if self.shift is None else self.shift
        # The first shift is whole: none is the paper's problem, not an estimate of it.
        fraction = 1.0 if self.shift is None else step
        return replace(self, shift=torch.lerp(before, apart, fraction))

    @abstractmethod
    def _soft_at(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean loss, and the table of class probabilities."""

    @abstractmethod
    def _hard_at(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean error, and the table of predicted labels."""

    @property
    def _is_penalised(self) -> bool:
        return self.weight != 0 and bool(self.information.used.any())

    def _penalty_of(self, table: Tensor) -> Tensor:
        """The penalty on a table of class probabilities, ()."""
        if not self._is_penalised:
            return (0.0 * table).sum()
        moved = table if self.shift is None else table + self.shift
        return self.weight * self.information.value(moved)

    def _measured(self, first: Tensor, table: Tensor) -> Tensor:
        values = self.constraint.of_moments(table, self.information.counts, table.new_zeros(0))
        return torch.cat((first.reshape(1), values))


class FermiERM(PenalisedTables):
    r"""Minimise the mean loss plus a penalty on mutual information.

    .. math::

        \min_w \; f(z) + \frac{\alpha}{2} \lVert \beta(w) \rVert^2
        + \lambda \, \mathrm{ERMI}(M(z), N), \qquad M_{qj} = \sum_i \omega_i S_{iq} F_j(z_i) .

    There are no constraints: the values of the notion are measured only, on soft and on predicted
    labels.

    Parameters
    ----------
    data : Members
        In memory. The fractions S are one-hot where the groups are known.
    model, risk, constraint, alpha, information, weight, shift
        As in :class:`PenalisedTables`.
    """

    offers = PenalisedTables.offers | {"mutual_information_saddle"}

    def linearize(self, x: Tensor) -> Linearization:
        """The penalised objective."""

        def objective(scores: Tensor, batch: Membership) -> Tensor:
            risk = self.risk.soft(scores, batch.y, batch.weight)
            return risk + self._penalty_of(batch.sums(self._soft(scores, batch)))

        return self._linearized(objective, x, self.data.whole)

    def saddle(
        self, x: Tensor, dual: Tensor, rows: Tensor, table: str = "labels"
    ) -> tuple[Tensor, Tensor]:
        r"""Estimate gradients of the saddle form from rows that are drawn uniformly.

        Parameters
        ----------
        x : Tensor of shape (n_variables,)
        dual : Tensor of shape (n_parts, n_classes)
            W.
        rows : LongTensor
        table : {"labels", "probabilities"}, default="labels"
            What the gradient in W is taken for.

        Returns
        -------
        on_x : Tensor of shape (n_variables,)
            Gradient of risk plus :math:`\lambda \psi(\cdot, W)`.
        on_dual : Tensor of shape (n_parts, n_classes)
            Gradient of :math:`\psi` in W, by the table.
        """
        weights = self.weight * self.information.weights(dual)
        # Each row stands for as many rows: dividing by the batch's weight instead would be biased.
        batch = self.data.whole.rows(rows, self.n_rows / len(rows))
        total = self.data.whole.weight.sum()
        seen = []

        def lagrangian(scores: Tensor, batch: Membership) -> Tensor:
            counted = counted_by(self.constraint.statistic, table)
            seen.append(batch.sums(counted(scores.detach(), batch.y)))
            risk = self.risk.soft(scores, batch.y, batch.weight, total)
            return risk + (weights * batch.sums(self._soft(scores, batch))).sum()

        terms = self._linearized(lagrangian, x, batch)
        on_x = terms.pullback(torch.ones_like(terms.value))
        return on_x, self.information.ascent(dual, seen[0])

    def _soft_at(self, x: Tensor) -> tuple[Tensor, Tensor]:
        rows = self.data.whole
        scores = self.model.scores(x, rows.X)
        risk = self.risk.soft(scores, rows.y, rows.weight)
        return risk, rows.sums(self._soft(scores, rows))

    def _hard_at(self, x: Tensor) -> tuple[Tensor, Tensor]:
        rows = self.data.whole
        scores = self.model.scores(x, rows.X)
        error = self.risk.hard(scores, rows.y, rows.weight)
        return error, rows.sums(self.constraint.statistic.hard(scores, rows.y))

    def _linearized(self, objective: Terms, x: Tensor, batch: Membership) -> Linearization:
        terms = through_scores(lambda z, _: objective(z, batch)[None], self.model, x, batch.X)
        return with_penalty(terms, self.model.penalty(x), self.alpha)

    def _soft(self, scores: Tensor, batch: Membership) -> Tensor:
        return self.constraint.statistic.soft(scores, batch.y)
