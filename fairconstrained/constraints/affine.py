"""Constraints whose values are affine in the table for given counts."""

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

from fairconstrained.constraints.placement import look_up, sum_by

_RANK_TOL = 1e-12  # singular values below this fraction of their sum are zero
_DENSE = 2**16  # entries up to which a matrix is stored densely, 0.5 MB: its products are faster
_AT_ONCE = 10_000_000  # entries of a product of which only the largest are kept


class Entries(NamedTuple):
    """A matrix given by its entries, row by row. Sparse tensors of torch would print warnings."""

    row: Tensor
    column: Tensor
    value: Tensor
    shape: tuple[int, int]

    @classmethod
    def of(cls, matrix: Any) -> Entries:
        """The entries of an array or a scipy matrix."""
        found = without_zeros(matrix).tocoo()
        row, column = torch.as_tensor(np.stack((found.row, found.col)).astype(np.int64))
        return cls(row, column, torch.as_tensor(found.data), found.shape)

    def to(self, like: Tensor) -> Entries:
        """The entries with the dtype and device of a tensor."""
        row, column = self.row.to(like.device), self.column.to(like.device)
        return Entries(row, column, self.value.to(like), self.shape)

    def to_dense(self) -> Tensor:
        """The dense matrix."""
        dense = self.value.new_zeros(self.shape)
        return dense.index_put((self.row, self.column), self.value, accumulate=True)

    def to_scipy(self) -> Any:
        """The matrix in scipy."""
        row, column, value = (own.cpu().numpy() for own in self[:3])
        return sp.csr_array((value, (row, column)), shape=self.shape)

    def times(self, dense: Tensor) -> Tensor:
        """The product with a dense matrix."""
        row, column, value, shape = self.to(dense)
        terms = value[:, None] * dense.index_select(0, column)
        return dense.new_zeros(shape[0], dense.shape[1]).index_add(0, row, terms)

    def transposed_times(self, dense: Tensor) -> Tensor:
        """The product of the transpose with a dense matrix."""
        return Entries(self.column, self.row, self.value, self.shape[::-1]).times(dense)

    def largest(self, dense: Tensor, offset: Tensor) -> Tensor:
        """The largest entry of each column of the product with a dense matrix, plus an offset."""
        return _largest_of_pieces(self, dense, offset)

    def variances(self, covariance: Tensor) -> Tensor:
        """Variances of the entries of the product with a vector of this covariance."""
        row, column, value, shape = self.to(covariance)
        product = self.times(covariance)[row, column] * value
        return covariance.new_zeros(shape[0]).index_add(0, row, product)

    def entries(self, j: int) -> list[tuple[int, float]]:
        """The columns and the values of the entries of row j."""
        own = slice(*np.searchsorted(self.row.numpy(), (j, j + 1)))
        return list(zip(self.column[own].tolist(), self.value[own].tolist(), strict=True))

    def without(self, out: NDArray[np.bool_]) -> Kept:
        """Drop rows with an entry in these columns, and columns that no other row needs."""
        row, column = self.row.numpy(), self.column.numpy()
        kept, needed = np.ones(self.shape[0], dtype=bool), np.zeros(len(out), dtype=bool)
        kept[row[out[column]]] = False
        needed[column[kept[row]]] = True
        return Entries.of(self.to_scipy()[kept][:, needed]), kept, needed


