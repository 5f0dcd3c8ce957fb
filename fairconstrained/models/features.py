"""The feature matrix as models see it: products with it, rows of it, and nothing else."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import cached_property, singledispatch
from typing import Any, Protocol, Self

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["DenseFeatures", "Features", "SparseFeatures", "as_features"]

# A CSR product reads an index beside every value and gathers: it wins below about this share of
# non-zeros (Adult, one-hot, 13 % non-zeros: 5 times faster; benchmarks/speed/products.py).
_SPARSE_BELOW = 0.25
_CHUNK_ROWS = 16_384
_NORM_ROWS = 1024  # their differences from the centre fit into the processor's cache
_ROUNDINGS = 8 * float(np.finfo(float).eps)
# Slices of CSR cost 0.1 ms however short they are: rows of a dense copy are faster to gather and to
# use (Adult, 512 rows: 0.05 ms with both products) up to 2 kB a row, and up to 64 MB it is made.
_SMALL_NUMBERS, _SMALL_COLUMNS = 1 << 23, 256


class Features(Protocol):
    """What a model may ask of the (n, d) feature matrix X."""

    @property
    def shape(self) -> tuple[int, int]: ...

    def matmul(self, v: Tensor) -> Tensor:
        """X v, of shape (n, K)."""

    def t_matmul(self, c: Tensor) -> Tensor:
        """X' c, of shape (d, K)."""

    def rows(self, index: Tensor) -> Features:
        """The matrix of these rows."""

    def to_dense(self) -> Tensor:
        """All of it as one (n, d) tensor."""

    @property
    def better_dense(self) -> bool:
        """Whether many batches of rows had better come from a dense copy."""

    def square_norms(self, center: Tensor, transform: Tensor) -> Tensor:
        """Squared norms of the rows (x - center) T, (n,), for diagonal (d,) or full T."""

    def with_norms(self, center: Tensor, transform: Tensor) -> Features:
        """The same matrix, which knows these norms and tells them to its rows."""

    def bounded(self, low: Tensor, high: Tensor) -> Features:
        """The matrix with columns cut to [low, high], each (d,)."""

    def mean(self, weight: Tensor) -> Tensor:
        """Weighted column means, of shape (d,)."""

    def covariance(self, weight: Tensor, center: Tensor) -> Tensor:
        """Weighted second moments about `center`, of shape (d, d)."""

    def variance(self, weight: Tensor, center: Tensor) -> Tensor:
        """The diagonal of `covariance`, of shape (d,), without the rest."""


class _Rows(ABC):
    """What dense and sparse matrices share: rows, and norms of rows that are worked out once."""

    def __init__(self, shape: Sequence[int]):
        self.shape = (shape[0], shape[1])
        self._norms: tuple[Tensor, Tensor, Tensor] | None = None  # centre, transform, squares

    def rows(self, index: Tensor) -> Self:
        """The matrix of these rows, with their norms if those are known."""
        rows = self._rows(index)
        if self._norms is not None:
            center, transform, squares = self._norms
            rows._norms = center, transform, squares.index_select(0, index)
        return rows

    def square_norms(self, center: Tensor, transform: Tensor) -> Tensor:
        """Squared norms of the rows (x - center) T, (n,), for diagonal (d,) or full T."""
        norms = self._norms
        # Clips rest on them: those of other coordinates must not be taken for these.
        if norms is not None and norms[0] is center and norms[1] is transform:
            return norms[2]
        return self._square_norms(center, transform)

    def with_norms(self, center: Tensor, transform: Tensor) -> Self:
        """The same matrix, knowing these norms: private steps need them for every batch."""
        normed = copy.copy(self)
        normed._norms = center, transform, self._square_norms(center, transform)
        return normed

    @abstractmethod
    def _rows(self, index: Tensor) -> Self: ...

    @abstractmethod
    def _square_norms(self, center: Tensor, transform: Tensor) -> Tensor: ...


