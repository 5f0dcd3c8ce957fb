"""The feature matrix as models see it, dense or sparse, and the protocol of models."""

from __future__ import annotations

import copy
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, partial
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairconstrained.numerics import CACHE_ROWS, PIECE_ROWS, ROUNDING

_ROUNDINGS = 8 * float(np.finfo(float).eps)


Pullback = Callable[[Tensor], Tensor]
ClippedPullback = Callable[[Tensor, float | Tensor], Tensor]


class ColumnStatistics(Protocol):
    """Statistics of columns, as in :class:`Features`, of rows that need not be in memory."""

    @property
    def shape(self) -> tuple[int, int]: ...

    def mean(self, weight: Tensor) -> Tensor: ...

    def covariance(self, weight: Tensor, centre: Tensor) -> Tensor: ...

    def variance(self, weight: Tensor, centre: Tensor) -> Tensor: ...

    def values(self) -> ColumnValues: ...


class ColumnValues(NamedTuple):
    """Least and largest value of each column, and whether there are others, each (d,)."""

    low: Tensor
    high: Tensor
    more: Tensor

    def joined(self, other: ColumnValues) -> ColumnValues:
        """Merge with the column values of other rows."""
        low, high = self.low.minimum(other.low), self.high.maximum(other.high)
        ends = torch.stack((*self[:2], *other[:2]))
        third = ((ends != low) & (ends != high)).any(dim=0)
        return ColumnValues(low, high, self.more | other.more | third)


class Features(ABC):
    """Operations on the (n, d) feature matrix X that a model may use."""

    better_dense = False  # for taking many batches of rows

    def __init__(self, X: Any):
        self.X = X
        self.shape = (int(X.shape[0]), int(X.shape[1]))
        self._norms: tuple[Tensor, Tensor, Tensor] | None = None  # centre, transform, squares

    @abstractmethod
    def matmul(self, v: Tensor) -> Tensor:
        """Return X v, of shape (n, K)."""

    @abstractmethod
    def t_matmul(self, c: Tensor) -> Tensor:
        """Return X' c, of shape (d, K)."""

    @abstractmethod
    def to_dense(self) -> Tensor:
        """Return the whole matrix as one (n, d) tensor in double precision."""

    @abstractmethod
    def bounded(self, low: Tensor, high: Tensor) -> Features:
        """Return the matrix with columns clipped to [low, high], each (d,)."""

    @abstractmethod
    def split(self, n_rows: int) -> Iterator[Features]:
        """Iterate over the rows in order, at most `n_rows` at a time, in double precision."""

    @abstractmethod
    def covariance(self, weight: Tensor, centre: Tensor) -> Tensor:
        """Return weighted second moments about `centre`, of shape (d, d)."""

    @abstractmethod
    def variance(self, weight: Tensor, centre: Tensor) -> Tensor:
        """Return the diagonal of `covariance`, of shape (d,)."""

    @abstractmethod
    def values(self) -> ColumnValues:
        """Return the least and largest value of each column, and whether there are others."""

    def mean(self, weight: Tensor) -> Tensor:
        """Return weighted column means, of shape (d,)."""
        return self.t_matmul(weight[:, None])[:, 0] / weight.sum()

    def rows(self, index: Tensor) -> Self:
        """Select rows by index, with their norms if norms are stored."""
        rows = type(self)(self._rows(index))
        if self._norms is not None:
            centre, transform, squares = self._norms
            rows._norms = centre, transform, squares.index_select(0, index.to(squares.device))
        return rows

    def square_norms(self, centre: Tensor, transform: Tensor) -> Tensor:
        """Return square norms (n,) of rows (x - centre) T, for T diagonal, (d,), full or sparse."""
        # Clipping relies on the norms: those stored for other coordinates must not be used.
        if self._norms is not None and torch.equal(self._norms[0], centre):
            stored, squares = self._norms[1:]
            dense = not (stored.is_sparse or transform.is_sparse)
            if stored is transform or (dense and torch.equal(stored, transform)):
                return squares
        return self._square_norms(centre, transform)

    def with_norms(self, centre: Tensor, transform: Tensor) -> Self:
        """Return the matrix with its row norms stored, since private steps need them every time."""
        normed = copy.copy(self)
        normed._norms = centre, transform, self._square_norms(centre, transform)
        return normed

    @abstractmethod
    def _rows(self, index: Tensor) -> Any: ...

    @abstractmethod
    def _square_norms(self, centre: Tensor, transform: Tensor) -> Tensor: ...


