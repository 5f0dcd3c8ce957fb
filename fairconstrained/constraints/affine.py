"""Constraints whose values are affine in the table for given counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
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
        row, column = (torch.as_tensor(i.astype(np.int64)) for i in (found.row, found.col))
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


def without_zeros(matrix: Any) -> Any:
    """Convert an array or a scipy matrix, and drop the zeros that Kronecker products leave."""
    found = sp.csr_array(matrix, dtype=float)
    found.eliminate_zeros()
    return found


class LinearMap:
    """A block diagonal matrix of which only what is needed for products is stored.

    Parameters
    ----------
    *blocks : Entries or int
        The blocks. A number n stands for the n (n - 1) differences of all ordered pairs of n
        numbers, and nothing is stored of them.
    """

    def __init__(self, *blocks: Entries | int):
        self.blocks = blocks
        shapes = [(n * (n - 1), n) if isinstance(n, int) else n.shape for n in blocks]
        self._rows, self._columns = ([shape[axis] for shape in shapes] for axis in (0, 1))
        self.shape = sum(self._rows), sum(self._columns)
        self._dense: Tensor | None = None
        if self.shape[0] * self.shape[1] <= _DENSE:
            values = [block.value for block in blocks if not isinstance(block, int)]
            like = values[0] if values else torch.zeros((), dtype=torch.float64)
            self._dense = self @ torch.eye(self.shape[1]).to(like)

    def __matmul__(self, dense: Tensor) -> Tensor:
        """The product with a dense matrix, which may be differentiated."""
        if self._dense is not None:
            return self._dense.to(dense) @ dense
        found = [dense[:0]]
        for block, own in zip(self.blocks, torch.split(dense, self._columns), strict=True):
            if isinstance(block, int):
                found.append(_differences(own))
            else:
                row, column, value, shape = block.to(own)
                terms = value[:, None] * own.index_select(0, column)
                found.append(own.new_zeros(shape[0], own.shape[1]).index_add(0, row, terms))
        return torch.cat(found)

    def transposed(self, dense: Tensor) -> Tensor:
        """The product of the transpose with a dense matrix."""
        if self._dense is not None:
            return self._dense.T.to(dense) @ dense
        found = [dense[:0]]
        for block, own in zip(self.blocks, torch.split(dense, self._rows), strict=True):
            if isinstance(block, int):
                found.append(_sums_of_pairs(own, block))
            else:
                row, column, value, shape = block.to(own)
                terms = value[:, None] * own.index_select(0, row)
                found.append(own.new_zeros(shape[1], own.shape[1]).index_add(0, column, terms))
        return torch.cat(found)

    def largest(self, dense: Tensor, offset: Tensor) -> Tensor:
        """The largest entry of each column of self @ dense + offset, -inf without rows.

        Of pairs with one offset it is the largest minus the smallest number.
        """
        found = [dense.new_full(dense.shape[1:], -torch.inf)]
        columns, offsets = torch.split(dense, self._columns), torch.split(offset, self._rows)
        for block, own, allowed in zip(self.blocks, columns, offsets, strict=True):
            if not len(allowed):
                continue
            if isinstance(block, int) and bool((allowed == allowed[0]).all()):
                found.append(own.amax(dim=0) - own.amin(dim=0) + allowed[0])
                continue
            alone = LinearMap(block)
            pieces = torch.split(own, max(_AT_ONCE // len(allowed), 1), dim=1)
            tops = [(alone @ piece + allowed[:, None]).amax(dim=0) for piece in pieces]
            found.append(torch.cat(tops))
        return torch.stack(found).amax(dim=0)

    def variances(self, covariance: Tensor) -> Tensor:
        """Variances of the entries of self @ v, for v of this covariance."""
        found, first = [covariance[:0, 0]], 0
        for block, n in zip(self.blocks, self._columns, strict=True):
            own = covariance[first : first + n, first : first + n]
            first += n
            if isinstance(block, int):
                single = own.diagonal()
                both = single[:, None] + single - own - own.T
                found.append(both[~torch.eye(n, dtype=torch.bool, device=own.device)])
            else:
                row, column, value, shape = block.to(own)
                product = (LinearMap(block) @ own)[row, column] * value
                found.append(own.new_zeros(shape[0]).index_add(0, row, product))
        return torch.cat(found)

    def row(self, j: int) -> list[tuple[int, float]]:
        """The columns and the values of the entries of row j."""
        column = 0
        for block, rows, columns in zip(self.blocks, self._rows, self._columns, strict=True):
            if j >= rows:
                j, column = j - rows, column + columns
            elif isinstance(block, int):
                first, second = divmod(j, block - 1)
                return [(column + first, 1.0), (column + second + (second >= first), -1.0)]
            else:
                entries = slice(*np.searchsorted(block.row.numpy(), (j, j + 1)))
                found = (own[entries].tolist() for own in (block.column + column, block.value))
                return list(zip(*found, strict=True))
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
        blocks: list[Entries | int] = []
        rows, columns = [np.zeros(0, dtype=bool)], [np.zeros(0, dtype=bool)]
        pieces = np.split(dropped, np.cumsum(self._columns)[:-1])
        for block, out, n_rows in zip(self.blocks, pieces, self._rows, strict=True):
            if isinstance(block, int):
                n = int((~out).sum())
                blocks.append(n if n > 1 else 0)
                rows.append(~(out[:, None] | out)[~np.eye(block, dtype=bool)])
                columns.append(~out & (n > 1))
                continue
            row, column = block.row.numpy(), block.column.numpy()
            kept = np.ones(n_rows, dtype=bool)
            kept[row[out[column]]] = False
            needed = np.zeros(len(out), dtype=bool)
            needed[column[kept[row]]] = True
            blocks.append(Entries.of(block.to_scipy()[kept][:, needed]))
            rows.append(kept)
            columns.append(needed)
        return LinearMap(*blocks), np.concatenate(rows), np.concatenate(columns)


def _differences(rates: Tensor) -> Tensor:
    """The differences of all ordered pairs of rows: those of the first row, of the second, ..."""
    n, k = rates.shape
    if n < 2:
        return rates[:0]
    table = (rates[:, None] - rates).reshape(n * n, k)
    # The diagonal is every (n + 1)-th entry.
    return table[1:].reshape(n - 1, n + 1, k)[:, :-1].reshape(n * (n - 1), k)


def _sums_of_pairs(weights: Tensor, n: int) -> Tensor:
    """Sums over the pairs that each of n rows comes first in, minus those over the others."""
    k = weights.shape[1]
    if n < 2:
        return weights.new_zeros(n, k)
    table = torch.nn.functional.pad(weights.reshape(n - 1, n, k), (0, 0, 0, 1)).reshape(-1, k)
    table = torch.nn.functional.pad(table, (0, 0, 1, 0)).reshape(n, n, k)
    return table.sum(dim=1) - table.sum(dim=0)


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
        return self.of_tables(sums[None])[0]

    def of_tables(self, tables: Tensor) -> Tensor:
        """Values (k, m) of several tables, (k, n_parts, n_columns)."""
        return self._values(torch.nn.functional.pad(tables, (0, 0, 0, 1)).flatten(start_dim=1))

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
