"""Sources of batches: tensors and arrays, data sets that can be indexed, and streams of loaders.

Each returns batches as tuples of tensors, and keeps no more in memory than its data and one batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, TensorDataset, default_collate

from fairconstrained.numerics import CACHE_ROWS

Batch = tuple[Tensor, ...]


class Source:
    """Rows that can be selected: `fetch` returns the batch of some of the indices in `rows`.

    If all rows are in memory, they are one chunk, `whole`.
    """

    streams = False  # whether the data choose the rows of their batches themselves

    def __init__(self, fetch: Callable[[Tensor], Any], rows: Tensor, whole: Batch = ()):
        self._fetch = fetch
        self._rows = rows
        self._whole = whole
        self.n_rows = len(rows)

    def batch(self, rows: Tensor) -> Batch:
        """Return the rows at given places, or from a stream the next rows."""
        return _as_tuple(self._fetch(self._rows[rows]))

    def chunks(self) -> Iterator[tuple[Tensor, Batch]]:
        """Yield all rows once, about a thousand at a time: their indices, and the rows."""
        if self._whole:
            yield torch.arange(self.n_rows), self._whole
            return
        for rows in torch.arange(self.n_rows).tensor_split(-(-self.n_rows // CACHE_ROWS)):
            yield rows, self.batch(rows)

    def subset(self, rows: Tensor) -> Source:
        """Return a source of a subset of the rows."""
        return Source(self._fetch, self._rows[rows])


class _Stream(Source):
    """An iterable of batches, such as a ``DataLoader``, which is iterated again when it ends."""

    streams = True

    def __init__(self, loader: Iterable[Any]):
        self._loader = loader
        self._batches = (batch for _ in count() for _, batch in self.chunks())
        self.n_rows = sum(len(rows) for rows, _ in self.chunks())

    def batch(self, rows: Tensor) -> Batch:
        return next(self._batches)

    def chunks(self) -> Iterator[tuple[Tensor, Batch]]:
        seen = 0
        for batch in self._loader:
            rows = _as_tuple(batch)
            yield torch.arange(seen, seen + len(rows[0])), rows
            seen += len(rows[0])
        if not seen:
            raise ValueError(
                "data ran dry: it gave no batch when it was iterated again. Give a loader that "
                "starts over with each iteration, such as torch.utils.data.DataLoader, not a "
                "generator."
            )


def as_source(data: Any, dtype: torch.dtype) -> Source:
    """Return the source for a user's data; floats of numpy arrays become `dtype`."""
    if isinstance(data, TensorDataset):
        data = data.tensors
    arrays = (Tensor, np.ndarray)
    if isinstance(data, (tuple, list)) and data and all(isinstance(c, arrays) for c in data):
        tensors = tuple(_as_tensor(array, dtype) for array in data)
        lengths = [len(tensor) for tensor in tensors]
        if len(set(lengths)) != 1 or not lengths[0]:
            raise ValueError(f"data must hold tensors of one length, not zero; got {lengths}.")
        return Source(TensorDataset(*tensors).__getitem__, torch.arange(lengths[0]), tensors)
    if isinstance(data, Dataset) and hasattr(data, "__getitem__") and hasattr(data, "__len__"):
        if not len(data):
            raise ValueError("data has no rows.")
        # As a loader does: by one call, if the data set has a method for several rows.
        items = getattr(data, "__getitems__", lambda rows: [data[i] for i in rows])
        return Source(lambda rows: default_collate(items(rows.tolist())), torch.arange(len(data)))
    if isinstance(data, Iterable) and not isinstance(data, (Tensor, tuple, list, str, dict)):
        return _Stream(data)
    raise ValueError(
        "data must be a tuple of tensors or arrays, a data set that can be indexed, or an iterable "
        f"of batches such as torch.utils.data.DataLoader; got {type(data).__name__}."
    )


def _as_tensor(column: Any, dtype: torch.dtype) -> Tensor:
    if isinstance(column, Tensor):
        return column
    if column.dtype.kind not in "biuf":
        raise ValueError(
            f"data must hold numbers; got an array of dtype {column.dtype}. Encode it first."
        )
    # numpy's numbers are float64 unless someone chose otherwise, and torch does not mix the two.
    tensor = torch.from_numpy(column if column.flags.writeable else column.copy())
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


def _as_tuple(batch: Any) -> Batch:
    rows = tuple(batch) if isinstance(batch, (tuple, list)) else (batch,)
    if not rows or not all(isinstance(tensor, Tensor) for tensor in rows):
        raise ValueError(
            f"data must give batches that are tuples of tensors; got {type(batch).__name__}."
        )
    return rows
