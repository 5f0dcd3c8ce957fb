"""The feature matrix as models see it, dense or sparse."""

from __future__ import annotations

import copy
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property, singledispatch
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

# CSR products are faster than dense ones below about this fraction of non-zeros. On Adult, one-hot
# encoded with 13 % non-zeros, they are 5 times faster (benchmarks/speed/products.py).
_SPARSE_BELOW = 0.25
_CHUNK_ROWS = 16_384
_NORM_ROWS = 1024  # so many centred rows fit into the processor's cache
_ROUNDINGS = 8 * float(np.finfo(float).eps)
# A slice of CSR costs 0.1 ms even if it is short. A dense copy is made of matrices with rows of at
# most 2 kB and 64 MB in all: 512 rows of Adult then take 0.05 ms with both products.
_SMALL_NUMBERS, _SMALL_COLUMNS = 1 << 23, 256


class ColumnStatistics(Protocol):
    """What coordinates and penalties ask about the columns of an (n, d) feature matrix."""

    @property
    def shape(self) -> tuple[int, int]: ...

    def mean(self, weight: Tensor) -> Tensor:
        """Weighted column means, of shape (d,)."""

    def covariance(self, weight: Tensor, centre: Tensor) -> Tensor:
        """Weighted second moments about `centre`, of shape (d, d)."""

    def variance(self, weight: Tensor, centre: Tensor) -> Tensor:
        """The diagonal of `covariance`, of shape (d,)."""

    def values(self) -> ColumnValues:
        """Least and largest value of each column, and whether there are others."""


class Features(ColumnStatistics, Protocol):
    """Operations on the (n, d) feature matrix X that a model may use."""

    def matmul(self, v: Tensor) -> Tensor:
        """X v, of shape (n, K)."""

    def t_matmul(self, c: Tensor) -> Tensor:
        """X' c, of shape (d, K)."""

    def rows(self, index: Tensor) -> Features:
        """The matrix of these rows."""

    def to_dense(self) -> Tensor:
        """The whole matrix as one (n, d) tensor."""

    @property
    def better_dense(self) -> bool:
        """Whether a dense copy is better for taking many batches of rows."""

    def square_norms(self, centre: Tensor, transform: Tensor) -> Tensor:
        """Squared norms of the rows (x - centre) T, (n,), for T diagonal, (d,), full or sparse."""

    def with_norms(self, centre: Tensor, transform: Tensor) -> Features:
        """The same matrix with these norms stored, also for its rows."""

    def bounded(self, low: Tensor, high: Tensor) -> Features:
        """The matrix with columns clipped to [low, high], each (d,)."""

    def split(self, n_rows: int) -> Iterator[Features]:
        """The rows in order, at most `n_rows` at a time, in double precision."""


class ColumnValues(NamedTuple):
    """What is known of the values of each column; that of several parts of the rows is joined."""

    low: Tensor  # (d,) least value
    high: Tensor  # (d,) largest value
    more: Tensor  # (d,) whether there are others; low and high need not be right then

    def joined(self, other: ColumnValues) -> ColumnValues:
        """What is known of the rows of both."""
        low, high = self.low.minimum(other.low), self.high.maximum(other.high)
        ends = torch.stack((*self[:2], *other[:2]))
        third = ((ends != low) & (ends != high)).any(dim=0)
        return ColumnValues(low, high, self.more | other.more | third)

    def binary_range(self) -> Tensor:
        """Difference of the values of each column that has exactly two, (d,); zero for others."""
        return torch.where(self.more, 0.0, self.high - self.low)


