"""Engines that have the rows of a table: Dask, Ray and Spark.

A fit needs of them that they keep objects where the rows are, and apply functions to these: sums of
tensors, and lists of small objects (:class:`Parts`). They schedule, move and repeat the work.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from fairconstrained.engines.base import Parts as Parts
from fairconstrained.engines.base import Table as Table

# The module of this package for a class of tables, by the first part of its module's name.
_ENGINES = {
    ("dask", "DataFrame"): "dask",
    ("pyspark", "DataFrame"): "spark",
    ("ray", "Dataset"): "ray",
    ("ray", "MaterializedDataset"): "ray",
}


def as_table(X: Any) -> Any:
    """Wrap a table of an engine; return anything else as it is."""
    kind = type(X)
    engine = _ENGINES.get((kind.__module__.partition(".")[0], kind.__name__))
    if engine is None:
        return X
    return import_module(f"fairconstrained.engines.{engine}").table(X)
