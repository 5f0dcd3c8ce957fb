r"""AUC-based constraints: the AUCs of two pairs of sets of rows are close.

.. math:: | \mathrm{AUC}(G_1, G_1') - \mathrm{AUC}(G_2, G_2') | \le \mathrm{slack}

(AUC-fairness paper, Definition 2), where the sets are unions of (label, group) cells.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairconstrained import exact_auc
from fairconstrained.constraints.moments import NEVER_BINDS, MomentConstraint, compared_rates
from fairconstrained.constraints.notions import Notion, checked_number, chosen
from fairconstrained.constraints.surrogates import SURROGATES, Quadratic, Surrogate
from fairconstrained.constraints.tables import Placement, Space


class AUCConstraint(MomentConstraint):
    r"""Differences of surrogate AUCs with both signs, minus slack. Hard values use true AUCs.

    With the loss :math:`\ell(G, G')` of a surrogate, which estimates P(z <= z'), the values are

    .. math::

        g_j = \ell(G_1', G_1) + \ell(G_2, G_2') - 1 - \mathrm{slack}_j, \qquad
        g_{m+j} = \ell(G_2', G_2) + \ell(G_1, G_1') - 1 - \mathrm{slack}_j

    (equations 4 and 5). The space has two classes. Comparisons, (m, 4, 2, n_groups), are zeros and
    ones: the cells of :math:`G_1, G_1', G_2, G_2'`.
    """

    def __init__(self, space: Space, comparisons: Any, slack: Any, surrogate: Surrogate, name: str):
        self.comparisons = np.asarray(comparisons, dtype=float)
        self.surrogate = surrogate
        sides = self.comparisons.reshape(len(self.comparisons), 4, prod(space.shape))
        self._sets_of_cells, index_of_side = exact_auc.distinct_sets(sides)
        # Cells in the same sets form one part.
        columns, index = np.unique(self._sets_of_cells, axis=1, return_inverse=True)
        used = columns.any(axis=0)
        part = np.where(used, np.cumsum(used) - 1, -1)[index.reshape(-1)]
        super().__init__(
            space,
            torch.as_tensor(part.reshape(space.shape)),
            surrogate.statistic,
            torch.as_tensor(np.tile(np.asarray(slack, dtype=float), 2)).clamp_max(NEVER_BINDS),
            name,
        )
        self.sets, self.index = torch.as_tensor(columns[:, used]), torch.as_tensor(index_of_side)

    def evaluate(self, sums: Tensor, counts: Tensor, aux: Tensor) -> Tensor:
        means = self._means(sums, counts)
        losses = self.surrogate.loss(means[:, None], means[None])  # of all pairs of sets
        return self._compared(lambda i, j: losses[i, j]) - 1.0 - self.slack.to(sums)

    def forms(self, sums: Tensor, counts: Tensor) -> Tensor:
        """Return values as quadratic forms, (2 m, p + 1, p + 1), from moment matrices of parts."""
        means, form = self._means(sums, counts), self.surrogate.form  # type: ignore[attr-defined]
        forms = self._compared(lambda i, j: form(means[i], means[j]))
        forms[:, -1, -1] -= 2.0 * (1.0 + self.slack.to(sums))
        return forms

    def _means(self, sums: Tensor, counts: Tensor) -> Tensor:
        """Return the means over the sets of the comparisons, (n_sets, ...)."""
        sets = self.sets.to(sums)
        weight = (sets @ counts).reshape(-1, *[1] * (sums.ndim - 1))
        means: Tensor = torch.tensordot(sets, sums, dims=1) / weight
        return means

    def _compared(self, loss: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """Evaluate all comparisons with both signs, given the loss of two sets."""
        first, first_, second, second_ = self.index.unbind(dim=1)
        above = loss(first_, first) + loss(second, second_)
        return torch.cat((above, loss(second_, second) + loss(first, first_)))

    def hard_values(self, scores: Tensor, rows: Placement, aux: Tensor) -> Tensor:
        row, copies = rows.copies()
        z, part, w = (c.cpu().numpy() for c in (scores[row, 0], copies.part, copies.weight))
        table = exact_auc.win_table(z, part, w, self.n_parts + 1)[: self.n_parts, : self.n_parts]
        counts = rows.counts().cpu().numpy()
        gaps = exact_auc.differences_of_sets(table, counts, self.sets.numpy(), self.index.numpy())
        difference = torch.as_tensor(gaps)
        return torch.cat((difference, -difference)).to(scores) - self.slack.to(scores)

    def pair_values(self, rows: Placement, above: Tensor, below: Tensor) -> Tensor:
        """Return the part of the hard values due to pairs of rows, the first above, (k, 2 m)."""
        sets = self.sets.to(rows.weight)
        fraction = sets / (sets @ rows.counts())[:, None]
        weight = fraction @ rows.weights()
        first, first_, second, second_ = (weight[index] for index in self.index.unbind(dim=1))
        added = first[:, above] * first_[:, below] - second[:, above] * second_[:, below]
        return torch.cat((added, -added)).T

    def deviations(self, scores: Tensor, rows: Placement, aux: Tensor) -> Tensor:
        """Return standard errors of the differences of true AUCs on these rows, of both signs."""
        if rows.part.ndim == 2:
            return super().deviations(scores, rows, aux)
        z, part, w = (c.cpu().numpy() for c in (scores[:, 0], rows.part, rows.weight))
        sides = self.sets[self.index].numpy()  # (m, 4, n_parts)
        return torch.as_tensor(exact_auc.auc_standard_errors(z, part, w, sides)).repeat(2)

    def at_equal_scores(self) -> AUCConstraint:
        """Return the constraint with the quadratic surrogate: there its gaps are of mean scores."""
        # Other surrogates do not depend on the scale of scores, and are undefined there.
        return self.changed(surrogate=Quadratic())

    def describe(self, j: int) -> str:
        m = len(self.comparisons)
        sides = [self.space.describe(cells > 0) for cells in self.comparisons[j % m]]
        aucs = [f"AUC({sides[0]} | {sides[1]})", f"AUC({sides[2]} | {sides[3]})"]
        return f"{self.name}: " + " against ".join(aucs if j < m else aucs[::-1])

    def without_small(
        self, rows: NDArray[np.int64], min_rows: int | str
    ) -> tuple[AUCConstraint, list[str]]:
        sets = sp.csr_array(self._sets_of_cells)
        comparison, is_group = compared_rates(self.space, sets, rows, min_rows, self.slack)
        index = self.index.numpy()
        keep = comparison.enough[index].all(axis=1)
        needed = np.isin(np.arange(len(comparison.rows)), index[keep])
        comparison = comparison._replace(alone=comparison.enough & is_group & ~needed)
        if comparison.kept.all():
            return self, []
        slack = self.slack.numpy()[: len(keep)][keep]
        remaining = self.changed(comparisons=self.comparisons[keep], slack=slack)
        cells = self._sets_of_cells.reshape(-1, *self.space.shape) > 0
        return remaining, sorted(comparison.left_out(lambda s: self.space.describe(cells[s])))

    def changed(self, **changes: Any) -> AUCConstraint:
        """Copy the constraint with other arguments."""
        args: dict[str, Any] = {name: getattr(self, name) for name in ("comparisons", "surrogate")}
        args["slack"] = self.slack[: len(self.comparisons)].numpy()
        return AUCConstraint(self.space, name=self.name, **(args | changes))


@dataclass(eq=False, repr=False)
class AUCParity(Notion):
    """Parity of AUCs for two classes and the worst pair of any number of groups.

    Parameters
    ----------
    comparison : str, default="group_auc"
        ``"group_auc"``, ``"inter_group"``, ``"intra_group"``, ``"positive_equality_gap"``,
        ``"negative_equality_gap"`` or ``"bpsn_bnsp"``. The metrics of these names in
        :mod:`fairconstrained.metrics` define what is compared. The label on top is the second in
        sorted order. If the first is meant, the two equality gaps change places.
    slack : float, optional
        Largest allowed difference of AUCs; default: the estimator's ``slack``.
    surrogate : {"soft_bins", "binormal", "quadratic"} or surrogate object, default="soft_bins"
        Replaces true AUCs in training. ``"soft_bins"`` counts pairs in smooth histograms of the
        scores and is close to the true AUC. ``"binormal"`` is the AUC of normal scores with the
        means and variances of the groups. ``"quadratic"`` is the paper's, which does not follow the
        true AUC for pairwise criteria. :class:`SoftBins` and :class:`Quadratic` take parameters.

    Examples
    --------
    >>> from fairconstrained.constraints import AUCParity
    >>> AUCParity("inter_group", slack=0.02)
    AUCParity(comparison='inter_group', slack=0.02)
    """

    comparison: str = "group_auc"
    slack: float | None = None
    surrogate: str | Surrogate = field(default="soft_bins", kw_only=True)

    @property
    def name(self) -> str:  # type: ignore[override]
        """Return the name of the comparison."""
        return self.comparison

    def bind(self, space: Space, slack: float | None = None) -> AUCConstraint:
        if len(space.classes) != 2:
            raise ValueError(f"AUCParity needs two classes; got {len(space.classes)}.")
        allowed = checked_number(self, "slack", slack if self.slack is None else self.slack)
        comparisons_of = chosen(self, "comparison", exact_auc.COMPARISONS)
        surrogate = self.chosen_surrogate()
        n_groups = len(space.groups)
        # A criterion of pairs has one comparison for two groups, and G (G - 1) / 2 for G groups.
        pairwise = len(comparisons_of(2)) == 1
        n_comparisons = n_groups * (n_groups - 1) // 2 if pairwise else n_groups
        # 400 MB: about 230 groups pair by pair.
        if 8 * n_groups * n_comparisons > 50_000_000:
            raise ValueError(
                f"AUCParity({self.comparison!r}) of {n_groups:,} groups would make "
                f"{n_comparisons:,} comparisons of {2 * n_groups:,} cells, which need more than "
                "400 MB. Use fewer groups: cross fewer columns, or join small groups."
            )
        # Rows of unknown group are in no set.
        comparisons = np.pad(comparisons_of(n_groups), [(0, 0)] * 3 + [(0, int(space.unknown))])
        return AUCConstraint(
            space, comparisons, np.full(len(comparisons), allowed), surrogate, self.name
        )

    def chosen_surrogate(self) -> Surrogate:
        """Return the surrogate as an object; raise ValueError for anything else."""
        if isinstance(self.surrogate, str):
            return chosen(self, "surrogate", SURROGATES)
        if not hasattr(self.surrogate, "loss"):
            raise ValueError(
                f"AUCParity.surrogate must be one of {sorted(SURROGATES)}, or an object such as "
                f"fairconstrained.constraints.SoftBins(n_bins=32); got {self.surrogate!r}."
            )
        return self.surrogate


AUCS: Mapping[str, Callable[[], AUCParity]] = {
    name: partial(AUCParity, name) for name in exact_auc.COMPARISONS
}
