"""Linear combinations of rates: the constraints of rates, caps and loss parity, and their maps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from fairconstrained.constraints.moments import NEVER_BINDS, MomentConstraint
from fairconstrained.constraints.tables import (
    ClassProbabilities,
    Placement,
    Space,
    Statistic,
    look_up,
    sum_by,
)

_RANK_TOL = 1e-12  # singular values below this fraction of their sum are zero
_DENSE = 2**16  # entries up to which a matrix is stored densely, 0.5 MB: its products are faster
_AT_ONCE = 10_000_000  # entries of a product of which only the largest are kept


class Combinations(NamedTuple):
    """Linear combinations C of rates, m of them, with few terms each."""

    rate: Tensor  # (n_terms, m), the rate of each term
    factor: Tensor  # (n_terms, m)
    n_rates: int
    #: Sizes of families whose ordered pairs are the values, in order: products take half the time.
    families: tuple[int, ...] = ()

    @classmethod
    def of(cls, matrix: Any, families: tuple[int, ...] = ()) -> Combinations:
        """The combinations that an array or a scipy matrix (m, n_rates) gives."""
        found = without_zeros(matrix)
        count = np.diff(found.indptr)
        is_term = np.arange(count.max(initial=1)) < count[:, None]
        rate, factor = np.zeros(is_term.shape, dtype=np.int64), np.zeros(is_term.shape)
        rate[is_term], factor[is_term] = found.indices, found.data
        terms = torch.as_tensor(rate.T.copy()), torch.as_tensor(factor.T.copy())
        return cls(*terms, found.shape[1], families)

    def to(self, like: Tensor) -> Combinations:
        """The combinations with the dtype and device of a tensor."""
        return self._replace(rate=self.rate.to(like.device), factor=self.factor.to(like))

    def times(self, rates: Tensor) -> Tensor:
        """C times rates (n_rates, k), which may be differentiated."""
        if self.families:
            return torch.cat(tuple(map(_differences, torch.split(rates, list(self.families)))))
        values = rates.new_zeros((self.rate.shape[1], rates.shape[1]))
        for rate, factor in zip(self.rate, self.factor, strict=True):
            values = torch.addcmul(values, factor[:, None], rates.index_select(0, rate))
        return values

    def transposed_times(self, weights: Tensor) -> Tensor:
        """The transpose of C times weights (m, k)."""
        if self.families:
            pieces = torch.split(weights, [n * (n - 1) for n in self.families])
            pairs = zip(self.families, pieces, strict=True)
            return torch.cat([_sums_of_differences(n, own) for n, own in pairs])
        on_rates = weights.new_zeros((self.n_rates, weights.shape[1]))
        for rate, factor in zip(self.rate, self.factor, strict=True):
            on_rates.index_add_(0, rate, factor[:, None] * weights)
        return on_rates

    def largest(self, rates: Tensor, offset: Tensor) -> Tensor:
        """The largest entry of each column of C @ rates + offset.

        Of all pairs with equal offsets it is the largest minus the smallest rate.
        """
        if not self.families or bool((offset != offset[0]).any()):
            pieces = torch.split(rates, max(_AT_ONCE // len(offset), 1), dim=1)
            return torch.cat([(self.times(own) + offset[:, None]).amax(dim=0) for own in pieces])
        largest = rates.new_zeros(rates.shape[1])
        for own in torch.split(rates, list(self.families)):
            largest = torch.maximum(largest, own.amax(dim=0) - own.amin(dim=0))
        return largest + offset[0]

    def variances(self, covariance: Tensor) -> Tensor:
        """Variances of the values for rates of this covariance, (m,)."""
        own = self.to(covariance)
        variances = covariance.new_zeros(own.rate.shape[1])
        for rate, factor in zip(own.rate, own.factor, strict=True):
            variances += factor * (own.factor * covariance[rate, own.rate]).sum(dim=0)
        return variances

    def without(
        self, dropped: NDArray[np.bool_]
    ) -> tuple[Combinations, NDArray[np.bool_], NDArray[np.bool_]]:
        """Drop values with one of these rates, and rates that no other value needs.

        Returns the rest, and whether each value and each rate is kept.
        """
        rate, is_term = self.rate.numpy(), self.factor.numpy() != 0
        kept = ~(is_term & dropped[rate]).any(axis=0)
        needed = np.zeros(self.n_rates, dtype=bool)
        needed[rate[is_term & kept]] = True
        number = torch.as_tensor(np.maximum(np.cumsum(needed) - 1, 0))
        left = np.split(needed, np.cumsum(self.families)[:-1]) if self.families else []
        families = tuple(int(own.sum()) for own in left if own.any())
        terms = number[self.rate[:, kept]], self.factor[:, kept]
        return Combinations(*terms, int(needed.sum()), families), kept, needed


def _differences(rates: Tensor) -> Tensor:
    """The differences of all ordered pairs of n rates (n, k), without the n of equal ones."""
    n, k = rates.shape
    table = (rates[:, None] - rates).reshape(n * n, k)
    # The diagonal is every (n + 1)-th entry.
    return table[1:].reshape(n - 1, n + 1, k)[:, :-1].reshape(n * (n - 1), k)


def _sums_of_differences(n: int, weights: Tensor) -> Tensor:
    """The transpose: sums over the pairs with each rate first, less those with it second."""
    table = pad(weights.reshape(n - 1, n, -1), (0, 0, 0, 1)).reshape(n * n - 1, -1)
    table = pad(table, (0, 0, 1, 0)).reshape(n, n, -1)
    return table.sum(dim=1) - table.sum(dim=0)


def without_zeros(matrix: Any) -> Any:
    """Convert an array or a scipy matrix, and drop the zeros that Kronecker products leave."""
    found = sp.csr_array(matrix, dtype=float)
    found.eliminate_zeros()
    return found


def as_tensor(matrix: Any, like: Tensor) -> Tensor:
    """A scipy matrix with the dtype and device of a tensor; sparse if large and nearly empty."""
    if matrix.shape[0] * matrix.shape[1] <= max(_DENSE, 8 * matrix.nnz):
        return torch.as_tensor(matrix.toarray()).to(like)
    found = matrix.tocoo()
    index = torch.as_tensor(np.stack((found.row, found.col)).astype(np.int64))
    value = torch.as_tensor(found.data).to(like)
    return torch.sparse_coo_tensor(
        index, value, found.shape, device=like.device, check_invariants=False
    ).coalesce()


class AffineMap:
    r"""Values :math:`g(M) = C\, R\, \mathrm{vec}(M) + b` of a table M.

    R gives rates, which are few. C combines them, often pair by pair. As counts never change, the
    matrices are built once. Estimates from any number of draws then take one sum by parts and one
    product, and their gradients one product and one look-up: a step on a mini-batch is mostly the
    overhead of small operations.

    `combinations` are the diagonal blocks of C, `rates` is R, a scipy matrix, and `offset` is b,
    with the dtype and device of tables of this `shape`. The product of C and R is precomputed if it
    is small.
    """

    def __init__(
        self,
        combinations: Sequence[Combinations],
        rates: Any,
        offset: Tensor,
        shape: tuple[int, int],
    ):
        self.combinations: list[Combinations] = []
        self._n_values: list[int] = []
        self._n_rates: list[int] = []
        for own in combinations:
            self.combinations.append(own.to(offset))
            self._n_values.append(own.rate.shape[1])
            self._n_rates.append(own.n_rates)
        self.offset = offset
        self.n_parts, self.n_columns = shape
        # The last part takes the rows in no part, with coefficients zero.
        n_entries = (self.n_parts + 1) * self.n_columns
        self.rates = sp.csr_array(rates)
        self.rates.resize((rates.shape[0], n_entries))
        self._rates, self._back = as_tensor(self.rates, offset), as_tensor(self.rates.T, offset)
        small = len(offset) * n_entries <= _DENSE
        self._product = self._combined(self._rates.to_dense()) if small else None

    def of_table(self, sums: Tensor) -> Tensor:
        """Values (m,) from the table (n_parts, n_columns), differentiable."""
        return self._values(pad(sums, (0, 0, 0, 1)).reshape(1, -1))[0]

    def largest(self, tables: Tensor) -> Tensor:
        """The largest value (k,) of each of several tables, (k, n_parts, n_columns)."""
        rates = self._rates @ pad(tables, (0, 0, 0, 1)).flatten(start_dim=1).T
        pieces = torch.split(rates, self._n_rates), torch.split(self.offset, self._n_values)
        largest = self.offset.new_full((len(tables),), -torch.inf)
        for own, of_own, offset in zip(self.combinations, *pieces, strict=True):
            if len(offset):
                largest = torch.maximum(largest, own.largest(of_own, offset))
        return largest

    def on_table(self, weights: Tensor) -> Tensor:
        """Derivative of g, weighted by (..., m), with respect to the table."""
        flat = self._backward(weights.reshape(weights.shape[:-1].numel(), len(self.offset)))
        tables = flat.reshape(*weights.shape[:-1], self.n_parts + 1, self.n_columns)
        return tables[..., :-1, :]

    def of_draws(
        self, statistics: Tensor, part: Tensor, weight: Tensor, sizes: Sequence[int]
    ) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """Values from each of several draws, and the pullback to the statistics of their rows.

        Rows have statistics (n, n_columns), parts (n,), `n_parts` for none, or fractions of parts
        (n, n_parts), and weights (n,), draw by draw; `sizes` are their numbers. Values are
        (n_draws * m,).
        """
        shape = len(sizes), self.n_parts + 1, self.n_columns
        draw, column = _draw_of_row(tuple(sizes)).to(part.device), weight[:, None]
        if part.ndim == 1:
            part = part + shape[1] * draw if shape[0] > 1 else part
            flat = sum_by(statistics * column, part, shape[0] * shape[1])
        else:
            by_part = part[:, :, None] * (statistics * column)[:, None]
            flat = pad(sum_by(by_part.flatten(start_dim=1), draw, shape[0]), (0, shape[2]))

        def pullback(weights: Tensor) -> Tensor:
            on_tables = self._backward(weights.reshape(shape[0], len(self.offset))).reshape(shape)
            if part.ndim == 1:
                return look_up(on_tables.flatten(end_dim=1), part, statistics) * column
            return torch.einsum("iq,iqk->ik", part, on_tables[draw, :-1]) * column

        return self._values(flat.reshape(shape[0], -1)).reshape(-1), pullback

    @cached_property
    def span(self) -> Tensor:
        """Orthonormal columns, (m, r), that span the values of all tables, and so all Jacobians.

        The rank r is usually below m: pairs of groups come in both orders, and each of three gaps
        follows from the other two.
        """
        matrix = self._combined(self._rates.to_dense())
        left, values, _ = torch.linalg.svd(matrix, full_matrices=False)
        span: Tensor = left[:, values > _RANK_TOL * values.sum()]
        return span

    def _values(self, tables: Tensor) -> Tensor:
        """Values (k, m) of flat tables (k, .)."""
        if self._product is not None:
            return torch.addmm(self.offset, tables, self._product.T)
        return self.offset + self._combined(self._rates @ tables.T).T

    def _backward(self, weights: Tensor) -> Tensor:
        """Derivatives by flat tables, (k, .), of weighted sums of the values, (k, m)."""
        if self._product is not None:
            return weights @ self._product
        pieces = torch.split(weights.T, self._n_values)
        on_rates = map(Combinations.transposed_times, self.combinations, pieces)
        return (self._back @ torch.cat(tuple(on_rates))).T

    def _combined(self, rates: Tensor) -> Tensor:
        """C times rates (n_rates, k)."""
        pieces = torch.split(rates, self._n_rates)
        return torch.cat(tuple(map(Combinations.times, self.combinations, pieces)))


@lru_cache(maxsize=32)
def _draw_of_row(sizes: tuple[int, ...]) -> Tensor:
    return torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))


class LinearMoments(MomentConstraint):
    r"""Linear combinations of rates, minus slack.

    A rate is a ratio of sums over the table, and a value is a combination of rates:

    .. math::

        \rho_r = \frac{\sum_{q,s} A_{rqs} M_{qs}}{\sum_q B_{rq} N_q}, \qquad
        g_j = \sum_r C_{jr}\, \rho_r - \mathrm{slack}_j .

    Every rate constraint and every loss parity has this form, so a new criterion needs no new
    class of constraints. Arrays or sparse matrices give :math:`A`, (n_rates, n_cells * n_columns),
    :math:`B`, (n_rates, n_cells), zeros and ones, and :math:`C`, (m, n_rates), for (label, group)
    cells, ordered by label. Cells with equal coefficients are joined into parts. The title is the
    name in descriptions of values.
    """

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
        self.space = space
        self.title = title or name
        self.cell_numerators = without_zeros(numerators)
        self.cell_denominators = without_zeros(denominators)
        if not isinstance(combinations, Combinations):
            combinations = Combinations.of(combinations)
        self.combinations: Combinations = combinations
        part, first_cell = self._joined(statistic.n_columns)
        allowed = torch.as_tensor(np.asarray(slack, dtype=float)).clamp_max(NEVER_BINDS)
        super().__init__(torch.as_tensor(part.reshape(space.shape)), statistic, allowed, name)
        self.of_labels = isinstance(statistic, ClassProbabilities)  # and not means of losses
        columns = np.arange(statistic.n_columns)
        entries = (first_cell[:, None] * statistic.n_columns + columns).reshape(-1)
        self._numerators = self.cell_numerators[:, entries]
        self._denominators = self.cell_denominators[:, first_cell]
        self._above = as_tensor(self._numerators, self.slack)
        self._below = as_tensor(self._denominators, self.slack)

    def _joined(self, n_columns: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The part of each cell, -1 for none, and one cell of each part.

        The coefficients of a cell are one sparse row. Cells with equal rows form one part.
        """
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

    def of_moments(self, sums: Tensor, counts: Tensor, aux: Tensor) -> Tensor:
        rates = self.rates(sums, counts)[:, None]
        return self.combinations.to(sums).times(rates)[:, 0] - self.slack.to(sums)

    def rates(self, sums: Tensor, counts: Tensor) -> Tensor:
        """The rates from the table, (n_rates,)."""
        above, below = self._above.to(sums), self._below.to(sums)
        return ((above @ sums.reshape(-1, 1)) / (below @ counts[:, None]))[:, 0]

    def affine(self, counts: Tensor) -> AffineMap:
        rates = sp.diags_array(1.0 / (self._denominators @ counts.cpu().numpy())) @ self._numerators
        shape = self.n_parts, self.statistic.n_columns
        return AffineMap([self.combinations], rates, -self.slack.to(counts), shape)

    def deviations(self, scores: Tensor, rows: Placement, aux: Tensor) -> Tensor:
        """Standard errors of the values by the delta method, (m,); by bootstrap of fractions."""
        if rows.part.ndim == 2:
            return super().deviations(scores, rows, aux)
        return self.deviations_of(self.scatter(scores, rows))

    def scatter(self, scores: Tensor, rows: Placement) -> Tensor:
        """Sums from which :meth:`deviations_of` computes standard errors, (n_parts, k, k + 1).

        For each part they are those of (s, 1) by weight, and of its products by squared weight. The
        fractions of a row count as if they were those of several rows.
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
        r"""Standard errors of the values, (m,), from sums over all rows, in any shape.

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
        return self.combinations.variances(covariance).clamp_min(0.0).sqrt()

    def _moves(self, sums: Tensor, counts: Tensor) -> Tensor:
        """What (s, 1) of a row of each part adds to each rate, (n_rates, n_parts, k)."""
        above, below = (own.to_dense().to(counts) for own in (self._above, self._below))
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
        """Words for each rate, which many values share."""
        rates = range(self.combinations.n_rates)
        return list(map(self.space.describe, map(self._cells_of_rate, rates)))

    def without_small(
        self, rows: NDArray[np.int64], min_rows: int | str
    ) -> tuple[LinearMoments, list[str]]:
        """Drop the values with a rate of too few rows; a rate of no rows is undefined."""
        n = self.cell_denominators @ rows.reshape(-1)
        small = np.zeros(len(n), dtype=bool)
        for r in range(len(n)):
            small[r] = n[r] < self.least_rows(self._cells_of_rate(r), rows, min_rows)
        if not small.any():
            return self, []
        combinations, keep, needed = self.combinations.without(small)
        dropped = {
            f"{self._rate_names[r]} ({max(int(n[r]), 0)} rows)" for r in np.flatnonzero(small)
        }
        remaining = type(self)(
            self.space,
            self.cell_numerators[needed],
            self.cell_denominators[needed],
            combinations,
            self.slack.numpy()[keep],
            self.statistic,
            self.name,
            self.title,
        )
        return remaining, sorted(dropped)

    def _cells_of_rate(self, r: Any) -> NDArray[np.bool_]:
        row = self.cell_denominators[[r]].toarray()
        cells: NDArray[np.bool_] = row.reshape(self.space.shape) > 0
        return cells
