"""Matrices for products with dense ones that are not stored densely."""

from __future__ import annotations

from functools import reduce, singledispatch
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

_DENSE = 2**16  # up to so many entries a dense matrix is used, whose products are faster
_AT_ONCE = 10_000_000  # entries of a product of which only the largest are kept


class SparseMatrix(NamedTuple):
    """A matrix given by its entries. To create sparse tensors of torch would print warnings."""

    row: Tensor
    column: Tensor
    value: Tensor
    shape: tuple[int, int]

    def __matmul__(self, dense: Tensor) -> Tensor:
        """The product with a dense matrix, which may be differentiated."""
        terms = self.value[:, None] * dense.index_select(0, self.column)
        return dense.new_zeros(self.shape[0], dense.shape[1]).index_add(0, self.row, terms)

    @property
    def T(self) -> SparseMatrix:
        """The transpose."""
        return SparseMatrix(self.column, self.row, self.value, self.shape[::-1])

    def to_dense(self) -> Tensor:
        """The dense matrix."""
        dense = self.value.new_zeros(self.shape)
        return dense.index_put((self.row, self.column), self.value, accumulate=True)

    def to(self, like: Tensor) -> SparseMatrix:
        """The matrix with the dtype and device of a tensor."""
        row, column = self.row.to(like.device), self.column.to(like.device)
        return SparseMatrix(row, column, self.value.to(like), self.shape)


class Differences(NamedTuple):
    """The differences of all ordered pairs of n entries, for each of several sets of n entries.

    The shape is (n_sets n (n - 1), n_sets n), and no entries are stored.
    """

    n_sets: int
    n: int

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of pairs and of entries."""
        return self.n_sets * self.n * (self.n - 1), self.n_sets * self.n

    def __matmul__(self, dense: Tensor) -> Tensor:
        """The differences of rows, in the order of :func:`pairs_of` within each set."""
        (sets, n), k = self, dense.shape[1]
        rows = dense.reshape(sets, n, k)
        table = (rows[:, :, None] - rows[:, None]).reshape(sets, n * n, k)
        # The diagonal is every (n + 1)-th entry.
        return table[:, 1:].reshape(sets, n - 1, n + 1, k)[:, :, :-1].reshape(-1, k)

    @property
    def T(self) -> _SumsOfPairs:
        """The transpose."""
        return _SumsOfPairs(*self)

    def to(self, like: Tensor) -> Differences:
        """The matrix itself, which follows the dtype and device of what it is applied to."""
        return self


class _SumsOfPairs(NamedTuple):
    """The transpose of `Differences`."""

    n_sets: int
    n: int

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of entries and of pairs."""
        return self.T.shape[::-1]

    def __matmul__(self, dense: Tensor) -> Tensor:
        """Sums over the pairs that an entry comes first in, minus those over the others."""
        (sets, n), k = self, dense.shape[1]
        table = torch.nn.functional.pad(dense.reshape(sets, n - 1, n, k), (0, 0, 0, 1))
        table = torch.nn.functional.pad(table.reshape(sets, -1, k), (0, 0, 1, 0))
        table = table.reshape(sets, n, n, k)
        return (table.sum(dim=2) - table.sum(dim=1)).reshape(-1, k)

    @property
    def T(self) -> Differences:
        """The transpose."""
        return Differences(*self)

    def to(self, like: Tensor) -> _SumsOfPairs:
        """The matrix itself."""
        return self


class BlockDiagonal(NamedTuple):
    """Matrices along a diagonal."""

    blocks: tuple[Block, ...]

    @property
    def shape(self) -> tuple[int, int]:
        """Sums of the shapes of the blocks."""
        rows, columns = zip(*(block.shape for block in self.blocks), strict=True)
        return sum(rows), sum(columns)

    def __matmul__(self, dense: Tensor) -> Tensor:
        """The products of all blocks, one after the other."""
        pieces = torch.split(dense, [block.shape[1] for block in self.blocks])
        pairs = zip(self.blocks, pieces, strict=True)
        return torch.cat([block @ piece for block, piece in pairs])

    @property
    def T(self) -> BlockDiagonal:
        """The transpose."""
        return BlockDiagonal(tuple(block.T for block in self.blocks))

    def to(self, like: Tensor) -> BlockDiagonal:
        """All blocks with the dtype and device of a tensor."""
        return BlockDiagonal(tuple(block.to(like) for block in self.blocks))


Block = Tensor | SparseMatrix | Differences | _SumsOfPairs
Matrix = Block | BlockDiagonal


def as_matrix(matrix: Any) -> Tensor | SparseMatrix:
    """Convert a scipy matrix for products in torch; dense if it is small."""
    if matrix.shape[0] * matrix.shape[1] <= _DENSE:
        return torch.as_tensor(matrix.toarray())
    entries = matrix.tocoo()
    row, column = (torch.as_tensor(i.astype(np.int64)) for i in (entries.row, entries.col))
    return SparseMatrix(row, column, torch.as_tensor(entries.data), entries.shape)


def sparse_if_large(dense: Tensor) -> Tensor | SparseMatrix:
    """The matrix itself if it is small, or by its entries."""
    if dense.numel() <= _DENSE:
        return dense
    row, column = dense.nonzero().T
    return SparseMatrix(row, column, dense[row, column], (len(dense), dense.shape[1]))


def as_combinations(matrix: Any) -> Matrix:
    """Convert a scipy matrix of combinations, which may be all pairs of several sets."""
    if matrix.shape[0] * matrix.shape[1] <= _DENSE:
        return as_matrix(matrix)
    sizes = _sizes_of_pairs(sp.csr_array(matrix))
    runs = [Differences(len(list(run)), n) for n, run in groupby(sizes)]
    return BlockDiagonal(tuple(runs)) if runs else as_matrix(matrix)