class DenseFeatures(Features):
    """A dense tensor on any device, of single or double precision.

    Results have double precision: a table of single precision is converted block by block.
    """

    X: Tensor

    def matmul(self, v: Tensor) -> Tensor:
        if self.X.dtype == v.dtype:
            return self.X @ v
        result = v.new_empty((self.shape[0], *v.shape[1:]))
        for X, rows in self._blocks(result):
            torch.matmul(X, v, out=rows)
        return result

    def t_matmul(self, c: Tensor) -> Tensor:
        # (c' X)' takes a sixth of the time of X' c for ten columns that are contiguous in memory.
        if self.X.dtype == c.dtype:
            return (c.T @ self.X).T
        return torch.stack([rows.T @ X for X, rows in self._blocks(c)]).sum(dim=0).T

    def _rows(self, index: Tensor) -> Tensor:
        # Generators draw the index on the CPU; this takes half the time of X[index].
        return self.X.index_select(0, index.to(self.X.device))

    def to_dense(self) -> Tensor:
        return self.X.double()

    def _blocks(self, *columns: Tensor, size: int = PIECE_ROWS) -> Iterator[tuple[Tensor, ...]]:
        """Iterate over blocks of rows in double precision, with the same rows of other columns.

        A block is valid until the next one.
        """
        split = partial(torch.split, split_size_or_sections=size)
        blocks = zip(*map(split, (self.X, *columns)), strict=True)
        if self.X.dtype == torch.float64:
            return blocks
        # To allocate each block anew would leave holes in the memory.
        memory = self.X.new_empty((min(size, self.shape[0]), self.shape[1]), dtype=torch.float64)
        return ((memory[: len(X)].copy_(X), *others) for X, *others in blocks)

    def _square_norms(self, centre: Tensor, transform: Tensor) -> Tensor:
        squares = []
        for (X,) in self._blocks(size=CACHE_ROWS):
            if transform.ndim == 1:
                rows = torch.addcmul(-centre * transform, X, transform)
            else:
                rows = (X - centre) @ transform
            squares.append(torch.linalg.vecdot(rows, rows))
        return torch.cat(squares)

    def bounded(self, low: Tensor, high: Tensor) -> DenseFeatures:
        smallest, largest = self.X.aminmax(dim=0)
        if bool(((smallest >= low) & (largest <= high)).all()):
            return self
        # In the precision of X: sums round in another way in double precision.
        return DenseFeatures(self.X.clamp(low.to(self.X), high.to(self.X)))

    def covariance(self, weight: Tensor, centre: Tensor) -> Tensor:
        total = weight.new_zeros((self.shape[1], self.shape[1]))
        for X, w in self._blocks(weight):
            centred = (X - centre) * w.sqrt()[:, None]
            total += centred.T @ centred
        return total / weight.sum()

    def variance(self, weight: Tensor, centre: Tensor) -> Tensor:
        total = weight.new_zeros(self.shape[1])
        for X, w in self._blocks(weight):
            total += w @ (X - centre) ** 2
        return total / weight.sum()

    def values(self) -> ColumnValues:
        low, high = self.X.aminmax(dim=0)
        more = torch.zeros_like(low, dtype=torch.bool)
        for rows in torch.split(self.X, PIECE_ROWS):
            more |= (rows.ne(low) & rows.ne(high)).any(dim=0)
        return ColumnValues(low.double(), high.double(), more)

    def split(self, n_rows: int) -> Iterator[DenseFeatures]:
        return (DenseFeatures(X.double()) for X in torch.split(self.X, n_rows))


