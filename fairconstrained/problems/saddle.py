r"""The AUC problem with quadratic surrogates as a min-max problem whose terms are sums over rows.

For a pair k of parts :math:`(G, G')` with fractions :math:`p, p'` of all rows, the score h of a row
and :math:`u = 1[G] / p`, :math:`u' = 1[G'] / p'` (AUC-fairness paper, equation 8),

.. math::

    F_k &= c_1 c_2^2 - 2 c_1 c_2 h (u - u') + c_1 (h - a_k)^2 u + c_1 (h - b_k)^2 u' , \\
    G_k &= 2 \sqrt{c_1}\, h (u - u') , \\
    E[c_1 (h - h' - c_2)^2] &= \min_{a, b} \max_\alpha E[F_k + \alpha G_k] - \alpha^2 .
"""

# Paper (Lemma 1): G = 2 c1 h (u - u') with - alpha^2, whose maximum is c1^2 (E h - E h')^2; here
# alpha is scaled to make it c1 (E h - E h')^2, because the double sum needs that. The steps of
# Lemmas 3 and 4 stay as printed.

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

from fairconstrained.constraints.auc import AUCConstraint
from fairconstrained.constraints.surrogates import Quadratic
from fairconstrained.problems.base import Linearization, through_scores, with_penalty
from fairconstrained.problems.objectives import PairwiseLoss
from fairconstrained.problems.rows import Rows
from fairconstrained.problems.values import ERM


