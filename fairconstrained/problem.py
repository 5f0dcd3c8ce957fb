r"""The one problem that every solver sees: minimise f(x) subject to c(x) <= 0.

:class:`FairERM` composes a model, a loss and a constraint into it. All derivatives pass through
score space: one forward pass of the model, a small graph on the scores, one pullback.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from fairconstrained.constraints.moments import MomentConstraint
from fairconstrained.features import Features
from fairconstrained.models import Model
from fairconstrained.objectives import Objective

__all__ = ["Batch", "Evaluation", "FairERM", "Linearization", "Problem"]


class Batch(NamedTuple):
    """Rows of data on one device."""

    X: Features
    y: Tensor  # (n,) class indices
    group: Tensor  # (n,) group indices
    weight: Tensor  # (n,) positive

    def rows(self, index: Tensor) -> Batch:
        """These rows."""
        return Batch(self.X.rows(index), self.y[index], self.group[index], self.weight[index])


class Linearization(NamedTuple):
    """Values at a point, and the map from weights on them to the gradient of the weighted sum."""

    value: Tensor  # (m,)
    pullback: Callable[[Tensor], Tensor]  # (m,) -> (n_variables,)

    def part(self, which: slice) -> Linearization:
        """Some of the values."""

        def pullback(weights: Tensor) -> Tensor:
            full = torch.zeros_like(self.value)
            full[which] = weights
            return self.pullback(full)

        return Linearization(self.value[which], pullback)


class Evaluation(NamedTuple):
    """(f, c_1, ..., c_m) twice: as optimised, and as users measure them on predicted labels."""

    soft: Tensor  # (1 + m,)
    hard: Tensor  # (1 + m,): error, constraint values


class Problem(Protocol):
    """Minimise f(x) subject to c(x) <= 0; with `rows`, unbiased estimates from these rows."""

    @property
    def n_rows(self) -> int: ...

    @property
    def n_constraints(self) -> int: ...

    def linearize(self, x: Tensor, rows: Tensor | None = None) -> Linearization:
        """(f, c_1, ..., c_m) in one pass: their weighted gradient is the Lagrangian's."""

    def objective(self, x: Tensor, rows: Tensor | None = None) -> Linearization:
        """F alone, as one value."""

    def constraints(self, x: Tensor, rows: Tensor | None = None) -> Linearization:
        """C alone: for methods that draw independent rows for it."""

    def evaluate(self, x: Tensor) -> Evaluation:
        """All values at x as in prediction, on all rows; nothing to differentiate."""

    def sharpened(self) -> Problem:
        """The problem with soft values twice as close to the hard ones, where that can be."""

    @property
    def offsets(self) -> Tensor:
        """Positions in x that shift all rows' scores alike; far out, predictions are constant."""

    def project(self, x: Tensor) -> Tensor:
        """Nearest point of the set that x must stay in."""


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
    harm.
    """

    model: Model
    data: Batch
    risk: Objective
    constraint: MomentConstraint
    alpha: float
    counts: Tensor = field(init=False, repr=False)

    def __post_init__(self) -> None:
        counts = self.constraint.counts(self.data.y, self.data.group, self.data.weight)
        object.__setattr__(self, "counts", counts)

    @property
    def n_rows(self) -> int:
        """Rows of the data."""
        return len(self.data.y)

    @property
    def n_constraints(self) -> int:
        """Number m of constraint values."""
        return len(self.constraint.of_moments(*self._empty_table()))

    def start(self) -> Tensor:
        """Where a fit begins: the model's start, and extra variables that suit it."""
        w = self.model.init()
        scores = self.model.scores(w, self.data.X)
        return torch.cat((w, self.constraint.init_aux(scores, self.data.y, self.data.group)))

    def linearize(self, x: Tensor, rows: Tensor | None = None) -> Linearization:
        """Objective and constraints from one forward pass."""
        w, aux = self._split(x)
        batch = self.data if rows is None else self.data.rows(rows)
        scores, model_pullback = self.model.linearize(w, batch.X)
        scores = scores.requires_grad_()
        aux = aux.detach().requires_grad_()
        total = batch.weight.sum()
        with torch.enable_grad():
            risk = self.risk.soft(scores, batch.y, batch.weight)
            sums = self.constraint.sums(scores, batch.y, batch.group, batch.weight)
            scaled = sums * (self.data.weight.sum() / total)
            values = self.constraint.of_moments(scaled, self.counts, aux)
            terms = torch.cat((risk[None], values))
        penalty = self.model.penalty(w)

        def pullback(weights: Tensor) -> Tensor:
            on_scores, on_aux = torch.autograd.grad(
                terms, (scores, aux), weights, retain_graph=True, materialize_grads=True
            )
            gradient = model_pullback(on_scores) + self.alpha * weights[0] * penalty.gradient
            return torch.cat((gradient, on_aux))

        value = terms.detach().clone()
        value[0] += self.alpha * penalty.value
        return Linearization(value, pullback)

    def objective(self, x: Tensor, rows: Tensor | None = None) -> Linearization:
        """Penalised risk."""
        return self.linearize(x, rows).part(slice(0, 1))

    def constraints(self, x: Tensor, rows: Tensor | None = None) -> Linearization:
        """Constraint values."""
        return self.linearize(x, rows).part(slice(1, None))

    def evaluate(self, x: Tensor) -> Evaluation:
        """Soft and hard values from one pass of the model in evaluation mode."""
        w, aux = self._split(x)
        y, group, weight = self.data.y, self.data.group, self.data.weight
        self.model.settle(w, self.data.X)
        scores = self.model.scores(w, self.data.X)

        rows = (scores, y, group, weight)
        soft = torch.cat(
            (
                self.risk.soft(scores, y, weight)[None],
                self.constraint.of_moments(self.constraint.sums(*rows), self.counts, aux),
            )
        )
        soft[0] += self.alpha * self.model.penalty(w).value
        hard = torch.cat(
            (self.risk.hard(scores, y, weight)[None], self.constraint.hard_values(*rows, aux))
        )
        return Evaluation(soft, hard)

    def sharpened(self) -> FairERM:
        """The problem at twice the temperature of the soft rates; itself without any."""
        constraint = self.constraint.sharpened()
        return self if constraint is self.constraint else replace(self, constraint=constraint)

    @property
    def offsets(self) -> Tensor:
        """Positions of the intercept, or of the biases of a network's last layer."""
        return self.model.offsets if self.constraint.offsets_matter else self.model.offsets[:0]

    def project(self, x: Tensor) -> Tensor:
        """No set constraint here."""
        return x

    def _split(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x[: self.model.n_params], x[self.model.n_params :]

    def _empty_table(self) -> tuple[Tensor, Tensor, Tensor]:
        columns = self.constraint.statistic.n_columns
        sums = self.counts.new_zeros((self.constraint.n_parts, columns))
        return sums, self.counts, self.counts.new_zeros(self.constraint.n_aux)
