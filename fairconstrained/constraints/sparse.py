"""Matrices with few entries that are not zero, as products with dense ones need them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

__all__ = ["Matrix", "SparseMatrix", "as_matrix", "block_diagonal"]

_DENSE = 2**16  # entries up to which a dense matrix is as small and its products are faster


class SparseMatrix(NamedTuple):
    """Entries of a matrix. Creating sparse tensors of torch would print warnings."""

    row: Tensor
    column: Tensor
    value: Tensor
    shape: tuple[int, int]

    def __matmul__(self, dense: Tensor) -> Tensor:
        """The product with a dense matrix, differentiable by it."""
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
        """The same in the dtype and on the device of a tensor."""
        row, column = self.row.to(like.device), self.column.to(like.device)
        return SparseMatrix(row, column, self.value.to(like), self.shape)


Matrix = Tensor | SparseMatrix


def as_matrix(matrix: Any) -> Matrix:
    """A matrix of scipy for products in torch: dense where that is small."""
    if matrix.shape[0] * matrix.shape[1] <= _DENSE:
        return torch.as_tensor(matrix.toarray())
    entries = matrix.tocoo()
    row, column = (torch.as_tensor(i.astype(np.int64)) for i in (entries.row, entries.col))
    return SparseMatrix(row, column, torch.as_tensor(entries.data), entries.shape)


def block_diagonal(blocks: list[Matrix], like: Tensor) -> Matrix:
    """Blocks one below the other, each with columns of its own; dense if all are."""
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
