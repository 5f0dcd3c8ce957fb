"""Where batches come from: tensors and arrays, data sets that can be indexed, or a loader's stream.

Each gives batches as tuples of tensors and holds no more in memory than it was given and one batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset, TensorDataset, default_collate

Batch = tuple[Tensor, ...]
_CHUNK_ROWS = 1024


class Source:
    """Data that give batches of rows.

    Attributes
    ----------
    n_rows : int
    streams : bool
        Whether the data choose the rows of their batches themselves.
    """

    n_rows: int
    streams = False

    def batch(self, rows: Tensor) -> Batch:
        """Return these rows, or the next ones where they cannot be chosen."""
        raise NotImplementedError

    def chunks(self) -> Iterator[tuple[Tensor, Batch]]:
        """Yield all rows once, about a thousand at a time: their indices, and the rows."""
        for rows in torch.arange(self.n_rows).tensor_split(-(-self.n_rows // _CHUNK_ROWS)):
            yield rows, self.batch(rows)

    def subset(self, rows: Tensor) -> Source:
        """Return a source of these rows only."""
        return _Subset(self, rows)


class _Tensors(Source):
    """Tensors in memory, of equal length; one chunk is all of them."""

    def __init__(self, tensors: Sequence[Tensor]):
        lengths = [len(tensor) for tensor in tensors]
        if len(set(lengths)) != 1 or not lengths[0]:
            raise ValueError(f"data must hold tensors of one length, not zero; got {lengths}.")
        self._tensors = tuple(tensors)
        self.n_rows = lengths[0]

    def batch(self, rows: Tensor) -> Batch:
        return tuple(tensor[rows] for tensor in self._tensors)

    def chunks(self) -> Iterator[tuple[Tensor, Batch]]:
        yield torch.arange(self.n_rows), self._tensors


class _Indexed(Source):
    """A data set with ``len`` and ``[i]``, whose items are collated as a loader does.

    A batch is one call if the data set has ``__getitems__``, as a loader takes it.
    """

    def __init__(self, dataset: Any):
        self._dataset = dataset
        self.n_rows = len(dataset)
        if not self.n_rows:
            raise ValueError("data has no rows.")

    def batch(self, rows: Tensor) -> Batch:
        index = rows.tolist()
        if hasattr(self._dataset, "__getitems__"):
            return _as_tuple(default_collate(self._dataset.__getitems__(index)))
        return _as_tuple(default_collate([self._dataset[i] for i in index]))


class _Subset(Source):
    """Some rows of a source that can be indexed."""

    def __init__(self, source: Source, rows: Tensor):
        self._source = source
        self._rows = rows
        self.n_rows = len(rows)

    def batch(self, rows: Tensor) -> Batch:
        return self._source.batch(self._rows[rows])


class _Stream(Source):
    """An iterable of batches, such as a ``DataLoader``, which is iterated again when it ends."""

    streams = True

    def __init__(self, loader: Iterable[Any]):
        self._loader = loader
        self._pass: Iterator[Any] = iter(())
        self.n_rows = sum(len(rows) for rows, _ in self.chunks())

    def batch(self, rows: Tensor) -> Batch:
        batch = next(self._pass, None)
        if batch is None:
            self._pass = iter(self._loader)
            batch = next(self._pass, None)
        if batch is None:
            raise self._dry()
        return _as_tuple(batch)

    def chunks(self) -> Iterator[tuple[Tensor, Batch]]:
        seen = 0
        for batch in self._loader:
            rows = _as_tuple(batch)
            yield torch.arange(seen, seen + len(rows[0])), rows
            seen += len(rows[0])
        if not seen:
            raise self._dry()

    def _dry(self) -> ValueError:
        return ValueError(
            "data ran dry: it gave no batch when it was iterated again. Give a loader that starts "
            "anew with each iteration, such as torch.utils.data.DataLoader, not a generator."
        )


def as_source(data: Any, dtype: torch.dtype) -> Source:
    """Return the source for a user's data; numbers of numpy arrays become `dtype`.

    Raises
    ------
    ValueError
        If it is no tensors, data set or loader, or has no rows.
    """
    if isinstance(data, TensorDataset):
        return _Tensors(data.tensors)
    if isinstance(data, (tuple, list)) and data and all(map(_is_array, data)):
        return _Tensors([_as_tensor(array, dtype) for array in data])
    if isinstance(data, Dataset) and hasattr(data, "__getitem__") and hasattr(data, "__len__"):
        return _Indexed(data)
    if isinstance(data, Iterable) and not isinstance(data, (Tensor, tuple, list, str, dict)):
        return _Stream(data)
    raise ValueError(
        "data must be a tuple of tensors or arrays, a data set that can be indexed, or an iterable "
        f"of batches such as torch.utils.data.DataLoader; got {type(data).__name__}."
    )


def _is_array(column: Any) -> bool:
    return isinstance(column, (Tensor, np.ndarray))


def _as_tensor(column: Tensor | NDArray[Any], dtype: torch.dtype) -> Tensor:
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