class _Rows(ABC):
    """Base of dense and sparse matrices: selection of rows, with stored norms."""

    def __init__(self, shape: Sequence[int]):
        self.shape = (shape[0], shape[1])
        self._norms: tuple[Tensor, Tensor, Tensor] | None = None  # centre, transform, squares

    def rows(self, index: Tensor) -> Self:
        """The matrix of these rows, with their norms if they are stored."""
        index = self._on_device(index)
        rows = self._rows(index)
        if self._norms is not None:
            centre, transform, squares = self._norms
            rows._norms = centre, transform, squares.index_select(0, index)
        return rows

    def square_norms(self, centre: Tensor, transform: Tensor) -> Tensor:
        """Squared norms of the rows (x - centre) T, (n,), for T diagonal, (d,), full or sparse."""
        norms = self._norms
        # Clipping relies on the norms: those stored for other coordinates must not be used.
        if norms is not None and all(map(_same, norms[:2], (centre, transform))):
            return norms[2]
        return self._square_norms(centre, transform)

    def with_norms(self, centre: Tensor, transform: Tensor) -> Self:
        """The same matrix with these norms stored, which private steps need for every batch."""
        normed = copy.copy(self)
        normed._norms = centre, transform, self._square_norms(centre, transform)
        return normed

    def _on_device(self, index: Tensor) -> Tensor:
        return index

    @abstractmethod
    def _rows(self, index: Tensor) -> Self: ...

    @abstractmethod
    def _square_norms(self, centre: Tensor, transform: Tensor) -> Tensor: ...


class DenseFeatures(_Rows):
    """A dense tensor on any device, of single or double precision.

    All results are those of double precision. A table of single precision is converted block by
    block, because a copy of the whole would take twice its memory.
    """

    def __init__(self, X: Tensor):
        super().__init__(X.shape)
        self.X = X

    def matmul(self, v: Tensor) -> Tensor:
        """X v."""
        if self.X.dtype == v.dtype:
            return self.X @ v
        if v.requires_grad:  # autograd keeps the blocks
            return torch.cat([X.double() @ v for X in torch.split(self.X, _CHUNK_ROWS)])
        result = v.new_empty((self.shape[0], *v.shape[1:]))
        for X, rows in self._blocks(result):
            torch.matmul(X, v, out=rows)
        return result

    def t_matmul(self, c: Tensor) -> Tensor:
        """X' c."""
        # (c' X)' takes a sixth of the time of X' c for ten columns that are contiguous in memory.
        if self.X.dtype == c.dtype:
            return (c.T @ self.X).T
        return torch.stack([rows.T @ X for X, rows in self._blocks(c)]).sum(dim=0).T

    def _on_device(self, index: Tensor) -> Tensor:
        return index.to(self.X.device)  # generators draw it on the CPU

    def _rows(self, index: Tensor) -> Self:
        return type(self)(self.X.index_select(0, index))  # half the time of X[index]

    def to_dense(self) -> Tensor:
        """The tensor in double precision."""
        return self.X.double()

    @property
    def better_dense(self) -> bool:
        """False, because the matrix is dense."""
        return False

    def _blocks(self, *columns: Tensor, size: int = _CHUNK_ROWS) -> Iterator[tuple[Tensor, ...]]:
        """The rows in double precision, some at a time, with those of other columns.

        A block is valid until the next one. To allocate each anew leaves holes in the memory of the
        process, which together may be larger than the table.
        """
        blocks = zip(*(torch.split(rows, size) for rows in (self.X, *columns)), strict=True)
        if self.X.dtype == torch.float64:
            return blocks
        memory = self.X.new_empty((min(size, self.shape[0]), self.shape[1]), dtype=torch.float64)
        return ((memory[: len(X)].copy_(X), *others) for X, *others in blocks)

    def _square_norms(self, centre: Tensor, transform: Tensor) -> Tensor:
        squares = []
        for (X,) in self._blocks(size=_NORM_ROWS):
            if transform.ndim == 1:
                rows = torch.addcmul(-centre * transform, X, transform)
            else:
                rows = (X - centre) @ transform
            squares.append(torch.linalg.vecdot(rows, rows))
        return torch.cat(squares)

    def bounded(self, low: Tensor, high: Tensor) -> DenseFeatures:
        """Columns clipped to [low, high]; no copy if they are within."""
        smallest, largest = self.X.aminmax(dim=0)
        if bool(((smallest >= low) & (largest <= high)).all()):
            return self
        return DenseFeatures(self.X.clamp(low, high))

    def mean(self, weight: Tensor) -> Tensor:
        """Weighted column means."""
        return self.t_matmul(weight[:, None])[:, 0] / weight.sum()

    def covariance(self, weight: Tensor, centre: Tensor) -> Tensor:
        """Weighted second moments about `centre`."""
        total = weight.new_zeros((self.shape[1], self.shape[1]))
        for X, w in self._blocks(weight):
            centred = (X - centre) * w.sqrt()[:, None]
            total += centred.T @ centred
        return total / weight.sum()

    def variance(self, weight: Tensor, centre: Tensor) -> Tensor:
        """Weighted variances about `centre`."""
        total = weight.new_zeros(self.shape[1])
        for X, w in self._blocks(weight):
            total += w @ (X - centre) ** 2
        return total / weight.sum()

    def values(self) -> ColumnValues:
        """Least and largest value of each column; a column is left at its third value."""
        n_columns, device = self.shape[1], self.X.device
        column = torch.arange(n_columns, device=device)
        low = high = self.X[0]
        for rows in torch.split(self.X, _CHUNK_ROWS):
            X = rows.index_select(1, column)
            below, above = low.minimum(X.amin(dim=0)), high.maximum(X.amax(dim=0))
            known = torch.stack((low, high))
            same = (known.eq(below) | known.eq(above)).all(dim=0)
            two = same & (X.eq(below) | X.eq(above)).all(dim=0)
            column, low, high = column[two], below[two], above[two]
            if not len(column):
                break
        ends = torch.zeros((2, n_columns), dtype=torch.float64, device=device)
        ends.index_copy_(1, column, torch.stack((low, high)).double())
        more = torch.ones(n_columns, dtype=torch.bool, device=device).index_fill(0, column, False)
        return ColumnValues(ends[0], ends[1], more)

    def split(self, n_rows: int) -> Iterator[DenseFeatures]:
        """The rows in order, some at a time, in double precision."""
        return (DenseFeatures(X.double()) for X in torch.split(self.X, n_rows))