def pairs_of(n: int) -> Any:
    """The matrix of `Differences` with its entries, as a scipy matrix: pairs row by row."""
    first, second = np.nonzero(~np.eye(n, dtype=bool))
    columns = np.stack((first, second), axis=1).reshape(-1)
    signs = np.tile([1.0, -1.0], len(first))
    matrix = sp.csr_array((signs, columns, 2 * np.arange(len(first) + 1)), (len(first), n))
    matrix.sort_indices()
    return matrix


def _sizes_of_pairs(matrix: Any) -> list[int]:
    """Sizes of the blocks if the matrix has one of `pairs_of` after the other, else none."""
    matrix.sort_indices()
    n_rows, n_columns = matrix.shape
    if not (np.diff(matrix.indptr) == 2).all():
        return []
    # The first row of a block compares its first column, which n - 1 pairs begin with.
    positive = matrix.indices[matrix.data > 0]
    sizes: list[int] = []
    row = 0
    while row < n_rows and len(positive) == n_rows:
        n = int(np.searchsorted(positive[row:] != positive[row], True)) + 1
        sizes.append(n)
        row += n * (n - 1)
    if row != n_rows or sum(sizes) != n_columns:
        return []
    blocks = {n: pairs_of(n) for n in set(sizes)}
    expected = sp.block_diag([blocks[n] for n in sizes], format="csr")
    return sizes if (matrix != expected).nnz == 0 else []


def block_diagonal(matrices: list[Matrix], like: Tensor) -> Matrix:
    """The block diagonal matrix, which is dense if all matrices are."""
    blocks = [b for m in matrices for b in (m.blocks if isinstance(m, BlockDiagonal) else [m])]
    dense = [block for block in blocks if isinstance(block, Tensor)]
    if len(dense) == len(blocks):
        empty = like.new_zeros(0, 0)
        joined: Tensor = torch.block_diag(empty, *dense)  # type: ignore[no-untyped-call]
        return joined
    return BlockDiagonal(tuple(blocks))


@singledispatch
def largest(matrix: Matrix, dense: Tensor, offset: Tensor) -> Tensor:
    """The largest entry of each column of matrix @ dense + offset, -inf without rows."""
    if not len(offset):
        return dense.new_full(dense.shape[1:], -torch.inf)
    pieces = torch.split(dense, max(_AT_ONCE // len(offset), 1), dim=1)
    return torch.cat([(matrix @ piece + offset[:, None]).amax(dim=0) for piece in pieces])


@largest.register
def _(matrix: Differences, dense: Tensor, offset: Tensor) -> Tensor:
    """Largest minus smallest entry, if all pairs have the same offset."""
    allowed = offset.reshape(matrix.n_sets, -1)[:, :1]
    if bool((offset.reshape(matrix.n_sets, -1) == allowed).all()):
        rates = dense.reshape(matrix.n_sets, matrix.n, -1)
        return (rates.amax(dim=1) - rates.amin(dim=1) + allowed).amax(dim=0)
    return largest.dispatch(object)(matrix, dense, offset)


@largest.register
def _(matrix: BlockDiagonal, dense: Tensor, offset: Tensor) -> Tensor:
    """The largest of all blocks."""
    rows, columns = zip(*(block.shape for block in matrix.blocks), strict=True)
    columns_of, rows_of = torch.split(dense, list(columns)), torch.split(offset, list(rows))
    pieces = zip(matrix.blocks, columns_of, rows_of, strict=True)
    return reduce(torch.maximum, [largest(*piece) for piece in pieces])


@singledispatch
def variances(matrix: Matrix, covariance: Tensor) -> Tensor:
    """Variances of the entries of matrix @ v, for v of this covariance."""
    dense = matrix @ torch.eye(matrix.shape[1]).to(covariance)
    return ((dense @ covariance) * dense).sum(dim=1)


@variances.register
def _(matrix: SparseMatrix, covariance: Tensor) -> Tensor:
    """Some columns of the product at a time, of which only those of entries count."""
    found = covariance.new_zeros(matrix.shape[0])
    for columns in torch.split(torch.arange(matrix.shape[1]), _AT_ONCE // matrix.shape[0] + 1):
        first, last = int(columns[0]), int(columns[-1]) + 1
        inside = (matrix.column >= first) & (matrix.column < last)
        row, column = matrix.row[inside], matrix.column[inside] - first
        product = matrix @ covariance[:, first:last]
        found.index_add_(0, row, product[row, column] * matrix.value[inside])
    return found


@variances.register
def _(matrix: Differences, covariance: Tensor) -> Tensor:
    """Of a difference: both variances minus twice the covariance."""
    n = matrix.n
    of_pairs = torch.ones(n, n, dtype=torch.bool, device=covariance.device).fill_diagonal_(False)
    found = []
    for own in range(0, matrix.shape[1], n):
        block = covariance[own : own + n, own : own + n]
        single = block.diagonal()
        found.append((single[:, None] + single - block - block.T)[of_pairs])
    return torch.cat(found)


@variances.register
def _(matrix: BlockDiagonal, covariance: Tensor) -> Tensor:
    """Those of each block, which depend on one block of the covariance."""
    found, first = [], 0
    for block in matrix.blocks:
        last = first + block.shape[1]
        found.append(variances(block, covariance[first:last, first:last]))
        first = last
    return torch.cat(found)
