r"""Constraints that depend on the data only through a small table of group moments.

The rows are partitioned into *parts* by (label, group). With the statistics :math:`s(z_i, y_i)` of
a row and its weight :math:`w_i`, the table is

.. math:: M_q = \sum_{i \in q} w_i s(z_i, y_i), \qquad N_q = \sum_{i \in q} w_i ,

and a constraint is a function of the table: :math:`g(M, N) \le 0`. Tables of chunks, batches and
workers add up. Gradients pass through a few numbers, and private training has to protect only
these.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairconstrained.comparison import Compared, compared
from fairconstrained.constraints.affine import AffineMap
from fairconstrained.constraints.steps import Above
from fairconstrained.constraints.tables import Partition, Placement, Space, Statistic
from fairconstrained.losses import linearized
from fairconstrained.numerics import ROUNDING

# In place of an infinite slack, which would make values infinite and their gradients nan.
NEVER_BINDS = 1e6


class MomentConstraint:
    """Base of constraints, from a partition, a statistic and a function of the table.

    A subclass implements :meth:`evaluate`, :meth:`describe` and :meth:`without_small`. It
    overrides other methods if it supports more.
    """

    space: Space  # the labels and groups that the constraint is bound to
    label_based = False  # whether hard values depend on scores by predicted labels only
    difference_of_convex = False  # whether `convex_parts` is implemented

    def __init__(
        self,
        space: Space,
        part_of_cell: Tensor,
        statistic: Statistic,
        slack: Tensor,
        name: str,
        n_aux: int = 0,
    ):
        self.space = space
        self.partition = Partition(part_of_cell, space)
        self.statistic = statistic
        self.slack = slack  # (m,), which the values contain
        self.name = name  # of the criterion in messages
        self.n_aux = n_aux  # number of extra primal variables
        self.n_parts = self.partition.n_parts

    @property
    def members(self) -> tuple[MomentConstraint, ...]:
        """Return the constraints of single criteria that this one consists of."""
        return (self,)

    def evaluate(self, sums: Tensor, counts: Tensor, aux: Tensor) -> Tensor:
        """Return values, (m,), from the table of soft statistics."""
        raise NotImplementedError

    def evaluate_hard(self, sums: Tensor, counts: Tensor, aux: Tensor) -> Tensor:
        """Return hard values, (m,), from the table of hard statistics."""
        return self.evaluate(sums, counts, aux)

    def values(self, scores: Tensor, rows: Placement, aux: Tensor) -> Tensor:
        """Return the values on these rows, (m,)."""
        sums = self.statistic_at(aux).sums(scores, rows)
        return self.evaluate(sums, rows.counts(), aux)

    def hard_values(self, scores: Tensor, rows: Placement, aux: Tensor) -> Tensor:
        """Return hard values on these rows, (m,), as users measure them; here from the table."""
        sums = rows.sums(self.statistic.hard, scores)
        return self.evaluate_hard(sums, rows.counts(), aux)

    def convex_parts(self, scores: Tensor, rows: Placement, aux: Tensor) -> Tensor:
        """Return rows, (2, m), convex in scores and extra variables, with difference `values`."""
        raise NotImplementedError

    def affine(self, counts: Tensor) -> AffineMap | None:
        """Return the map from tables to values for given counts, or None if it is not affine."""
        return None

    def linearize(
        self, scores: Tensor, y: Tensor, aux: Tensor
    ) -> tuple[Tensor, Callable[[Tensor], tuple[Tensor, Tensor]]]:
        """Return soft statistics (n, n_columns), and the derivatives of their weighted sums.

        The pullback maps weights (n, n_columns) to derivatives by the scores, (n, K), and by the
        extra variables, (n_aux,).
        """
        if self.n_aux:
            soft, pullback = linearized(lambda z, a: self.statistic_at(a).soft(z, y), scores, aux)
            return soft, pullback  # type: ignore[return-value]
        soft, on_scores = self.statistic.linearize(scores, y)
        return soft, lambda weights: (on_scores(weights), torch.zeros_like(aux))

    def init_aux(self, scores: Tensor, rows: Placement) -> Tensor:
        """Return the starting values of the extra variables."""
        return scores.new_zeros(self.n_aux)

    def statistic_at(self, aux: Tensor) -> Statistic:
        """Return the statistic at these extra variables."""
        return self.statistic

    def steps_at(self, aux: Tensor) -> Above | None:
        """Return `statistic_at` if extra variable c is the threshold of column c, else None."""
        return None

    def at_equal_scores(self) -> Self:
        """Return a constraint whose soft values have a gradient where all scores are equal."""
        return self

    def sharpened(self) -> Self:
        """Sharpen the statistic; return the constraint itself if nothing changes."""
        statistic = self.statistic.sharpened()
        return self if statistic == self.statistic else self._with(statistic=statistic)

    def loosened(self, by: float) -> Self:
        """Add to the slack if that helps solvers to start; else return the constraint itself."""
        return self

    def narrowed(self, by: Tensor) -> Self:
        """Subtract `by` (m,) from the slacks, down to zero from those that are not negative."""
        # Below zero no two rates are close enough; slacks that are negative already mean something
        # else.
        less = self.slack - by.to(self.slack)
        return self._with(slack=torch.where(self.slack < 0.0, less, less.clamp_min(0.0)))

    def without_rounding(self, hard: Tensor) -> Tensor:
        """Replace hard values by 0 where only rounding makes them differ from it.

        Gaps of labels are rounded as those who count them round: only without a slack may sums of
        weights make one of nothing.
        """
        rounds = (self.slack.to(hard) <= 0.0) | (not self.label_based)
        return torch.where(rounds & (hard.abs() <= ROUNDING), 0.0, hard)

    def shifted(self, by: Tensor) -> Self:
        """Subtract `by` (m,) from the slacks, which may become negative."""
        return self._with(slack=self.slack - by.to(self.slack))

    def deviations(self, scores: Tensor, rows: Placement, aux: Tensor) -> Tensor:
        """Estimate standard errors of the hard values on these rows, (m,)."""
        # By the Bayesian bootstrap (Rubin 1981), over independent exponential weights: the same
        # draws at every point, so that errors of two points can be compared.
        rng = torch.Generator(device="cpu").manual_seed(0)
        drawn = []
        for _ in range(100):
            factor = torch.empty_like(rows.weight, device="cpu").exponential_(generator=rng)
            reweighted = rows._replace(weight=rows.weight * factor.to(rows.weight.device))
            drawn.append(self.hard_values(scores, reweighted, aux))
        return torch.stack(drawn).std(dim=0)

    def scatter(self, scores: Tensor, rows: Placement) -> Tensor:
        """Return sums over rows from which :meth:`deviations_of` computes standard errors."""
        raise NotImplementedError

    def deviations_of(self, scatter: Tensor) -> Tensor:
        """Return :meth:`deviations`, given :meth:`scatter` of all rows, where there is one."""
        raise NotImplementedError

    def without_small(
        self, rows: NDArray[np.int64], min_rows: int | str
    ) -> tuple[MomentConstraint, list[str]]:
        """Drop the values of rates that are not compared.

        `rows` (n_classes, n_groups) are numbers of rows, by which :func:`compared_rates` decides.
        Returns the constraint, and words for each rate that was left out.
        """
        raise NotImplementedError

    def measure(self, values: Tensor) -> float:
        """Return the largest value without its slack, in the criterion's units; nan if none."""
        return float((values + self.slack.to(values)).max()) if len(values) else float("nan")

    def undefined(self, values: Tensor) -> dict[int, str]:
        """Name the values of comparisons that do not exist at this point, by their places."""
        return {}

    def measures(self, values: Tensor) -> dict[str, float]:
        """Measure each criterion in its own units, by name."""
        return {self.name: self.measure(values)}

    def describe(self, j: int) -> str:
        """Describe the comparison of value j."""
        raise NotImplementedError

    def _with(self, **attributes: Any) -> Self:
        """Copy the constraint with other attributes."""
        other = copy.copy(self)
        vars(other).update(attributes)
        return other


