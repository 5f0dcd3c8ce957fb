r"""Loss plus ERMI in steps on Poisson batches: each a noisy table, and a noisy clipped gradient.

There are two units of privacy. Where the whole *record* is protected, :class:`RecordFermi` clips
the whole gradient of each row. Where the *sensitive features* are protected, features and labels
are public, and :class:`AttributeFermi` adds noise to the terms that depend on a row's group.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Generator, Tensor

from fairconstrained.constraints.mutual_information import MutualInformation
from fairconstrained.problems.private.erm import GRADIENT, PrivateERM, finite, with_zero_row
from fairconstrained.problems.rows import Rows


class RecordFermi(PrivateERM):
    r"""Loss plus ERMI with the whole record protected: every row's whole gradient is clipped.

    The multipliers are W of the saddle form. The tables that W answers to hold predicted labels or
    class probabilities, and one row adds at most one either way. There are no constraints: the
    values of the notion are measured only.

    Parameters
    ----------
    information : MutualInformation
    weight : float
        :math:`\lambda`.
    **problem
        The parameters of :class:`~fairconstrained.problems.private.erm.PrivateERM`.
    """

    offers = frozenset({"noisy_saddle"})
    n_constraints = 0
    step_size = 4.0  # suits columns of a public range

    def __init__(self, *, information: MutualInformation, weight: float, **problem: Any):
        super().__init__(**problem)
        self.information = information
        self.weight = weight

    def weights(self, table: Tensor, dual: Tensor) -> Tensor:
        """Derivative of the penalty at W with respect to the table, (n_parts, n_columns)."""
        return self.weight * self.information.weights(dual)

    def deviations_of_estimates(self) -> Tensor:
        """Return nothing: there are no constraints."""
        return torch.zeros(0)


class AttributeFermi(RecordFermi):
    r"""Loss plus ERMI with the sensitive features protected: features and labels are public.

    Private, of a Poisson batch: the table, and the clipped gradients of the rows'
    :math:`2 \sum_j W_{r_i j} F_j / \sqrt{p_{r_i}}`. Public: the loss and
    :math:`\sum_q W_{qj}^2 F_j`, from rows that are drawn independently.

    Paper: the public terms come from the same batch and carry no noise; here: from rows of their
    own, because exact gradients of a batch reveal which rows are in it, and sampling then
    amplifies nothing.

    Parameters
    ----------
    data : Rows
        Workers draw the same public rows of all, and each takes those that it has.
    **problem
        The other parameters of :class:`RecordFermi`.
    """

    step_size = 0.5  # suits public columns, which are whitened

    def __init__(self, *, data: Rows, **problem: Any):
        super().__init__(data=data.own, **problem)
        self._n_before = data.n_before
        self._n_public = max(1, round(self.plan.sampling_rate * self.n_rows))
        # The term that all groups share is linear in W^2 and the same for all rows of a label.
        part_of_label = self.constraint.part_of_cell.max(dim=1).values  # -1 without parts
        shared = with_zero_row(self.information.shared)[part_of_label]
        self._shared = self.weight * self.n_rows * shared

    def release(
        self,
        x: Tensor,
        choose_dual: Callable[[Tensor], Tensor],
        max_norm: float,
        rng: Generator,
        table: str = "labels",
    ) -> tuple[Tensor, Tensor]:
        """Make one step, with one pass over the rows of both kinds, each clipped or not."""
        sampled, drawn = self._batches.draw(rng), self._public_rows(rng)
        n = len(sampled)
        rows = self.data.take(torch.cat((sampled, drawn)))
        scores, clipped = self.model.linearize_rows(x, rows.X)
        scores, y = finite(scores), rows.y
        of_batch = scores[:n], y[:n], rows.group[:n]
        released = self._noisy_table(*of_batch, table, rng)
        dual = choose_dual(released)
        # Turns a sum over the batch into an estimate of the mean over all rows.
        scale = self.weight / (self.plan.sampling_rate * self.n_rows)
        weights = scale * self.n_rows * self.information.group_weights(dual)
        cotangents = (
            self._on_scores(*of_batch, weights),
            self._of_public(dual, scores[n:], y[n:]) / self._n_public,
        )
        max_norms = scores.new_full((len(scores),), torch.inf)
        max_norms[:n].fill_(scale * max_norm)
        gradient = clipped(torch.cat(cotangents), max_norms)
        gradient = self.releases.noisy(GRADIENT, gradient, scale * max_norm, rng)
        return released, gradient + self._penalty_gradient(x)

    def _public_rows(self, rng: Generator) -> Tensor:
        """Draw as many rows as a batch is expected to have, independently of it."""
        n_own = len(self.data.y)
        if self.plan.sampling_rate >= 1:
            return torch.arange(n_own)
        drawn = torch.randint(self.n_rows, (self._n_public,), generator=rng) - self._n_before
        return drawn[(drawn >= 0) & (drawn < n_own)]

    def _of_public(self, dual: Tensor, scores: Tensor, y: Tensor) -> Tensor:
        """Derivative by scores of the loss and of the term of psi that all groups share."""
        _, pullback = self.constraint.statistic.linearize(scores, y)
        of_label = self._shared @ (dual * dual)
        return self.loss.gradient(scores, y) - pullback(of_label.index_select(0, y))