class SparseFeatures(_Rows):
    """A scipy CSR matrix on the CPU. Linear models make a dense copy only of small ones."""

    def __init__(self, X: sp.csr_array):
        super().__init__(X.shape)
        # scipy converts the whole matrix in each product of different precisions.
        self.X = X.astype(np.float64, copy=False)

    @cached_property
    def _transposed(self) -> sp.csc_array:
        """The transposed view. To make it in each step would cost a third of the product."""
        return self.X.T

    def matmul(self, v: Tensor) -> Tensor:
        """X v."""
        return torch.from_numpy(self.X @ v.numpy())

    def t_matmul(self, c: Tensor) -> Tensor:
        """X' c."""
        return torch.from_numpy(self._transposed @ c.numpy())

    def _rows(self, index: Tensor) -> Self:
        return type(self)(self.X[index.numpy()])

    def to_dense(self) -> Tensor:
        """The matrix as one tensor, for the rows of a batch."""
        return torch.from_numpy(self.X.toarray())

    @property
    def better_dense(self) -> bool:
        """True if a dense copy takes little memory and rows are short."""
        n_rows, n_columns = self.shape
        return n_columns <= _SMALL_COLUMNS and n_rows * n_columns <= _SMALL_NUMBERS

    def _square_norms(self, centre: Tensor, transform: Tensor) -> Tensor:
        if transform.is_sparse:
            row, column = transform.indices().numpy()
            product = self.X @ sp.csr_array(
                (transform.values().numpy(), (row, column)), transform.shape
            )
            centre = transform.T @ centre
            return SparseFeatures(product)._square_norms(centre, torch.ones_like(centre))
        # The square is expanded, because x - centre would be dense.
        if transform.ndim == 2:
            return ((self.matmul(transform) - centre @ transform) ** 2).sum(dim=1)
        scale = transform**2
        squares = torch.from_numpy(self.X.multiply(self.X) @ scale.numpy())
        cross = torch.from_numpy(self.X @ (scale * centre).numpy())
        constant = scale @ centre**2
        # Norms bound the influence of a row and must not be too small. If a row is close to the
        # centre and far from zero, the difference is mostly rounding error, so that is added.
        rounding = _ROUNDINGS * (squares + 2 * cross.abs() + constant)
        return (squares - 2 * cross + constant).clamp_min(0.0) + rounding

    def bounded(self, low: Tensor, high: Tensor) -> SparseFeatures:
        """Columns clipped to [low, high], extended to contain zero to keep the sparsity."""
        ends = low.clamp_max(0.0).numpy(), high.clamp_min(0.0).numpy()
        X = self.X.copy()
        X.data = np.clip(X.data, *(end[X.indices] for end in ends))
        return SparseFeatures(X)

    def mean(self, weight: Tensor) -> Tensor:
        """Weighted column means."""
        return torch.from_numpy(self.X.T @ weight.numpy()) / weight.sum()

    def covariance(self, weight: Tensor, centre: Tensor) -> Tensor:
        """Weighted second moments about `centre`, from X'WX since centred rows would be dense."""
        w = weight.numpy()
        second: NDArray[np.float64] = (self.X.T @ self.X.multiply(w[:, None])).toarray() / w.sum()
        mean = self.mean(weight)
        shift = torch.outer(centre, mean)
        return torch.from_numpy(second) - shift - shift.T + torch.outer(centre, centre)

    def variance(self, weight: Tensor, centre: Tensor) -> Tensor:
        """Weighted variances about `centre`."""
        w = weight.numpy()
        second: NDArray[np.float64] = self.X.multiply(self.X).T @ w / w.sum()
        return (torch.from_numpy(second) - 2 * centre * self.mean(weight) + centre**2).clamp_min(
            0.0
        )

    def values(self) -> ColumnValues:
        """Least and largest value of each column, of which zero may be one."""
        (n_rows, n_columns), column, value = self.X.shape, self.X.indices, self.X.data
        zeros = np.bincount(column, minlength=n_columns) < n_rows  # that are not stored
        low, high = (np.where(zeros, 0.0, end) for end in (np.inf, -np.inf))
        np.minimum.at(low, column, value)
        np.maximum.at(high, column, value)
        within = (value != low[column]) & (value != high[column])
        other = np.bincount(column, within, n_columns) + (zeros & (low < 0) & (high > 0))
        return ColumnValues(*map(torch.from_numpy, (low, high, other > 0)))

    def split(self, n_rows: int) -> Iterator[SparseFeatures]:
        """The rows in order, some at a time."""
        starts = range(0, self.shape[0], n_rows)
        return (SparseFeatures(self.X[start : start + n_rows]) for start in starts)