class Pairs(NamedTuple):
    """The n (n - 1) differences of all ordered pairs of n numbers, of which nothing is stored.

    Methods are as in :class:`Entries`.
    """

    n: int

    @property
    def shape(self) -> tuple[int, int]:
        """Number of pairs, and of numbers."""
        return self.n * (self.n - 1), self.n

    def times(self, dense: Tensor) -> Tensor:
        """The differences: those of the first number, of the second, ..."""
        (n, k), m = dense.shape, max(self.n - 1, 0)
        table = (dense[:, None] - dense).reshape(n * n, k)
        # The diagonal is every (n + 1)-th entry.
        return table[1:].reshape(m, n + 1, k)[:, :-1].reshape(n * m, k)

    def transposed_times(self, dense: Tensor) -> Tensor:
        """Sums over the pairs that each number comes first in, less those over the others."""
        n, k = self.n, dense.shape[1]
        if n < 2:
            return dense.new_zeros(n, k)
        table = torch.nn.functional.pad(dense.reshape(n - 1, n, k), (0, 0, 0, 1)).reshape(-1, k)
        table = torch.nn.functional.pad(table, (0, 0, 1, 0)).reshape(n, n, k)
        return table.sum(dim=1) - table.sum(dim=0)

    def largest(self, dense: Tensor, offset: Tensor) -> Tensor:
        """For one offset the largest minus the smallest number."""
        if bool((offset == offset[0]).all()):
            return dense.amax(dim=0) - dense.amin(dim=0) + offset[0]
        return _largest_of_pieces(self, dense, offset)

    def variances(self, covariance: Tensor) -> Tensor:
        """Variances of the differences."""
        single = covariance.diagonal()
        both = single[:, None] + single - covariance - covariance.T
        return both[~torch.eye(self.n, dtype=torch.bool, device=both.device)]

    def entries(self, j: int) -> list[tuple[int, float]]:
        """The first number of a pair, and the second."""
        first, second = divmod(j, self.n - 1)
        return [(first, 1.0), (second + (second >= first), -1.0)]

    def without(self, out: NDArray[np.bool_]) -> Kept:
        """The pairs of the other numbers."""
        n = int((~out).sum())
        rows = ~(out[:, None] | out)[~np.eye(self.n, dtype=bool)]
        return Pairs(n if n > 1 else 0), rows, ~out & (n > 1)


Block = Entries | Pairs
Kept = tuple[Block, NDArray[np.bool_], NDArray[np.bool_]]  # what is left; whether each row, column


