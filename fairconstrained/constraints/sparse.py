"""Sparse matrices for products with dense ones."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

__all__ = ["Matrix", "SparseMatrix", "as_matrix", "block_diagonal"]

_DENSE = 2**16  # up to so many entries a dense matrix is used, whose products are faster


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


Matrix = Tensor | SparseMatrix


def as_matrix(matrix: Any) -> Matrix:
    """Convert a scipy matrix for products in torch; dense if it is small."""
    if matrix.shape[0] * matrix.shape[1] <= _DENSE:
        return torch.as_tensor(matrix.toarray())
    entries = matrix.tocoo()
    row, column = (torch.as_tensor(i.astype(np.int64)) for i in (entries.row, entries.col))
    return SparseMatrix(row, column, torch.as_tensor(entries.data), entries.shape)


def block_diagonal(blocks: list[Matrix], like: Tensor) -> Matrix:
    """The block diagonal matrix, which is dense if all blocks are."""
    dense = [block for block in blocks if isinstance(block, Tensor)]
    if len(dense) == len(blocks):
        empty = like.new_zeros(0, 0)
        joined: Tensor = torch.block_diag(empty, *dense)  # type: ignore[no-untyped-call]
        return joined
    rows, columns, values, n, k = [], [], [], 0, 0
    for block in blocks:
        own = _sparse(block)
        rows.append(own.row + n)
        columns.append(own.column + k)
        values.append(own.value)
        n, k = n + own.shape[0], k + own.shape[1]
    return SparseMatrix(torch.cat(rows), torch.cat(columns), torch.cat(values), (n, k))


def _sparse(block: Matrix) -> SparseMatrix:
    if isinstance(block, SparseMatrix):
        return block
    row, column = block.nonzero().T
    return SparseMatrix(row, column, block[row, column], (len(block), block.shape[1]))
