"""Linear combinations of rates: the constraints of rates, caps, loss parity, and of ratios."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairconstrained.constraints.affine import AffineMap, Combinations, as_tensor, without_zeros
from fairconstrained.constraints.moments import NEVER_BINDS, MomentConstraint, compared_rates
from fairconstrained.constraints.tables import ClassProbabilities, Placement, Space, Statistic
from fairconstrained.numerics import ROUNDING


class LinearMoments(MomentConstraint):
    r"""Linear combinations of rates, minus slack.

    A rate is a ratio of sums over the table, and a value is a combination of rates:

    .. math::

        \rho_r = \frac{\sum_{q,s} A_{rqs} M_{qs}}{\sum_q B_{rq} N_q}, \qquad
        g_j = \sum_r C_{jr}\, \rho_r - \mathrm{slack}_j .

    Every rate constraint and every loss parity has this form, so a new criterion needs no new
    class of constraints. Arrays or sparse matrices give :math:`A`, (n_rates, n_cells * n_columns),
    :math:`B`, (n_rates, n_cells), weights of rows, and :math:`C`, (m, n_rates), for (label, group)
    cells, ordered by label. Cells with equal coefficients are joined into parts. The title is the
    name in descriptions of values.
    """

    #: The columns whose values make each rate's group; see `compared_rates`.
    group_columns: Sequence[tuple[int, ...]] | None = None

    def __init__(
        self,
        space: Space,
        numerators: Any,
        denominators: Any,
        combinations: Any,
        slack: Any,
        statistic: Statistic,
        name: str,
        title: str | None = None,
    ):
        self.title = title or name
        self.cell_numerators = without_zeros(numerators)
        self.cell_denominators = without_zeros(denominators)
        if not isinstance(combinations, Combinations):
            combinations = Combinations.of(combinations)
        self.combinations: Combinations = combinations
        part, first_cell = self._joined(statistic.n_columns)
        allowed = torch.as_tensor(np.asarray(slack, dtype=float)).clamp_max(NEVER_BINDS)
        part_of_cell = torch.as_tensor(part.reshape(space.shape))
        super().__init__(space, part_of_cell, statistic, allowed, name)
        self.label_based = isinstance(statistic, ClassProbabilities)  # and not means of losses
        entries = first_cell[:, None] * statistic.n_columns + np.arange(statistic.n_columns)
        self._numerators = self.cell_numerators[:, entries.reshape(-1)]
        self._denominators = self.cell_denominators[:, first_cell]
        self._above = as_tensor(self._numerators, self.slack)
        self._below = as_tensor(self._denominators, self.slack)

    def _joined(self, n_columns: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the part of each cell, -1 for none, and one cell of each part."""
        # The coefficients of a cell are one sparse row. Cells with equal rows form one part.
        stacked = self.cell_denominators
        for c in reversed(range(n_columns)):
            stacked = sp.vstack((self.cell_numerators[:, c::n_columns], stacked)).tocsr()
        # Rate by rate, its denominator after its numerators.
        order = np.arange(stacked.shape[0]).reshape(n_columns + 1, -1).T.reshape(-1)
        rows = without_zeros(stacked[order].T)
        rows.sort_indices()
        cells: dict[bytes, list[int]] = {}
        for cell, (i, j) in enumerate(pairwise(rows.indptr)):
            # The bytes of sparse rows of positive values sort like dense rows.
            index = np.iinfo(np.int64).max - rows.indices[i:j].astype(np.int64)
            entries = np.stack((index, rows.data[i:j].view(np.int64)), axis=1)
            cells.setdefault(entries.astype(">i8").tobytes(), []).append(cell)
        cells.pop(b"", None)  # cells without coefficients are in no part
        part, first = np.full(rows.shape[0], -1), np.zeros(len(cells), dtype=np.int64)
        for number, key in enumerate(sorted(cells)):
            part[cells[key]], first[number] = number, cells[key][0]
        return part, first

    def evaluate(self, sums: Tensor, counts: Tensor, aux: Tensor) -> Tensor:
        rates = self.rates(sums, counts)[:, None]
        return self.combinations.to(sums).times(rates)[:, 0] - self.slack.to(sums)

    def rates(self, sums: Tensor, counts: Tensor) -> Tensor:
        """Return the rates from the table, (n_rates,)."""
        above, below = self._above.to(sums), self._below.to(sums)
        return ((above @ sums.reshape(-1, 1)) / (below @ counts[:, None]))[:, 0]

    def affine(self, counts: Tensor) -> AffineMap:
        rates = sp.diags_array(1.0 / (self._denominators @ counts.cpu().numpy())) @ self._numerators
        shape = self.n_parts, self.statistic.n_columns
        return AffineMap([self.combinations], rates, -self.slack.to(counts), shape)

    def deviations(self, scores: Tensor, rows: Placement, aux: Tensor) -> Tensor:
        """Return standard errors by the delta method, (m,); by bootstrap for fractional parts."""
        if rows.part.ndim == 2:
            return super().deviations(scores, rows, aux)
        return self.deviations_of(self.scatter(scores, rows))

    def scatter(self, scores: Tensor, rows: Placement) -> Tensor:
        """Return sums from which :meth:`deviations_of` computes errors, (n_parts, k, k + 1).

        For each part these are weighted sums of (s, 1), and sums of its products by squared weight.
        Fractions of a row count as if they belonged to several rows.
        """
        hard = self.statistic.hard(scores, rows.y)
        row = torch.cat((hard, torch.ones_like(hard[:, :1])), dim=1)
        k = row.shape[1]
        products = (row[:, :, None] * row[:, None, :]).reshape(len(row), -1)
        part = rows.part**2 if rows.part.ndim == 2 else rows.part
        squared = rows._replace(weight=rows.weight**2, part=part)
        squares = squared.sum(products).reshape(self.n_parts, k, k)
        return torch.cat((rows.sum(row)[:, :, None], squares), dim=2)

    def deviations_of(self, scatter: Tensor) -> Tensor:
        r"""Return the standard errors of the values, (m,), from sums over all rows, in any shape.

        With hard statistics s and rates :math:`\rho_r` over weights :math:`D_r`, a row of part q
        and weight w moves rate r by :math:`w (\sum_s A_{rqs} s - \rho_r B_{rq}) / D_r`. Sums of
        products of these moves are the covariances of the rates.
        """
        k = self.statistic.n_columns + 1
        scatter = scatter.reshape(self.n_parts, k, k + 1)
        moved, moments = self._moves(scatter[:, :-1, 0], scatter[:, -1, 0]), scatter[:, :, 1:]
        # Of many groups the combinations are many and the rates few.
        by_part = torch.einsum("rqk,qkl->rql", moved, moments)
        covariance = by_part.flatten(start_dim=1) @ moved.flatten(start_dim=1).T
        # Rounding may leave a variance of equal rates below zero.
        return self.combinations.variances(covariance).clamp_min(0.0).sqrt()

    def _moves(self, sums: Tensor, counts: Tensor) -> Tensor:
        """Return the derivative of rates by (s, 1) of a row of each part, (n_rates, n_parts, k)."""
        above, below = (matrix.to_dense().to(counts) for matrix in (self._above, self._below))
        total = below @ counts
        down = below * self.rates(sums, counts)[:, None]
        up = above.reshape(len(total), *sums.shape)
        return torch.cat((up, -down[:, :, None]), dim=2) / total[:, None, None]

    def describe(self, j: int) -> str:
        terms = self.combinations
        rate, factor = terms.rate.numpy()[:, j].tolist(), terms.factor.numpy()[:, j].tolist()
        sides: list[set[str]] = [set(), set()]
        for r, value in zip(rate, factor, strict=True):
            if value != 0:
                sides[value < 0].add(self._rate_names[r])
        words = map(" and ".join, map(sorted, filter(None, sides)))
        return f"{self.title}: " + " against ".join(words)

    @cached_property
    def _rate_names(self) -> list[str]:
        """Return the name of each rate, made once for the many values that share the rate."""
        names = []
        for r in range(self.combinations.n_rates):
            cells = self.cell_denominators[[r]].toarray().reshape(self.space.shape)
            columns = () if self.group_columns is None else self.group_columns[r]
            names.append(self.space.describe(cells > 0, columns))
        return names

    @property
    def gaps(self) -> Tensor:
        """Return the gap of two rates that each value allows, (m,)."""
        return self.slack

    def without_small(
        self, rows: NDArray[np.int64], min_rows: int | str
    ) -> tuple[LinearMoments, list[str]]:
        cells = self.cell_denominators
        if self.group_columns is not None:  # count rows, whatever their weights
            cells = cells.sign()
        comparison, is_group = compared_rates(
            self.space, cells, rows, min_rows, self.gaps, self.group_columns
        )
        combinations, keep, needed = self.combinations.without(~comparison.enough)
        # Rates of several classes share rows: a group compared by one of them is not alone.
        names = self._rate_names
        used = set(map(names.__getitem__, np.flatnonzero(needed)))
        unused = ~np.fromiter(map(used.__contains__, names), dtype=bool, count=len(names))
        comparison = comparison._replace(alone=comparison.enough & is_group & unused)
        if comparison.kept.all():
            return self, []
        rates = self.cell_numerators[needed], self.cell_denominators[needed], combinations
        named = self.statistic, self.name, self.title
        remaining = type(self)(self.space, *rates, self.slack.numpy()[keep], *named)
        if self.group_columns is not None:
            group_columns = [self.group_columns[r] for r in np.flatnonzero(needed).tolist()]
            remaining = remaining._with(group_columns=group_columns)
        return remaining, sorted(comparison.left_out(names.__getitem__))