class SparseFeatures(Features):
    """A scipy CSR matrix on the CPU. Linear models make a dense copy only of small ones."""

    def __init__(self, X: sp.csr_array):
        # scipy converts the whole matrix in each product of different precisions.
        super().__init__(X.astype(np.float64, copy=False))
        n_rows, n_columns = self.shape
        # A slice of CSR costs 0.1 ms even if it is short: smaller matrices have a dense copy.
        self.better_dense = n_columns <= 256 and n_rows * n_columns <= 1 << 23

    @cached_property
    def _transposed(self) -> sp.csc_array:
        """The transposed view, cached: making it in each step would cost a third of the product."""
        return self.X.T

    def matmul(self, v: Tensor) -> Tensor:
        return torch.from_numpy(self.X @ v.numpy())

    def t_matmul(self, c: Tensor) -> Tensor:
        return torch.from_numpy(self._transposed @ c.numpy())

    def _rows(self, index: Tensor) -> sp.csr_array:
        return self.X[index.numpy()]

    def to_dense(self) -> Tensor:
        return torch.from_numpy(self.X.toarray())

    def _square_norms(self, centre: Tensor, transform: Tensor) -> Tensor:
        if transform.is_sparse:
            row, column = transform.indices().numpy()
            product = self.X @ sp.csr_array(
                (transform.values().numpy(), (row, column)), transform.shape
            )
            centre = transform.T @ centre
            return SparseFeatures(product)._square_norms(centre, torch.ones_like(centre))
        if transform.ndim == 1 and float(transform.abs().min()) < 2.0**-400:  # squares overflow
            power = 2.0 ** transform.abs().log2().floor()
            scaled = SparseFeatures(sp.csr_array(self.X.multiply(power.numpy()[None])))
            return scaled._square_norms(centre * power, transform / power)
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
        """Return columns clipped to [low, high], extended to contain zero: sparse as before."""
        ends = low.clamp_max(0.0).numpy(), high.clamp_min(0.0).numpy()
        X = self.X.copy()
        X.data = np.clip(X.data, *(end[X.indices] for end in ends))
        return SparseFeatures(X)

    def covariance(self, weight: Tensor, centre: Tensor) -> Tensor:
        w = weight.numpy()  # from X'WX, since centred rows would be dense
        second: NDArray[np.float64] = (self.X.T @ self.X.multiply(w[:, None])).toarray() / w.sum()
        mean = self.mean(weight)
        shift = torch.outer(centre, mean)
        return torch.from_numpy(second) - shift - shift.T + torch.outer(centre, centre)

    def variance(self, weight: Tensor, centre: Tensor) -> Tensor:
        w = weight.numpy()
        second = torch.from_numpy(self.X.multiply(self.X).T @ w / w.sum())
        return (second - 2 * centre * self.mean(weight) + centre**2).clamp_min(0.0)

    def values(self) -> ColumnValues:
        (n_rows, n_columns), column, value = self.X.shape, self.X.indices, self.X.data
        zeros = np.bincount(column, minlength=n_columns) < n_rows  # that are not stored
        low, high = (np.where(zeros, 0.0, end) for end in (np.inf, -np.inf))
        np.minimum.at(low, column, value)
        np.maximum.at(high, column, value)
        within = (value != low[column]) & (value != high[column])
        other = np.bincount(column, within, n_columns) + (zeros & (low < 0) & (high > 0))
        return ColumnValues(*map(torch.from_numpy, (low, high, other > 0)))

    def split(self, n_rows: int) -> Iterator[SparseFeatures]:
        starts = range(0, self.shape[0], n_rows)
        return (SparseFeatures(self.X[start : start + n_rows]) for start in starts)


def dense_features(X: Any, device: str = "cpu") -> DenseFeatures:
    """Wrap a checked array or tensor as dense, however many of its entries are zero."""
    with warnings.catch_warnings():
        # Nothing writes to X: memory that joblib or numpy maps need not be copied.
        warnings.filterwarnings("ignore", "The given NumPy array is not writ", UserWarning)
        return DenseFeatures(torch.as_tensor(X, device=device))


