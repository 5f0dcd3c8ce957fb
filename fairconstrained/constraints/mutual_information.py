r"""Exponential Renyi mutual information (ERMI) of predictions and groups, and its saddle form.

A condition c selects all rows or those of one label. Within it, let
:math:`M_{rj} = \sum_{i \in c,\, s_i = r} F_j(x_i)` be the table of class probabilities, :math:`N_r`
the counts, :math:`\hat p_r = N_r / N_c` and :math:`\hat P_{rj} = M_{rj} / N_c`. Then

.. math::

    \mathrm{ERMI}_c = \sum_{r,j} \frac{\hat P_{rj}^2}{\hat p_r \sum_q \hat P_{qj}} - 1
    = \max_W \; - \sum_{r,j} W_{rj}^2 \sum_q \hat P_{qj}
      + 2 \sum_{r,j} \frac{W_{rj} \hat P_{rj}}{\sqrt{\hat p_r}} - 1 .

This is the chi-square mutual information. The penalty is its mean over c with weights
:math:`N_c / \sum_c N_c`. For a given W it is linear in the table, so mini-batches and noisy tables
estimate it without bias.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fairconstrained.constraints.moments import MomentConstraint
from fairconstrained.numerics import ROUNDING


class MutualInformation:
    r"""ERMI as a function of a table of moments with one row for each part of the data.

    Parts with the same condition, (n_parts,), are compared. The counts N, (n_parts,), are exact,
    released or public. Tables must belong to the rows that are counted, so the table of a batch has
    to be scaled up first. Negative denominators from noisy tables count as zero.

    References
    ----------
    Lowy, Gupta and Razaviyayn, "Stochastic Differentially Private and Fair Learning" (DP-FERMI),
    Theorem 3.1 (the empirical ERMI) and, for the saddle form, Theorems 3.2 and C.1: a mean over
    rows there as here. Within labels: Appendix B.
    """

    def __init__(self, condition: Tensor, n_classes: int, counts: Tensor):
        self.condition, self.counts = condition, counts
        self.n_classes, self.n_parts = n_classes, len(condition)
        self.n_conditions = int(condition.max()) + 1 if len(condition) else 0
        self._same = (condition[:, None] == condition).to(counts)
        fraction = (counts / self._over_condition(counts).clamp_min(ROUNDING)).clamp_min(ROUNDING)
        self._total, self._root = counts.sum(), fraction.sqrt()[:, None]
        self._group_factor = 2.0 / self._total / self._root
        #: 1 / N where two parts have the same condition, (n_parts, n_parts).
        self.shared = self._same / self._total
        # The smallest fraction within the condition of each part gives the radius.
        others = torch.where(self._same > 0, fraction, torch.inf)
        least = others.amin(dim=1) if self.n_parts else fraction
        #: Radius of the ball on which W is projected, (n_parts,).
        self.radius = (n_classes / least).sqrt()
        self._least_radius = min(self.radius.tolist(), default=0.0)

    @classmethod
    def within(cls, constraint: MomentConstraint, counts: Tensor) -> MutualInformation:
        """Build the ERMI of the groups that a parity criterion compares, within its conditions."""
        labels = [tuple(cells.max(axis=1).tolist()) for cells in constraint.partition.cells()]
        known = list(dict.fromkeys(labels))
        condition = torch.tensor([known.index(key) for key in labels], dtype=torch.long)
        return cls(condition.to(counts.device), constraint.statistic.n_columns, counts)

    def value(self, sums: Tensor) -> Tensor:
        r"""Return the ERMI of a table (n_parts, n_classes), a scalar.

        The sum :math:`\sum_{rj} (\hat P_{rj} - \hat p_r \hat P_j)^2 / (\hat p_r \hat P_j)` is
        the same, but nothing cancels in it near independence.
        """
        total = self._over_condition(sums).clamp_min(ROUNDING)
        apart = sums / self._root - self._root * total
        return (apart**2 / total).sum() / self._total

    def weights(self, dual: Tensor) -> Tensor:
        r"""Differentiate the saddle form by the table, (n_parts, n_classes).

        The form is linear in the table: the sum of their products, less 1, is the mean of
        :math:`\psi_i(\theta, W)` over the rows. A row of part r adds :math:`F_j` times
        :math:`(2 W_{rj} / \sqrt{\hat p_r} - \sum_q W_{qj}^2) / N`, where q runs over the parts with
        the condition of r.
        """
        return self.group_weights(dual) - self.shared @ dual**2

    def group_weights(self, dual: Tensor) -> Tensor:
        r"""Return the term :math:`2 W_{rj} / (\sqrt{\hat p_r} N)` that depends on the group."""
        return dual * self._group_factor

    def ascent(self, dual: Tensor, sums: Tensor) -> Tensor:
        """Return the gradient of the saddle form in W, (n_parts, n_classes)."""
        return sums * self._group_factor - 2.0 * dual * (self.shared @ sums)

    def optimal_dual(self, sums: Tensor) -> Tensor:
        r"""Return the maximiser W, :math:`\hat P_{rj} / (\sqrt{\hat p_r} \sum_q \hat P_{qj})`."""
        total = self._over_condition(sums).clamp_min(ROUNDING)
        return sums / self._root / total

    def project(self, dual: Tensor) -> Tensor:
        r"""Project W on norms of at most :math:`\sqrt{l / \min_r \hat p_r}` in each condition.

        This ball contains the optimal W of every table, because
        :math:`\sum_{rj} W_{rj}^2 = \sum_j \sum_r \hat P(r \mid j)^2 / \hat p_r`.
        """
        # The norm of the whole matrix bounds that of each condition.
        if float(torch.linalg.vector_norm(dual)) <= self._least_radius:
            return dual
        factor = self.radius / self._over_condition(dual**2).sum(dim=1).sqrt()
        return dual * factor.nan_to_num(nan=1.0, posinf=1.0).clamp_max(1.0)[:, None]

    def _over_condition(self, table: Tensor) -> Tensor:
        """Replace the row of each part by the sum over its condition."""
        return self._same @ table
