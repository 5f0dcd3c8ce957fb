"""Datasets of Ray: objects are in its object store, and tasks run where the objects are."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from itertools import compress
from typing import Any

import pandas as pd
import ray

from fairconstrained.engines import Parts, Table, added, total


class RayTable(Table):
    """A ``ray.data.Dataset``."""

    engine = "Ray"

    def __init__(self, dataset: Any):
        self.dataset = dataset
        self.columns = list(dataset.columns() or ())

    def parts(self, make: Callable[[Any], Any]) -> Parts:
        options = self.dataset.context.execution_options
        preserved, options.preserve_order = options.preserve_order, True  # else blocks come as read
        try:
            made = RayParts(_applied(make, self.dataset.to_pandas_refs()))
        finally:
            options.preserve_order = preserved
        present = made.gather(lambda part: part is not None)
        return RayParts(compress(made.refs, present))

    def mapped(self, function: Callable[[Any], Any], like: Any, names: Sequence[str]) -> Any:
        def apply(frame: Any) -> Any:
            values = function(frame) if len(frame) else like
            return pd.DataFrame(values, columns=["prediction"] if like.ndim == 1 else list(names))

        return self.dataset.map_batches(apply, batch_format="pandas", batch_size=None)

    def column_names(self, values: Any) -> list[str]:
        return []  # a Dataset has names of columns, and no objects for them


class RayParts(Parts):
    """Objects in the store of Ray, which computes lost objects again."""

    def __init__(self, refs: Iterable[Any]):
        self.refs = list(refs)

    def map_parts(self, function: Callable[[Any, Any], Any], each: Sequence[Any]) -> Parts:
        return RayParts(_applied(function, self.refs, each))

    def sum(self, function: Callable[[Any], Any]) -> Any:
        values = _applied(function, self.refs)
        return ray.get(added(values, lambda some: _total.remote(*some)))

    def gather(self, function: Callable[[Any], Any]) -> list[Any]:
        return list(ray.get(_applied(function, self.refs)))


def _applied(function: Callable[..., Any], *lists: Sequence[Any]) -> list[Any]:
    """Start tasks that apply a function, which is stored once, to the entries of lists."""
    sent = ray.put(function)
    return [_called.remote(sent, *entries) for entries in zip(*lists, strict=True)]


def _call(function: Callable[..., Any], *entries: Any) -> Any:
    with warnings.catch_warnings():  # of torch: objects in the store are read-only, and only read
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return function(*entries)


_total, _called = ray.remote(total), ray.remote(_call)

table = RayTable