class DenseFeatures(_Rows):
    """A tensor on any device."""

    def __init__(self, X: Tensor):
        super().__init__(X.shape)
        self.X = X

    def matmul(self, v: Tensor) -> Tensor:
        """X v."""
        return self.X @ v

    def t_matmul(self, c: Tensor) -> Tensor:
        """X' c."""
        return self.X.T @ c

    def _rows(self, index: Tensor) -> Self:
        return type(self)(self.X.index_select(0, index))  # half the time of X[index]

    def to_dense(self) -> Tensor:
        """The tensor itself."""
        return self.X

    @property
    def better_dense(self) -> bool:
        """It is."""
        return False

    def _square_norms(self, center: Tensor, transform: Tensor) -> Tensor:
        squares = []
        for X in torch.split(self.X, _NORM_ROWS):
            if transform.ndim == 1:
                rows = torch.addcmul(-center * transform, X, transform)
            else:
                rows = (X - center) @ transform
            squares.append(torch.linalg.vecdot(rows, rows))
        return torch.cat(squares)

    def bounded(self, low: Tensor, high: Tensor) -> DenseFeatures:
        """Columns cut to [low, high]; no copy where they are."""
        smallest, largest = self.X.aminmax(dim=0)
        if bool(((smallest >= low) & (largest <= high)).all()):
            return self
        return DenseFeatures(self.X.clamp(low, high))

    def mean(self, weight: Tensor) -> Tensor:
        """Weighted column means."""
        return weight @ self.X / weight.sum()

    def covariance(self, weight: Tensor, center: Tensor) -> Tensor:
        """Weighted second moments about `center`; memory grows with a chunk, not with n."""
        total = torch.zeros(
            (self.shape[1], self.shape[1]), dtype=self.X.dtype, device=self.X.device
        )
        for X, w in self._chunks(weight):
            centred = (X - center) * w.sqrt()[:, None]
            total += centred.T @ centred
        return total / weight.sum()

    def _chunks(self, weight: Tensor) -> Iterable[tuple[Tensor, Tensor]]:
        pairs = (torch.split(rows, _CHUNK_ROWS) for rows in (self.X, weight))
        return zip(*pairs, strict=True)

    def variance(self, weight: Tensor, center: Tensor) -> Tensor:
        """Weighted variances about `center`."""
        total = torch.zeros(self.shape[1], dtype=self.X.dtype, device=self.X.device)
        for X, w in self._chunks(weight):
            total += w @ (X - center) ** 2
        return total / weight.sum()


class SparseFeatures(_Rows):
    """A scipy CSR matrix, on the CPU; never made dense as a whole by a linear model."""

    def __init__(self, X: sp.csr_array):
        super().__init__(X.shape)
        self.X = X

    @cached_property
    def _transposed(self) -> sp.csc_array:
        """A view; making it at every step costs a third of the product."""
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
        """All of it as one tensor: for the rows of a batch."""
        return torch.from_numpy(self.X.toarray())

    @property
    def better_dense(self) -> bool:
        """If that costs little memory, and rows are short."""
        n_rows, n_columns = self.shape
        return n_columns <= _SMALL_COLUMNS and n_rows * n_columns <= _SMALL_NUMBERS

    def _square_norms(self, center: Tensor, transform: Tensor) -> Tensor:
        # Expanded: x - center would be dense.
        if transform.ndim == 2:
            return ((self.matmul(transform) - center @ transform) ** 2).sum(dim=1)
        scale = transform**2
        squares = torch.from_numpy(self.X.multiply(self.X) @ scale.numpy())
        cross = torch.from_numpy(self.X @ (scale * center).numpy())
        constant = scale @ center**2
        # Where rows are short beside their distance from zero the difference is all rounding: norms
        # that bound what a row can do must not be too small.
        rounding = _ROUNDINGS * (squares + 2 * cross.abs() + constant)
        return (squares - 2 * cross + constant).clamp_min(0.0) + rounding

    def bounded(self, low: Tensor, high: Tensor) -> SparseFeatures:
        """Columns cut to [low, high], extended to hold zero: what is not stored stays so."""
        ends = low.clamp_max(0.0).numpy(), high.clamp_min(0.0).numpy()
        X = self.X.copy()
        X.data = np.clip(X.data, *(end[X.indices] for end in ends))
        return SparseFeatures(X)

    def mean(self, weight: Tensor) -> Tensor:
        """Weighted column means."""
        return torch.from_numpy(self.X.T @ weight.numpy()) / weight.sum()

    def covariance(self, weight: Tensor, center: Tensor) -> Tensor:
        """Weighted second moments about `center`, from X'WX: the centred matrix would be dense."""
        w = weight.numpy()
        second: NDArray[np.float64] = (self.X.T @ self.X.multiply(w[:, None])).toarray() / w.sum()
        mean = self.mean(weight)
        shift = torch.outer(center, mean)
        return torch.from_numpy(second) - shift - shift.T + torch.outer(center, center)

    def variance(self, weight: Tensor, center: Tensor) -> Tensor:
        """Weighted variances about `center`."""
        w = weight.numpy()
        second: NDArray[np.float64] = self.X.multiply(self.X).T @ w / w.sum()
        return (torch.from_numpy(second) - 2 * center * self.mean(weight) + center**2).clamp_min(
            0.0
        )


@singledispatch
def as_features(X: Any, device: str = "cpu") -> Features:
    """Wrap a checked array or sparse matrix of float64.

    Parameters
    ----------
    X : ndarray or scipy sparse matrix of shape (n_samples, n_features)
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
    return DenseFeatures(torch.as_tensor(X, device=device))


@as_features.register(sp.sparray)
@as_features.register(sp.spmatrix)
def _(X: Any, device: str = "cpu") -> Features:
    if torch.device(device).type != "cpu":
        raise ValueError(
            f"sparse X needs device='cpu'; got device={device!r}. Pass X.toarray() to use it."
        )
    return SparseFeatures(sp.csr_array(X))
