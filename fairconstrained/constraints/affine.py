"""Affine maps of tables of moments: rates, and combinations of them with few terms each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from fairconstrained.constraints.tables import look_up, sum_by
from fairconstrained.numerics import ROUNDING

# Entries up to which a matrix is stored densely, 0.5 MB: dense products of small matrices are
# faster.
_DENSE = 2**16


class Combinations(NamedTuple):
    """Linear combinations C of rates, m of them, with few terms each."""

    rate: Tensor  # (n_terms, m), the rate of each term
    factor: Tensor  # (n_terms, m)
    n_rates: int
    #: Sizes of families whose ordered pairs are the values, in order: products take half the time.
    families: tuple[int, ...] = ()

    @classmethod
    def of(cls, matrix: Any, families: tuple[int, ...] = ()) -> Combinations:
        """Build the combinations from an array or a scipy matrix (m, n_rates)."""
        sparse = without_zeros(matrix)
        count = np.diff(sparse.indptr)
        is_term = np.arange(count.max(initial=1)) < count[:, None]
        rate, factor = np.zeros(is_term.shape, dtype=np.int64), np.zeros(is_term.shape)
        rate[is_term], factor[is_term] = sparse.indices, sparse.data
        terms = torch.as_tensor(rate.T.copy()), torch.as_tensor(factor.T.copy())
        return cls(*terms, sparse.shape[1], families)

    def to(self, like: Tensor) -> Combinations:
        """Return the combinations with the dtype and device of a tensor."""
        return self._replace(rate=self.rate.to(like.device), factor=self.factor.to(like))

    def times(self, rates: Tensor) -> Tensor:
        """Multiply C by rates (n_rates, k), which may be differentiated."""
        if self.families:
            pairs = []
            for family in torch.split(rates, list(self.families)):
                n, k = family.shape
                table = (family[:, None] - family).reshape(n * n, k)
                # The diagonal is every (n + 1)-th entry.
                pairs.append(table[1:].reshape(n - 1, n + 1, k)[:, :-1].reshape(n * (n - 1), k))
            return torch.cat(pairs)
        values = rates.new_zeros((self.rate.shape[1], rates.shape[1]))
        for rate, factor in zip(self.rate, self.factor, strict=True):
            values = torch.addcmul(values, factor[:, None], rates.index_select(0, rate))
        return values

    def transposed_times(self, weights: Tensor) -> Tensor:
        """Multiply the transpose of C by weights (m, k)."""
        if self.families:
            sums, sizes = [], [n * (n - 1) for n in self.families]
            # Add pairs with each rate first, subtract those with it second.
            for n, piece in zip(self.families, torch.split(weights, sizes), strict=True):
                table = pad(piece.reshape(n - 1, n, -1), (0, 0, 0, 1)).reshape(n * n - 1, -1)
                table = pad(table, (0, 0, 1, 0)).reshape(n, n, -1)
                sums.append(table.sum(dim=1) - table.sum(dim=0))
            return torch.cat(sums)
        on_rates = weights.new_zeros((self.n_rates, weights.shape[1]))
        for rate, factor in zip(self.rate, self.factor, strict=True):
            on_rates.index_add_(0, rate, factor[:, None] * weights)
        return on_rates

    def largest(self, rates: Tensor, offset: Tensor) -> Tensor:
        """Return the largest entry of each column of C @ rates + offset."""
        # Over all pairs with equal offsets this is the largest minus the smallest rate.
        if not self.families or bool((offset != offset[0]).any()):
            # 80 MB of products, of which only the largest are needed.
            pieces = torch.split(rates, max(10_000_000 // len(offset), 1), dim=1)
            return torch.cat([(self.times(r) + offset[:, None]).amax(dim=0) for r in pieces])
        largest = rates.new_zeros(rates.shape[1])
        for family in torch.split(rates, list(self.families)):
            largest = torch.maximum(largest, family.amax(dim=0) - family.amin(dim=0))
        return largest + offset[0]

    def variances(self, covariance: Tensor) -> Tensor:
        """Return the variances of the values, (m,), given the covariance of the rates."""
        terms = self.to(covariance)
        variances = covariance.new_zeros(terms.rate.shape[1])
        for rate, factor in zip(terms.rate, terms.factor, strict=True):
            variances += factor * (terms.factor * covariance[rate, terms.rate]).sum(dim=0)
        return variances

    def without(
        self, dropped: NDArray[np.bool_]
    ) -> tuple[Combinations, NDArray[np.bool_], NDArray[np.bool_]]:
        """Drop values of these rates; return the rest, and whether each value and rate remains."""
        rate, is_term = self.rate.numpy(), self.factor.numpy() != 0
        remaining = ~(is_term & dropped[rate]).any(axis=0)
        needed = np.zeros(self.n_rates, dtype=bool)
        needed[rate[is_term & remaining]] = True
        number = torch.as_tensor(np.maximum(np.cumsum(needed) - 1, 0))
        left = np.split(needed, np.cumsum(self.families)[:-1]) if self.families else []
        families = tuple(filter(None, map(int, map(np.sum, left))))
        terms = number[self.rate[:, remaining]], self.factor[:, remaining]
        return Combinations(*terms, int(needed.sum()), families), remaining, needed


def without_zeros(matrix: Any) -> Any:
    """Convert an array or a scipy matrix, and drop the zeros that Kronecker products leave."""
    sparse = sp.csr_array(matrix, dtype=float)
    sparse.eliminate_zeros()
    return sparse


def as_tensor(matrix: Any, like: Tensor) -> Tensor:
    """Convert a scipy matrix to a tensor like another; sparse if large and nearly empty."""
    if matrix.shape[0] * matrix.shape[1] <= max(_DENSE, 8 * matrix.nnz):
        return torch.as_tensor(matrix.toarray()).to(like)
    entries = matrix.tocoo()
    index = torch.as_tensor(np.stack((entries.row, entries.col)).astype(np.int64))
    value = torch.as_tensor(entries.data).to(like)
    return torch.sparse_coo_tensor(
        index, value, entries.shape, device=like.device, check_invariants=False
    ).coalesce()


class AffineMap:
    r"""Values :math:`g(M) = C\, R\, \mathrm{vec}(M) + b` of a table M.

    R computes rates, which are few. C combines them, often pair by pair. As counts never change,
    the matrices are built once. Estimates from any number of draws then take one sum by parts and
    one product, and their gradients one product and one look-up: a step on a mini-batch is mostly
    the overhead of small operations.

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
        for block in combinations:
            self.combinations.append(block.to(offset))
            self._n_values.append(block.rate.shape[1])
            self._n_rates.append(block.n_rates)
        self.offset = offset
        self.n_parts, self.n_columns = shape
        # The last part takes the rows in no part, with coefficients zero.
        n_entries = (self.n_parts + 1) * self.n_columns
        self.rates = sp.csr_array(rates)
        self.rates.resize((rates.shape[0], n_entries))
        # Sparse products with a transposed view are slow, so both are stored.
        self._rates, self._back = as_tensor(self.rates, offset), as_tensor(self.rates.T, offset)
        small = len(offset) * n_entries <= _DENSE
        self._product = self._combined(self._rates.to_dense()) if small else None

    def values(self, sums: Tensor) -> Tensor:
        """Return the values (m,) from the table (n_parts, n_columns), differentiable."""
        return self._values(pad(sums, (0, 0, 0, 1)).reshape(1, -1))[0]

    def largest(self, tables: Tensor) -> Tensor:
        """Return the largest value (k,) of each of several tables, (k, n_parts, n_columns)."""
        rates = self._rates @ pad(tables, (0, 0, 0, 1)).flatten(start_dim=1).T
        pieces = torch.split(rates, self._n_rates), torch.split(self.offset, self._n_values)
        largest = self.offset.new_full((len(tables),), -torch.inf)
        for block, block_rates, offset in zip(self.combinations, *pieces, strict=True):
            if len(offset):
                largest = torch.maximum(largest, block.largest(block_rates, offset))
        return largest

    def on_table(self, weights: Tensor) -> Tensor:
        """Return the derivative of g, weighted by (..., m), with respect to the table."""
        flat = self._backward(weights.reshape(weights.shape[:-1].numel(), len(self.offset)))
        return flat.reshape(*weights.shape[:-1], self.n_parts + 1, self.n_columns)[..., :-1, :]

    def draw_values(
        self, statistics: Tensor, part: Tensor, weight: Tensor, sizes: Sequence[int]
    ) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """Return values (n_draws * m,) of several draws, and the pullback to statistics of rows.

        Rows have statistics (n, n_columns), parts (n,) or fractions of them, and weights, draw by
        draw; `sizes` are their numbers.
        """
        shape = len(sizes), self.n_parts + 1, self.n_columns
        draw, column = _draw_of_row(tuple(sizes)).to(part.device), weight[:, None]
        if part.ndim == 1:  # one sum by draw and part, in place of one sum for each draw
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
        """Return orthonormal columns, (m, r), that span values and Jacobians of all tables."""
        # r is usually below m: pairs come in both orders, and each gap follows from two others.
        matrix = self._combined(self._rates.to_dense())
        left, values, _ = torch.linalg.svd(matrix, full_matrices=False)
        span: Tensor = left[:, values > ROUNDING * values.sum()]
        return span

    def _values(self, tables: Tensor) -> Tensor:
        """Return the values (k, m) of flat tables (k, .)."""
        if self._product is not None:
            return torch.addmm(self.offset, tables, self._product.T)
        return self.offset + self._combined(self._rates @ tables.T).T

    def _backward(self, weights: Tensor) -> Tensor:
        """Return derivatives of weighted sums of values with respect to flat tables, (k, .)."""
        if self._product is not None:
            return weights @ self._product
        pieces = torch.split(weights.T, self._n_values)
        on_rates = map(Combinations.transposed_times, self.combinations, pieces)
        return (self._back @ torch.cat(tuple(on_rates))).T

    def _combined(self, rates: Tensor) -> Tensor:
        """Multiply C by rates (n_rates, k)."""
        pieces = torch.split(rates, self._n_rates)
        return torch.cat(tuple(map(Combinations.times, self.combinations, pieces)))


@lru_cache(maxsize=32)
def _draw_of_row(sizes: tuple[int, ...]) -> Tensor:
    return torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
