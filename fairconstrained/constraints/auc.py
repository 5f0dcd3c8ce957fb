r"""AUC-based constraints: two pairs of sets of rows should be ranked equally well.

.. math:: | \mathrm{AUC}(G_1, G_1') - \mathrm{AUC}(G_2, G_2') | \le \mathrm{slack}

(AUC-fairness paper, Definition 2), where the sets are unions of (label, group) cells.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairconstrained.auc import COMPARISONS, auc_deviations, auc_differences, win_table
from fairconstrained.constraints.moments import BoundConstraint, Space
from fairconstrained.constraints.notions import Notion, checked_slack
from fairconstrained.constraints.surrogates import SURROGATES, Surrogate

__all__ = ["AUCConstraint", "AUCParity"]


class AUCConstraint(BoundConstraint):
    r"""Differences of surrogate AUCs, both signs, minus slack; hard values are true differences.

    With the loss :math:`\ell(G, G')` of a surrogate, which estimates P(z <= z'),

    .. math::

        g_j = \ell(G_1', G_1) + \ell(G_2, G_2') - 1 - \mathrm{slack}_j, \qquad
        g_{m+j} = \ell(G_2', G_2) + \ell(G_1, G_1') - 1 - \mathrm{slack}_j

    (equations 4 and 5).

    Parameters
    ----------
    space : Space
        Of two classes.
    comparisons : array-like of shape (m, 4, 2, n_groups)
        Zeros and ones: the cells of :math:`G_1, G_1', G_2, G_2'`.
    slack : array-like of shape (m,)
    surrogate : Surrogate
    name : str
        The notion, for messages.

    Examples
    --------
    >>> from fairconstrained.constraints import AUCParity, Space
    >>> constraint = AUCParity("group_auc").bind(Space([0, 1], ["a", "b"]), 0.05, 1.0)
    >>> type(constraint).__name__, len(constraint.slack)
    ('AUCConstraint', 2)
    """

    offsets_matter = False

    def __init__(self, space: Space, comparisons: Any, slack: Any, surrogate: Surrogate, name: str):
        self.space = space
        self.comparisons = np.asarray(comparisons, dtype=float)
        self.surrogate = surrogate
        self.name = name
        self.slack = torch.as_tensor(np.tile(np.asarray(slack, dtype=float), 2)).clamp_max(1e6)
        # Cells that are in the same sets are one part.
        member = self.comparisons.reshape(4 * len(self.comparisons), space.n_cells)
        columns, index = np.unique(member, axis=1, return_inverse=True)
        used = columns.any(axis=0)
        part = np.where(used, np.cumsum(used) - 1, -1)[index.reshape(-1)]
        super().__init__(
            torch.as_tensor(part.reshape(len(space.classes), len(space.groups))),
            surrogate.statistic,
        )
        self.sets = torch.as_tensor(
            columns[:, used].reshape(len(self.comparisons), 4, self.n_parts)
        )

    def of_moments(self, sums: Tensor, counts: Tensor, aux: Tensor) -> Tensor:
        """Values from the table, (2 m,)."""
        return self._compared(self.surrogate.loss, sums, counts) - 1.0 - self.slack.to(sums)

    def forms(self, sums: Tensor, counts: Tensor) -> Tensor:
        """Values as quadratic forms of a linear model's coefficients, (2 m, p + 1, p + 1).

        `sums` holds a moment matrix for each part and the surrogate is quadratic: see
        :meth:`Quadratic.form`.
        """
        forms = self._compared(self.surrogate.form, sums, counts)  # type: ignore[attr-defined]
        forms[:, -1, -1] -= 2.0 * (1.0 + self.slack.to(sums))
        return forms

    def _compared(
        self, loss: Callable[[Tensor, Tensor], Tensor], sums: Tensor, counts: Tensor
    ) -> Tensor:
        """Both signs of all comparisons, of a loss that takes the means of two sets."""
        sets = self.sets.to(sums)
        weights = (sets @ counts).reshape(*sets.shape[:2], *(1 for _ in sums.shape[1:]))
        means = torch.tensordot(sets, sums, dims=1) / weights
        first, first_, second, second_ = means.unbind(dim=1)
        above = loss(first_, first) + loss(second, second_)
        below = loss(second_, second) + loss(first, first_)
        return torch.cat((above, below))

    def hard_values(
        self, scores: Tensor, y: Tensor, group: Tensor, weight: Tensor, aux: Tensor
    ) -> Tensor:
        """Values of the true AUCs on these rows, from one sort, (2 m,)."""
        cell = self.bins(y, group).cpu().numpy()
        w = weight.cpu().numpy()
        counts = self.counts(y, group, weight).cpu().numpy()
        table = win_table(scores[:, 0].cpu().numpy(), cell, w, self.n_parts + 1)
        kept = table[: self.n_parts, : self.n_parts]
        difference = torch.as_tensor(auc_differences(kept, counts, self.sets.numpy()))
        return torch.cat((difference, -difference)).to(scores) - self.slack.to(scores)

    def deviations(self, scores: Tensor, y: Tensor, group: Tensor, weight: Tensor) -> Tensor:
        """Standard errors of the true AUCs' differences on these rows, (m,)."""
        z, cell, w = (
            column.cpu().numpy() for column in (scores[:, 0], self.bins(y, group), weight)
        )
        return torch.as_tensor(auc_deviations(z, cell, w, self.sets.numpy()))

    def narrowed(self, by: Tensor) -> AUCConstraint:
        """With slacks less `by` (m,), not below zero."""
        return self._with(slack=(self.slack[: len(self.comparisons)] - by).clamp_min(0.0).numpy())

    def with_surrogate(self, surrogate: Surrogate) -> AUCConstraint:
        """The same comparisons, with another stand-in for true AUCs."""
        return self._with(surrogate=surrogate)

    def describe(self, j: int) -> str:
        """Words for value j: which AUCs it compares."""
        m = len(self.comparisons)
        sets = [self.space.describe(cells > 0) for cells in self.comparisons[j % m]]
        aucs = [f"AUC({sets[0]} | {sets[1]})", f"AUC({sets[2]} | {sets[3]})"]
        return f"{self.name}: " + " against ".join(aucs if j < m else aucs[::-1])

    def without_small(
        self, rows: NDArray[np.int64], min_rows: int
    ) -> tuple[AUCConstraint, list[str]]:
        """Drop the comparisons with a set of too few rows."""
        n = (self.comparisons * rows).sum(axis=(2, 3))
        small = n < max(min_rows, 1)
        if not small.any():
            return self, []
        dropped = sorted(
            {
                f"{self.space.describe(self.comparisons[j, k] > 0)} ({int(n[j, k])} rows)"
                for j, k in np.argwhere(small)
            }
        )
        keep = ~small.any(axis=1)
        slack = self.slack.numpy()[: len(keep)][keep]
        return self._with(comparisons=self.comparisons[keep], slack=slack), dropped

    def _with(self, **changes: Any) -> AUCConstraint:
        """The constraint with other arguments."""
        own: dict[str, Any] = {
            "space": self.space,
            "comparisons": self.comparisons,
            "slack": self.slack[: len(self.comparisons)].numpy(),
            "surrogate": self.surrogate,
            "name": self.name,
        }
        return AUCConstraint(**(own | changes))


class AUCParity(Notion):
    """An AUC-based notion for two labels and any number of groups, by the worst pair.

    Parameters
    ----------
    notion : str, default="group_auc"
        ``"group_auc"``, ``"inter_group"``, ``"intra_group"``, ``"positive_equality_gap"``,
        ``"negative_equality_gap"`` or ``"bpsn_bnsp"``; the metrics of these names in
        :mod:`fairconstrained.metrics` say what they compare.
    slack : float, optional
        Largest allowed difference of AUCs; default: the estimator's ``slack``.
    surrogate : {"binormal", "quadratic", "soft_bins"} or surrogate object, default="binormal"
        What stands in for true AUCs while a model trains.

    Examples
    --------
    >>> from fairconstrained.constraints import AUCParity
    >>> AUCParity("inter_group", slack=0.02)
    AUCParity(notion='inter_group', slack=0.02)
    """

    name = "auc_parity"

    def __init__(
        self,
        notion: str = "group_auc",
        slack: float | None = None,
        *,
        surrogate: str | Surrogate = "binormal",
    ):
        self.notion = notion
        self.slack = slack
        self.surrogate = surrogate

    def bind(self, space: Space, slack: float, temperature: float) -> AUCConstraint:
        """Give the constraint on these labels and groups."""
        if len(space.classes) != 2:
            raise ValueError(f"AUCParity needs two classes; got {len(space.classes)}.")
        slack = checked_slack(self, "slack", slack if self.slack is None else self.slack)
        comparisons = self._chosen("notion", COMPARISONS)(len(space.groups))
        surrogate = self.surrogate
        if isinstance(surrogate, str):
            surrogate = self._chosen("surrogate", SURROGATES)
        return AUCConstraint(
            space, comparisons, np.full(len(comparisons), slack), surrogate, self.notion
        )
