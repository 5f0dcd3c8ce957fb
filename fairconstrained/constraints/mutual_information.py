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

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fairconstrained.constraints.moments import MomentConstraint

__all__ = ["MutualInformation"]

_TINY = 1e-12  # replaces fractions that are zero, so that 0 / 0 is 0


class MutualInformation:
    r"""ERMI as a function of a table of moments with one row for each part of the data.

    Parameters
    ----------
    condition : LongTensor of shape (n_parts,)
        The condition of each part. Parts with the same condition are compared.
    n_classes : int
    used : BoolTensor of shape (n_parts,), optional
        Parts that count. The others have conditions of their own and are compared with nothing.
        Default: all.

    Notes
    -----
    The table and the counts must belong to the same rows, so the table of a batch has to be scaled
    up first. Negative denominators from noisy tables count as zero.

    References
    ----------
    Lowy, Gupta and Razaviyayn, "Stochastic Differentially Private and Fair Learning" (DP-FERMI),
    Theorem 3.1 (the empirical ERMI) and, for the saddle form, Theorems 3.2 and C.1: a mean over
    rows there as here. Within labels: Appendix B.
    """

    def __init__(self, condition: Tensor, n_classes: int, used: Tensor | None = None):
        self.condition = condition
        self.used = torch.ones_like(condition, dtype=torch.bool) if used is None else used
        self.n_classes = n_classes
        self.n_parts = len(condition)
        self.n_conditions = int(condition.max()) + 1 if len(condition) else 0
        self._same = (condition[:, None] == condition).double()
        self._last: tuple[Tensor, _Counts] | None = None

    @classmethod
    def within(cls, constraint: MomentConstraint) -> MutualInformation:
        """ERMI of the groups that a parity notion compares, within its conditions."""
        used = constraint.used_parts().tolist()
        cells = zip(constraint.part_cells(), used, strict=True)
        labels = [(tuple(np.any(own, axis=1).tolist()), counts) for own, counts in cells]
        known = list(dict.fromkeys(labels))
        condition = torch.tensor([known.index(key) for key in labels], dtype=torch.long)
        device = constraint.part_of_cell.device
        return cls(
            condition.to(device),
            constraint.statistic.n_columns,
            torch.tensor(used, dtype=torch.bool, device=device),
        )

    def value(self, sums: Tensor, counts: Tensor) -> Tensor:
        r"""ERMI of a table (n_parts, n_classes) and counts (n_parts,), ().

        As :math:`\sum_{rj} (\hat P_{rj} - \hat p_r \hat P_j)^2 / (\hat p_r \hat P_j)`, which is the
        same sum: near independence nothing cancels, however large the penalty.
        """
        known = self._known(counts)
        total = self._over_condition(sums).clamp_min(_TINY)
        root = torch.where(self.used[:, None], known.root, 0.0)
        apart = torch.where(self.used[:, None], sums / known.root, 0.0) - root * total
        return (apart**2 / total).sum() / known.total

    def saddle_value(self, dual: Tensor, sums: Tensor, counts: Tensor) -> Tensor:
        r"""Mean of :math:`\psi_i(\theta, W)` over the rows, (), which is linear in the table."""
        return (self.weights(dual, counts) * sums).sum() - 1.0

    def weights(self, dual: Tensor, counts: Tensor) -> Tensor:
        r"""Derivative of the saddle form by the table, (n_parts, n_classes).

        A row of part r adds :math:`F_j` times
        :math:`(2 W_{rj} / \sqrt{\hat p_r} - \sum_q W_{qj}^2) / N`, where q runs over the parts with
        the condition of r.
        """
        return self.group_weights(dual, counts) - self.common_weights(dual, counts)

    def group_weights(self, dual: Tensor, counts: Tensor) -> Tensor:
        r"""The term :math:`2 W_{rj} / (\sqrt{\hat p_r} N)`, which depends on the group."""
        return dual * self._known(counts).own

    def common_weights(self, dual: Tensor, counts: Tensor) -> Tensor:
        r"""The term :math:`\sum_q W_{qj}^2 / N`, which is the same for all groups."""
        return self.shared(counts) @ dual**2

    def shared(self, counts: Tensor) -> Tensor:
        r"""1 / N where two parts have the same condition, (n_parts, n_parts)."""
        return self._known(counts).shared

    def ascent(self, dual: Tensor, sums: Tensor, counts: Tensor) -> Tensor:
        """Gradient of the saddle form in W, (n_parts, n_classes)."""
        known = self._known(counts)
        return sums * known.own - 2.0 * dual * (known.shared @ sums)

    def optimal_dual(self, sums: Tensor, counts: Tensor) -> Tensor:
        r"""The maximiser W, :math:`\hat P_{rj} / (\sqrt{\hat p_r} \sum_q \hat P_{qj})`."""
        total = self._over_condition(sums).clamp_min(_TINY)
        own = torch.where(self.used[:, None], sums, torch.zeros_like(sums))
        return own / self._known(counts).root / total

    def project(self, dual: Tensor, counts: Tensor) -> Tensor:
        r"""Project W on norms of at most :math:`\sqrt{l / \min_r \hat p_r}` in each condition.

        This ball contains the optimal W of every table, because
        :math:`\sum_{rj} W_{rj}^2 = \sum_j \sum_r \hat P(r \mid j)^2 / \hat p_r`.
        """
        known = self._known(counts)
        # The norm of the whole matrix bounds that of each condition.
        if float(torch.linalg.vector_norm(dual)) <= known.least_radius:
            return dual
        norms = self._over_condition(dual**2).sum(dim=1).sqrt()
        factor = known.radius / norms
        return dual * factor.nan_to_num(nan=1.0, posinf=1.0).clamp_max(1.0)[:, None]

    def radius(self, counts: Tensor) -> Tensor:
        """Radius of the ball of each part's condition, (n_parts,)."""
        return self._known(counts).radius

    def _known(self, counts: Tensor) -> _Counts:
        """Quantities of the counts, cached because every step uses the same counts."""
        if self._last is None or self._last[0] is not counts:
            self._last = counts, self._of_counts(counts)
        return self._last[1]

    def _of_counts(self, counts: Tensor) -> _Counts:
        fraction = (counts / self._over_condition(counts).clamp_min(_TINY)).clamp_min(_TINY)
        total = counts[self.used].sum()
        others = torch.where(self._same > 0, fraction, torch.inf)
        least = others.amin(dim=1) if len(counts) else fraction
        root = fraction.sqrt()[:, None]
        inverse = torch.where(self.used, 1.0 / total, 0.0)[:, None]
        radius = (self.n_classes / least).sqrt()
        own, shared = 2.0 * inverse / root, inverse * self._same
        return _Counts(root, total, own, shared, radius, min(radius.tolist(), default=0.0))

    def _over_condition(self, table: Tensor) -> Tensor:
        """Replace the row of each part by the sum over its condition."""
        return self._same.to(table) @ table


class _Counts(NamedTuple):
    """Quantities of the counts that the formulas use."""

    root: Tensor  # (n_parts, 1): square root of the fraction of each part in its condition
    total: Tensor  # (): total count of the parts that count
    own: Tensor  # (n_parts, 1): 2 / (root total), 0 for parts that do not count
    shared: Tensor  # (n_parts, n_parts): 1 / total where two parts have the same condition
    radius: Tensor  # (n_parts,): radius of the ball on which W is projected
    least_radius: float