def _largest_of_pieces(block: Block, dense: Tensor, offset: Tensor) -> Tensor:
    pieces = torch.split(dense, max(_AT_ONCE // len(offset), 1), dim=1)
    return torch.cat([(block.times(own) + offset[:, None]).amax(dim=0) for own in pieces])


def without_zeros(matrix: Any) -> Any:
    """Convert an array or a scipy matrix, and drop the zeros that Kronecker products leave."""
    found = sp.csr_array(matrix, dtype=float)
    found.eliminate_zeros()
    return found


class LinearMap:
    """A block diagonal matrix of which only what is needed for products is stored."""

    def __init__(self, *blocks: Block):
        self.blocks = blocks
        self._rows, self._columns = ([block.shape[axis] for block in blocks] for axis in (0, 1))
        self.shape = sum(self._rows), sum(self._columns)
        self._dense: Tensor | None = None
        if self.shape[0] * self.shape[1] <= _DENSE:
            self._dense = self @ torch.eye(self.shape[1], dtype=torch.float64)

    def __matmul__(self, dense: Tensor) -> Tensor:
        """The product with a dense matrix, which may be differentiated."""
        if self._dense is not None:
            return self._dense.to(dense) @ dense
        pieces = zip(self.blocks, torch.split(dense, self._columns), strict=True)
        return torch.cat([dense[:0], *(block.times(own) for block, own in pieces)])

    def transposed(self, dense: Tensor) -> Tensor:
        """The product of the transpose with a dense matrix."""
        if self._dense is not None:
            return self._dense.T.to(dense) @ dense
        pieces = zip(self.blocks, torch.split(dense, self._rows), strict=True)
        return torch.cat([dense[:0], *(block.transposed_times(own) for block, own in pieces)])

    def largest(self, dense: Tensor, offset: Tensor) -> Tensor:
        """The largest entry of each column of self @ dense + offset, -inf without rows."""
        columns, offsets = torch.split(dense, self._columns), torch.split(offset, self._rows)
        pieces = zip(self.blocks, columns, offsets, strict=True)
        found = [block.largest(own, allowed) for block, own, allowed in pieces if len(allowed)]
        return torch.stack([dense.new_full(dense.shape[1:], -torch.inf), *found]).amax(dim=0)

    def variances(self, covariance: Tensor) -> Tensor:
        """Variances of the entries of self @ v, for v of this covariance."""
        ends = np.cumsum([0, *self._columns]).tolist()
        own = [covariance[i:j, i:j] for i, j in pairwise(ends)]
        found = [block.variances(of) for block, of in zip(self.blocks, own, strict=True)]
        return torch.cat([covariance[:0, 0], *found])

    def row(self, j: int) -> list[tuple[int, float]]:
        """The columns and the values of the entries of row j."""
        before = 0
        for block, rows, columns in zip(self.blocks, self._rows, self._columns, strict=True):
            if j < rows:
                return [(before + column, value) for column, value in block.entries(j)]
            j, before = j - rows, before + columns
        raise IndexError(f"There are {self.shape[0]} rows.")

    def without(
        self, dropped: NDArray[np.bool_]
    ) -> tuple[LinearMap, NDArray[np.bool_], NDArray[np.bool_]]:
        """Drop rows with an entry in these columns, and columns that no other row needs.

        Returns
        -------
        map : LinearMap
        rows, columns : ndarray of bool
            Whether each is kept.
        """
        none = np.zeros(0, dtype=bool)
        pieces = np.split(dropped, np.cumsum(self._columns)[:-1])
        kept = [block.without(out) for block, out in zip(self.blocks, pieces, strict=True)]
        rows, columns = (np.concatenate([none, *(own[k] for own in kept)]) for k in (1, 2))
        return LinearMap(*(block for block, _, _ in kept)), rows, columns


class AffineMap:
    r"""Values :math:`g(M) = C\, R\, \mathrm{vec}(M) + b` of a table M.

    R gives rates, which are few. C combines them, often pair by pair. The counts
    of a data set never change, so both matrices are built once. Estimates from any number of draws
    then take one sum by parts and one product, and their gradients one product and one look-up.
    This matters because a step on a mini-batch is mostly the overhead of small operations.

    Parameters
    ----------
    combinations : LinearMap of shape (m, n_rates)
        C. Its product with R is precomputed if it is small.
    rates : Entries of shape (n_rates, n_parts * n_columns)
        R.
    offset : Tensor of shape (m,)
        b.
    shape : (n_parts, n_columns)
        That of the table.
    """

    def __init__(
        self, combinations: LinearMap, rates: Entries, offset: Tensor, shape: tuple[int, int]
    ):
        self.combinations = combinations
        self.rates = rates
        self.offset = offset
        self.n_parts, self.n_columns = shape
        # The last part takes the rows in no part, with coefficients zero.
        n_entries = (self.n_parts + 1) * self.n_columns
        padded = rates._replace(shape=(rates.shape[0], n_entries))
        small = len(offset) * n_entries <= _DENSE
        self._product = combinations @ padded.to_dense() if small else None
        self._rates = LinearMap(padded)

    @classmethod
    def stacked(
        cls,
        maps: Sequence[AffineMap],
        parts: Sequence[Tensor],
        columns: Sequence[slice],
        shape: tuple[int, int],
        like: Tensor,
    ) -> AffineMap:
        """Stack several maps on one table of this shape.

        Parameters
        ----------
        maps : sequence of AffineMap
        parts : sequence of LongTensor of shape (n_parts,)
            For each map, the part of its own that each part of the table belongs to; its `n_parts`
            for none.
        columns : sequence of slice
            The columns of the table that each map reads.
        shape : (n_parts, n_columns)
        like : Tensor
            A tensor with the dtype and device of the result.
        """
        rates = [sp.csr_array((0, shape[0] * shape[1]))]
        for own, part, where in zip(maps, parts, columns, strict=True):
            # The table of the member is this matrix times that of the stack.
            of_part = sp.coo_array((np.ones(len(part)), (part.cpu().numpy(), np.arange(len(part)))))
            of_part.resize(own.n_parts + 1, shape[0])
            table = sp.kron(of_part.tocsr()[:-1], np.eye(shape[1])[where])
            rates.append(own.rates.to_scipy() @ table)
        return cls(
            LinearMap(*(block for own in maps for block in own.combinations.blocks)),
            Entries.of(sp.vstack(rates)).to(like),
            torch.cat([like.new_zeros(0), *(own.offset for own in maps)]),
            shape,
        )

    def of_table(self, sums: Tensor) -> Tensor:
        """Values (m,) from the table (n_parts, n_columns), differentiable."""
        return self._values(torch.nn.functional.pad(sums, (0, 0, 0, 1)).reshape(1, -1))[0]

    def largest(self, tables: Tensor) -> Tensor:
        """The largest value (k,) of each of several tables, (k, n_parts, n_columns).

        Of all pairs of many groups it is the largest minus the smallest rate.
        """
        rates = self._rates @ torch.nn.functional.pad(tables, (0, 0, 0, 1)).flatten(start_dim=1).T
        return self.combinations.largest(rates, self.offset)

    def on_table(self, weights: Tensor) -> Tensor:
        """Derivative of g, weighted by (..., m), with respect to the table."""
        flat = self._backward(weights.reshape(weights.shape[:-1].numel(), len(self.offset)))
        tables = flat.reshape(*weights.shape[:-1], self.n_parts + 1, self.n_columns)
        return tables[..., :-1, :]

    def of_draws(
        self, statistics: Tensor, part: Tensor, weight: Tensor, sizes: Sequence[int]
    ) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """Values from each of several draws, and the pullback to the statistics of their rows.

        Parameters
        ----------
        statistics : Tensor of shape (n, n_columns)
            Statistics of the rows, draw by draw.
        part : LongTensor of shape (n,)
            Part of each row; `n_parts` for rows in no part.
        weight : Tensor of shape (n,)
        sizes : sequence of int
            Number of rows of each draw.

        Returns
        -------
        values : Tensor of shape (n_draws * m,)
        pullback : callable
            Maps weights on the values to weights on the statistics, (n, n_columns).
        """
        n_draws, n_parts, column = len(sizes), self.n_parts + 1, weight[:, None]
        if n_draws > 1:
            part = part + _first_parts(tuple(sizes), n_parts).to(part)
        tables = sum_by(statistics * column, part, n_draws * n_parts)
        flat = tables.reshape(n_draws, n_parts * self.n_columns)
        values = self._values(flat)

        def pullback(weights: Tensor) -> Tensor:
            on_tables = self._backward(weights.reshape(n_draws, len(self.offset)))
            return look_up(on_tables.reshape(tables.shape), part, statistics) * column

        return values.reshape(-1), pullback

    @cached_property
    def span(self) -> Tensor:
        """Orthonormal columns, (m, r), that span the values of all tables, and so all Jacobians.

        The rank r is usually below m: pairs of groups come in both orders, and each of three gaps
        follows from the other two.
        """
        tables = torch.eye((self.n_parts + 1) * self.n_columns).to(self.offset)
        matrix = (self._values(tables) - self.offset).T
        left, values, _ = torch.linalg.svd(matrix, full_matrices=False)
        span: Tensor = left[:, values > _RANK_TOL * values.sum()]
        return span

    def _values(self, tables: Tensor) -> Tensor:
        """Values (k, m) of flat tables (k, .)."""
        if self._product is not None:
            return torch.addmm(self.offset, tables, self._product.T)
        return self.offset + (self.combinations @ (self._rates @ tables.T)).T

    def _backward(self, weights: Tensor) -> Tensor:
        """Derivatives by flat tables, (k, .), of weighted sums of the values, (k, m)."""
        if self._product is not None:
            return weights @ self._product
        return self._rates.transposed(self.combinations.transposed(weights.T)).T


@lru_cache(maxsize=32)
def _first_parts(sizes: tuple[int, ...], n_parts: int) -> Tensor:
    """First part in the joint table of all draws, for each row of draws of these sizes."""
    draw = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    return n_parts * draw