def compared_rates(
    space: Space,
    cells: Any,
    rows: NDArray[np.int64],
    min_rows: int | str,
    gaps: Tensor,
    differs: Sequence[tuple[int, ...]] | None = None,
) -> tuple[Compared, NDArray[np.bool_]]:
    """Decide which rates over these cells are compared, and whether each is of a single group.

    `cells` (n_rates, n_cells), a scipy matrix, says how much each cell counts. One row may
    move a rate by the smallest of the `gaps` (m,) that values allow. `differs` has for each rate
    the columns whose values make its group, () if it is no group; by default single groups are
    values of one.
    """
    cells.sort_indices()
    n_groups, places = len(space.groups) + len(space.partly), []
    # Rates of several classes rest on equal cells: each set of cells is decided once.
    place: dict[tuple[tuple[int, ...] | None, bytes], int] = {}
    family: list[int] = []
    families: dict[tuple[tuple[int, ...], bytes], int] = {}
    for r, (i, j) in enumerate(pairwise(cells.indptr)):
        columns = None if differs is None else differs[r]
        key = columns, cells.indices[i:j].tobytes() + cells.data[i:j].tobytes()
        if key not in place:
            label, group = np.divmod(cells.indices[i:j], space.shape[1])
            label, group = label[group < n_groups], group[group < n_groups]
            if columns is None:
                columns = (0,) * (len(np.unique(group)) == 1)
            condition = columns, np.unique(label).tobytes()
            number = families.setdefault(condition, len(families))
            family.append(number if columns else -1)
            place[key] = len(place)
        places.append(place[key])
    n = (cells @ rows.reshape(-1))[np.unique(places, return_index=True)[1]]
    gap = float(gaps.min()) if len(gaps) else NEVER_BINDS
    by_place = compared(n[:, None], gap, min_rows, families=family)
    n_rows, least, alone = by_place
    comparison = Compared(n_rows[places, 0], least[places, 0], alone[places, 0])
    return comparison, np.array(family, dtype=int)[places] >= 0
