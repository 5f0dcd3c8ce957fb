"""DataFrames of Spark: objects are in persisted RDDs, and functions run on its executors."""

from __future__ import annotations

import gc
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from operator import add
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import Column
from pyspark.sql.functions import pandas_udf, struct

from fairconstrained.engines import Parts, Table

# Types of Spark by the kind of an array; all others are text.
_TYPES = {"f": "double", "i": "long", "u": "long", "b": "boolean"}


class SparkTable(Table):
    """A DataFrame of Spark."""

    engine = "Spark"

    def __init__(self, frame: Any):
        self.frame = frame
        self.columns = list(frame.columns)

    def parts(self, make: Callable[[Any], Any]) -> Parts:
        def apply(batches: Iterable[Any]) -> Iterator[Any]:
            tables = list(batches)
            part = make(pa.Table.from_batches(tables).to_pandas()) if tables else None
            if part is not None:
                yield pa.RecordBatch.from_pydict({"part": [pickle.dumps(part)]})

        made = self.frame.mapInArrow(apply, "part binary").rdd
        return SparkParts(made.mapPartitionsWithIndex(_numbered))

    def mapped(self, function: Callable[[Any], Any], like: Any, names: Sequence[str]) -> Any:
        kinds, one = _TYPES.get(like.dtype.kind, "string"), like.ndim == 1
        kind = kinds if one else ", ".join(f"`{name}` {kinds}" for name in names)

        def apply(frame: pd.DataFrame) -> Any:
            values = function(frame) if len(frame) else like
            return pd.Series(values) if one else pd.DataFrame(values, columns=list(names))

        # Spark reads the kind of the function off its annotations, which are text in this module.
        apply.__annotations__ = {"frame": pd.DataFrame, "return": [pd.DataFrame, pd.Series][one]}
        return pandas_udf(apply, kind)(struct(*self.columns))

    def column_names(self, values: Any) -> list[str]:
        try:
            chosen = self.frame.select(values) if isinstance(values, Column) else values
            names = list(chosen.columns)
            same = self.frame.select(names).sameSemantics(chosen)
        except PySparkException:  # columns of another table
            return []
        return names if same else []


class SparkParts(Parts):
    """Objects of a persisted RDD, each with the index of its partition."""

    def __init__(self, pairs: Any):
        self.pairs = pairs.persist(StorageLevel.MEMORY_AND_DISK)
        self.places = self.pairs.keys().collect()  # computes them

    def map_parts(self, function: Callable[[Any, Any], Any], each: Sequence[Any]) -> Parts:
        each_pair = dict(zip(self.places, each, strict=True))
        parts = SparkParts(
            self.pairs.map(lambda pair: (pair[0], _called(function, pair[1], each_pair[pair[0]])))
        )
        self.pairs.unpersist()
        return parts

    def sum(self, function: Callable[[Any], Any]) -> Any:
        return self.pairs.values().map(partial(_called, function)).treeReduce(add)

    def gather(self, function: Callable[[Any], Any]) -> list[Any]:
        return list(self.pairs.values().map(partial(_called, function)).collect())


def _called(function: Callable[..., Any], *entries: Any) -> Any:
    _freeze()
    return function(*entries)


@cache
def _freeze() -> None:
    """Exempt torch's objects from the collection of garbage after each task, which takes 0.1 s."""
    gc.freeze()


def _numbered(index: int, rows: Iterable[Any]) -> Iterator[tuple[int, Any]]:
    return ((index, pickle.loads(row.part)) for row in rows)


table = SparkTable