def as_features(X: Any, device: str = "cpu") -> Features:
    """Wrap a checked array, tensor or sparse matrix of float64 or float32.

    A dense array that is mostly zeros, as one-hot tables are, is stored as CSR on the CPU.
    """
    on_cpu = torch.device(device).type == "cpu"
    if sp.issparse(X):
        if not on_cpu:
            raise ValueError(
                f"sparse X needs device='cpu'; got device={device!r}. Pass X.toarray() to use it."
            )
        return SparseFeatures(sp.csr_array(X))
    # CSR products are faster than dense ones below about a quarter of non-zeros.
    if on_cpu and isinstance(X, np.ndarray) and np.count_nonzero(X) < 0.25 * X.size:
        return SparseFeatures(sp.csr_array(X))
    return dense_features(X, device)


class Penalty(NamedTuple):
    """Half the squared norm of the penalised coefficients, and its gradient."""

    value: Tensor
    gradient: Tensor


class Model(Protocol):
    """The map from parameters w of shape (n_params,) to scores of shape (n, K)."""

    n_params: int
    offsets: Tensor  # positions of the parameters that shift the scores of all rows alike

    def init(self) -> Tensor:
        """Return the starting parameters."""

    def scores(self, w: Tensor, X: Features) -> Tensor:
        """Return scores as in prediction, without an autograd graph."""

    def linearize(self, w: Tensor, X: Features) -> tuple[Tensor, Pullback]:
        """Return scores as in training, and the map of cotangents (n, K) to gradients (n_params,).

        Linear models also map several cotangents, (n, K, k), to (n_params, k).
        """

    def linearize_rows(self, w: Tensor, X: Features) -> tuple[Tensor, ClippedPullback]:
        """Return scores as in training, and a pullback that clips the gradient of each row.

        It maps cotangents c (n, K) and norms C, one or (n,), to sum_i clip(J_i' c_i, C_i).
        """

    def prepared(self, X: Features) -> tuple[Model, Features]:
        """Return a model and features that give the scores of many batches of X at the same w."""

    def penalty(self, w: Tensor) -> Penalty:
        """Return the penalty on coefficients, without intercepts and biases."""

    def attributes(self, w: Tensor) -> dict[str, Any]:
        """Return the attributes of a fitted estimator that hold the model, on the CPU."""

    def restore(self, attributes: Mapping[str, Any]) -> Tensor:
        """Return parameters from the attributes of a fitted estimator, for warm starts."""

    def for_ranking(self) -> Model:
        """Return the model for rankings; :meth:`rescaled` turns its scores into log odds."""

    def rescaled(self, attributes: dict[str, Any], slope: float, offset: float) -> dict[str, Any]:
        """Return attributes of the model whose scores are ``slope * scores + offset``."""

    def update_batch_norm(self, w: Tensor, X: Features) -> None:
        """Recompute the statistics of batch normalisations, if there are any, from these rows."""


def column_variances(X: ColumnStatistics, weight: Tensor, centre: Tensor) -> Tensor:
    """Return column variances, zero for rounding errors; raise ValueError if a square overflows."""
    variance = X.variance(weight, centre)
    if not variance.isfinite().all():
        column = int((~variance.isfinite()).nonzero()[0])
        raise ValueError(f"Column {column} of X is too large for its squares: scale the features.")
    return without_rounding(variance, centre)


def without_rounding(variances: Tensor, means: Tensor) -> Tensor:
    """Set column variances that are only rounding errors to zero."""
    return torch.where(variances > ROUNDING * means**2, variances, torch.zeros_like(variances))


def standard_scale(variances: Tensor) -> Tensor:
    """Return standard deviations of columns; 1 for a constant column."""
    return torch.where(variances > 0, variances, torch.ones_like(variances)).sqrt()


def attribute(attributes: Mapping[str, Any], name: str) -> Any:
    """Look up an attribute of the last fit, for a warm start."""
    if name not in attributes:
        raise ValueError(f"warm_start=True needs a last fit with the same model ({name}).")
    return attributes[name]


def clip_factors(norms: Tensor, max_norm: float | Tensor) -> Tensor:
    """Return factors that scale rows down to `max_norm`; 0 for norms that are not finite."""
    return (max_norm / norms).clamp_max(1.0).nan_to_num(nan=0.0)