def _same(one: Tensor, other: Tensor) -> bool:
    """Whether these are equal; sparse ones have to be the same object."""
    return one is other or (not (one.is_sparse or other.is_sparse) and torch.equal(one, other))


def dense_features(X: Any, device: str = "cpu") -> DenseFeatures:
    """Wrap a checked array or tensor, however many of its entries are zero."""
    with warnings.catch_warnings():
        # Nothing writes to X: memory that joblib or numpy maps need not be copied.
        warnings.filterwarnings("ignore", "The given NumPy array is not writ", UserWarning)
        return DenseFeatures(torch.as_tensor(X, device=device))


@singledispatch
def as_features(X: Any, device: str = "cpu") -> Features:
    """Wrap a checked array, tensor or sparse matrix of float64 or float32.

    Parameters
    ----------
    X : ndarray, Tensor or scipy sparse matrix of shape (n_samples, n_features)
        A dense array that is mostly zeros (one-hot tables) is stored as CSR on the CPU.
    device : str, default="cpu"
        Torch device of a dense matrix.

    Raises
    ------
    ValueError
        If X is sparse and `device` is not the CPU.
    """
    if torch.device(device).type == "cpu" and np.count_nonzero(X) < _SPARSE_BELOW * X.size:
        return SparseFeatures(sp.csr_array(X))
    return dense_features(X, device)


@as_features.register
def _(X: Tensor, device: str = "cpu") -> Features:
    return dense_features(X, device)


@as_features.register(sp.sparray)
@as_features.register(sp.spmatrix)
def _(X: Any, device: str = "cpu") -> Features:
    if torch.device(device).type != "cpu":
        raise ValueError(
            f"sparse X needs device='cpu'; got device={device!r}. Pass X.toarray() to use it."
        )
    return SparseFeatures(sp.csr_array(X))
