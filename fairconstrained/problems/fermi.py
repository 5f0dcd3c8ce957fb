r"""The penalised problem: minimise risk plus ERMI, no constraints.

Rows belong to parts by *shares*: one-hot where the groups are known, probabilities where all that
is known of them are private releases.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from fairconstrained.constraints import MomentConstraint
from fairconstrained.constraints.mutual_information import MutualInformation
from fairconstrained.problems import Batch, Evaluation, FairERM, Linearization

__all__ = ["FermiERM", "shares_of"]


def shares_of(constraint: MomentConstraint, data: Batch) -> Tensor:
    """One-hot parts of the rows, (n, n_parts); zeros for rows in no part."""
    part = constraint.part(data.y, data.group)
    return F.one_hot(part + 1, constraint.n_parts + 1)[:, 1:].to(data.weight)


@dataclass(frozen=True)
class FermiERM(FairERM):
    r"""Minimise the mean loss plus a penalty on mutual information.

    .. math::

        \min_w \; f(z) + \frac{\alpha}{2} \lVert \beta(w) \rVert^2
        + \lambda \, \mathrm{ERMI}(M(z), N), \qquad M_{qj} = \sum_i \omega_i S_{iq} F_j(z_i) .

    The constraint of the base class is only measured, on the table of predicted labels; solvers
    see no constraints.

    Parameters
    ----------
    model, data, risk, constraint, alpha, initial
        As in :class:`fairconstrained.problems.FairERM`; ``data.group`` is not used.
    information : MutualInformation
    shares : Tensor of shape (n, n_parts)
        S: how much of each row belongs to each part.
    part_counts : Tensor of shape (n_parts,)
        N: exact, released or public.
    weight : float
        :math:`\lambda`.
    """

    information: MutualInformation = field(kw_only=True)
    shares: Tensor = field(kw_only=True, repr=False)
    part_counts: Tensor = field(kw_only=True, repr=False)
    weight: float = field(kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "total", self.data.weight.sum())
        object.__setattr__(self, "counts", self.part_counts)
        object.__setattr__(self, "affine", None)
        # Rows are told apart by their numbers, by which batches look their shares up.
        numbers = torch.arange(len(self.data.y), device=self.data.y.device)
        object.__setattr__(self, "data", self.data._replace(group=numbers))

    @property
    def n_constraints(self) -> int:
        """None: the penalty takes their place."""
        return 0

    @property
    def strata(self) -> Tensor:
        """One for all rows: there are no constraints to balance draws for."""
        return torch.zeros_like(self.data.y)

    def variables(self, w: Tensor) -> Tensor:
        """Parameters of the model only."""
        return w

    def saddle(self, x: Tensor, dual: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        r"""Gradient in x of risk plus :math:`\lambda \psi(\cdot, W)`, and in W of psi, on rows."""
        weights = self.weight * self.information.weights(dual, self.counts)
        table = []

        def terms(scores: Tensor, aux: Tensor, batch: Batch) -> Tensor:
            sums = self._sums(self._soft(scores, batch), batch)
            table.append(sums.detach())
            return FairERM._risk(self, scores, aux, batch) + (weights * sums).sum()

        lagrangian = self._penalised(x, self.of_scores(terms, x, rows))
        gradient = lagrangian.pullback(torch.ones_like(lagrangian.value))
        return gradient, self.information.ascent(dual, table[0], self.counts)

    def linearize(
        self, x: Tensor, rows: Tensor | None = None, scale: Tensor | None = None
    ) -> Linearization:
        """The penalised objective alone; on few rows ERMI is estimated with a bias upwards."""
        return self._penalised(x, self.of_scores(self._risk, x, rows, scale))

    def evaluate(self, x: Tensor) -> Evaluation:
        """Objective or error, and values of the notion on soft and on predicted labels."""
        scores = self.model.scores(x, self.data.X)
        aux = scores.new_zeros(0)
        hard = self.constraint.statistic.hard(scores, self.data.y)
        error = self.risk.hard(scores, self.data.y, self.data.weight)
        objective = self._risk(scores, aux, self.data)[0] + self.alpha * self.model.penalty(x).value
        return Evaluation(
            self._measured(objective, self._soft(scores, self.data)), self._measured(error, hard)
        )

    def sharpened(self) -> FermiERM:
        """Itself: ERMI is of class probabilities."""
        return self

    def loosened(self, x: Tensor, by: float) -> tuple[FermiERM, Tensor]:
        """Itself: any start will do."""
        return self, x

    def _measured(self, first: Tensor, probabilities: Tensor) -> Tensor:
        sums = self._sums(probabilities, self.data)
        values = self.constraint.of_moments(sums, self.counts, sums.new_zeros(0))
        return torch.cat((first.reshape(1), values))

    def _soft(self, scores: Tensor, batch: Batch) -> Tensor:
        return self.constraint.statistic.soft(scores, batch.y)

    def _sums(self, probabilities: Tensor, batch: Batch) -> Tensor:
        return self.shares[batch.group].T @ (batch.weight[:, None] * probabilities)

    def _risk(self, scores: Tensor, aux: Tensor, batch: Batch) -> Tensor:
        risk = super()._risk(scores, aux, batch)
        if self.weight == 0 or not self.information.used.any():
            return risk
        sums = self._sums(self._soft(scores, batch), batch)
        return risk + self.weight * self.information.value(sums, self.counts)