class RateRatios(LinearMoments):
    r"""Ratios of rates of at least c, as linear combinations of the rates.

    For both orders of each pair of rates that is compared,

    .. math:: g_{ab} = c\, \rho_a - \rho_b + 10^{-9} \le 0 .

    :meth:`measure` is one minus the smallest ratio. Rates that are zero in both sets have no ratio,
    and are left out by name (:meth:`undefined`).
    """

    @cached_property
    def _pairs(self) -> tuple[float, NDArray[np.int64]]:
        """Return the fraction c, and for each value the index of its pair in the other order."""
        rate, factor = self.combinations.rate.numpy(), self.combinations.factor.numpy()
        first, second = ((rate * side).sum(axis=0) for side in (factor > 0, factor < 0))
        key, reverse = (
            np.ravel_multi_index(ab, (rate.max() + 1,) * 2)
            for ab in ((first, second), (second, first))
        )
        return float(factor.max()), key.argsort()[reverse.argsort().argsort()]

    def measure(self, values: Tensor) -> float:
        if not len(values):
            return float("nan")
        a, b = self._both(values)
        defined = a > ROUNDING
        return float((1.0 - b[defined] / a[defined]).max()) if defined.any() else float("nan")

    def undefined(self, values: Tensor) -> dict[int, tuple[str, ...]]:
        a, b = self._both(values)
        events: dict[int, str] = {}  # the predicted label whose rates are compared; "" for several
        names: dict[str, set[str]] = {}  # of all rates of an event, of which each pair is zero
        for j in torch.nonzero(torch.maximum(a, b) <= ROUNDING)[:, 0].tolist():
            rates = self.combinations.rate[:, j].tolist()
            columns = np.unique(self.cell_numerators[rates].indices % self.statistic.n_columns)
            one = len(columns) == 1
            events[j] = f"prediction {self.space.classes[columns[0]]} in " if one else ""
            words = (f"{events[j]}{self._rate_names[rate]}" for rate in rates)
            names.setdefault(events[j], set()).update(words)
        return {j: tuple(sorted(names[event])) for j, event in events.items()}

    def _both(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Return the two rates of each comparison, (m,) each."""
        c, partner = self._pairs
        first = values + self.slack.to(values)
        second = first[torch.as_tensor(partner, device=values.device)]
        # The two equations are solved for the rates.
        return (c * first + second) / (c**2 - 1.0), (c * second + first) / (c**2 - 1.0)

    def narrowed(self, by: Tensor) -> Self:
        """Subtract `by` (m,) from the slacks, as far as equal rates of 1 still satisfy them."""
        least = (self._pairs[0] - 1.0) / 2.0
        return self._with(slack=(self.slack - by.to(self.slack)).clamp_min(least))

    @property
    def gaps(self) -> Tensor:
        """Return 1 - c for each value, (m,): the gap between the rates 1 and c."""
        return torch.full_like(self.slack, 1.0 - self._pairs[0]) if len(self.slack) else self.slack

    def describe(self, j: int) -> str:
        rate, factor = self.combinations.rate[:, j], self.combinations.factor[:, j]
        words = [self._rate_names[int(rate[side])] for side in (factor.argmax(), factor.argmin())]
        return f"{self.title}: {float(factor.max()):g} times {words[0]} against {words[1]}"