class Saddle:
    """F and G of a problem on any rows, in the variables x = (w, a, b).

    All surrogates are quadratic; an objective that is not pairwise has its own unbiased estimate.
    The value that each pair belongs to is its `owner`, (n_pairs,); 0 is the objective.
    """

    def __init__(self, problem: ERM):
        self.problem = problem
        surrogate: Any = _surrogate_of(problem)
        members: Any = problem.constraint.members  # AUCConstraints
        self.c1, self.c2 = surrogate.c1, surrogate.c2
        pairs, owner, n_values = [], [], 1
        slack = [torch.zeros(1, dtype=torch.float64)]
        self.pairwise = isinstance(problem.risk, PairwiseLoss)
        if self.pairwise:
            label = torch.arange(2, dtype=torch.float64)[:, None]
            positive = label.expand(problem.constraint.partition.part_of_cell.shape)
            pairs.append(torch.stack((positive, 1.0 - positive))[None])
            owner.append(torch.zeros(1, dtype=torch.long))
        for member in members:
            sets = torch.as_tensor(member.comparisons) * member.space.factors()
            first, first_, second, second_ = sets.unbind(dim=1)
            above = [torch.stack((first_, first), dim=1), torch.stack((second, second_), dim=1)]
            below = [torch.stack((second_, second), dim=1), torch.stack((first, first_), dim=1)]
            m = len(first)
            for sides, start in ((above, n_values), (below, n_values + m)):
                pairs += sides
                owner += 2 * [torch.arange(start, start + m)]
            n_values += 2 * m
            slack.append(1.0 + member.slack)
        self.n_values, device = n_values, problem.data.y.device
        self.owner, self.slack = torch.cat(owner).to(device), torch.cat(slack).to(device)
        # (n_cells, n_pairs) for each side
        self._indicators = torch.cat(pairs).to(device).flatten(start_dim=2).permute(1, 2, 0)
        self._n_groups = problem.constraint.partition.part_of_cell.shape[1]
        self._cell_weights = self._weights_of_cells(problem.data)
        self._n_rows = self._n_ahead = problem.n_rows
        self._weigh()

    @classmethod
    def of(cls, problem: ERM) -> Saddle | None:
        """Return F and G if there is one quadratic surrogate, and rows are of single groups."""
        fractions = problem.data.group.ndim == 2
        return None if fractions or _surrogate_of(problem) is None else cls(problem)

    def _weigh(self) -> None:
        """Divide the indicators of both sides by their fractions of the rows counted so far."""
        total = self._cell_weights.sum()
        fractions = torch.tensordot(self._cell_weights / total, self._indicators, dims=([0], [1]))
        self.sides = self._indicators / fractions[:, None]
        self._mean_weight = total / self._n_rows

    def after(self, batch: Rows) -> Saddle:
        """Return F and G with the fractions of all rows of a stream so far."""
        # The stream begins with the rows of the problem, which are counted from the start.
        other, n = copy.copy(self), len(batch.y)
        new = batch.take(torch.arange(min(self._n_ahead, n), n, device=batch.y.device))
        other._n_ahead = max(self._n_ahead - n, 0)
        other._n_rows = self._n_rows + len(new.y)
        other._cell_weights = self._cell_weights + self._weights_of_cells(new)
        other._weigh()
        return other

    def _weights_of_cells(self, batch: Rows) -> Tensor:
        """Sum the weights in each cell, (n_cells,)."""
        zeros = batch.weight.new_zeros(self._indicators.shape[1])
        return zeros.index_add(0, self._cells(batch), batch.weight)

    def _cells(self, batch: Rows) -> Tensor:
        return batch.y * self._n_groups + batch.group

    @property
    def n_pairs(self) -> int:
        """Number of pairs of parts; each has its own a, b and alpha."""
        return len(self.owner)

    def extended(self, w: Tensor) -> Tensor:
        """Return x = (w, a, b) with a = b = 0."""
        return torch.cat((w, w.new_zeros(2 * self.n_pairs)))

    def constants(self) -> Tensor:
        """Return the x of constant scores, for a linear model."""
        return self.extended(self.problem.model.init())

    def parameters(self, x: Tensor) -> Tensor:
        """Return the parameters w in x."""
        return x[: len(x) - 2 * self.n_pairs]

    def objective_of_constants(self) -> float:
        """Return the risk of scores that are all zero, without the penalty."""
        data = self.problem.data
        zeros = data.weight.new_zeros(len(data.y), 1)
        return float(self.problem.risk.soft(zeros, data.y, data.weight))

    def linearize(self, x: Tensor, batch: Rows) -> Linearization:
        """Linearize (F_0, ..., F_M, G_1, ..., G_P) on a batch, each F less its slack."""
        problem, n_pairs = self.problem, self.n_pairs
        w = self.parameters(x)
        u, u_ = self.sides[:, self._cells(batch)] * (batch.weight / self._mean_weight)[:, None]

        def terms(h: Tensor, centres: Tensor) -> Tensor:
            a, b = centres[:n_pairs], centres[n_pairs:]
            lead = (h * (u - u_)).mean(dim=0)
            around = ((h - a) ** 2 * u + (h - b) ** 2 * u_).mean(dim=0)
            pairs = self.c1 * (self.c2**2 - 2.0 * self.c2 * lead + around)
            values = pairs.new_zeros(self.n_values).index_add(0, self.owner, pairs) - self.slack
            if not self.pairwise:
                total = self._mean_weight * len(batch.y)  # of the batch, in expectation
                risk = problem.risk.soft(h, batch.y, batch.weight, total)
                values = torch.cat((risk[None], values[1:]))
            return torch.cat((values, 2.0 * self.c1**0.5 * lead))

        linearization = through_scores(terms, problem.model, x, batch.X)
        return with_penalty(linearization, problem.model.penalty(w), problem.alpha)


def _surrogate_of(problem: ERM) -> Quadratic | None:
    """Return the quadratic surrogate shared by all AUCs of a problem, or None."""
    members = getattr(problem.constraint, "members", ())
    if not all(isinstance(member, AUCConstraint) for member in members):
        return None
    surrogates = {member.surrogate for member in members}
    if isinstance(problem.risk, PairwiseLoss):
        surrogates.add(problem.risk.surrogate)
    shared = surrogates.pop() if len(surrogates) == 1 else None
    return shared if isinstance(shared, Quadratic) else None
