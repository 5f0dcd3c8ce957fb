"""Engines that have the rows of a table: Dask, Ray and Spark.

For a fit they keep objects where the rows are, and apply functions to these objects, which return
sums of tensors and lists of small objects (:class:`Parts`). They schedule, move and repeat work.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import reduce
from importlib import import_module
from operator import add
from typing import Any, TypeVar

# The module of this package for a class of tables, by the first part of its module's name.
_ENGINES = {
    ("dask", "DataFrame"): "dask",
    ("pyspark", "DataFrame"): "spark",
    ("ray", "Dataset"): "ray",
    ("ray", "MaterializedDataset"): "ray",
}


T = TypeVar("T")
# Values that one task adds up: a tree of sums, because the driver would receive all partitions
# otherwise.
_ADDED = 16


def added(values: list[Any], task: Callable[[list[Any]], Any]) -> Any:
    """Return the sum of values along a tree of tasks, each of which adds up some of them."""
    while len(values) > 1:
        starts = range(0, len(values), _ADDED)
        values = [task(values[start : start + _ADDED]) for start in starts]
    return values[0]


def total(*values: Any) -> Any:
    """Return the sum of values; called on a worker."""
    return reduce(add, values)


class Parts(ABC):
    """Objects that an engine keeps where the rows are: one for each partition that has rows.

    Functions travel to them by cloudpickle, with all that they refer to. If a worker is lost, the
    engine computes its objects again, from the rows on.
    """

    @abstractmethod
    def map_parts(self, function: Callable[[Any, Any], Any], each: Sequence[Any]) -> Parts:
        """Return new parts: for object i the result of ``function(object, each[i])``."""

    @abstractmethod
    def sum(self, function: Callable[[Any], T]) -> T:
        """Return the sum of a function of the objects, added up along a tree."""

    @abstractmethod
    def gather(self, function: Callable[[Any], T]) -> list[T]:
        """Return the values of a function of the objects, in the order of the rows."""


class Table(ABC):
    """A table whose rows an engine holds, in partitions that functions see as pandas DataFrames."""

    engine: str
    columns: list[str]

    @abstractmethod
    def parts(self, make: Callable[[Any], Any]) -> Parts:
        """Apply a function to each partition; return the results other than None as parts."""

    @abstractmethod
    def mapped(self, function: Callable[[Any], Any], like: Any, names: Sequence[str]) -> Any:
        """Apply a function to rows lazily; return its values as the engine's kind of column.

        The function returns an array with an entry, or a row, for each row of a DataFrame. `like`
        is such an array without rows, and `names` are for the columns of two-dimensional arrays.
        """

    @abstractmethod
    def column_names(self, values: Any) -> list[str]:
        """Return the names of columns of this table, or an empty list if they are of another."""

    def names(self, parameter: str, value: Any) -> list[str]:
        """Return the names of the columns that a parameter holds, by name or as columns."""
        value = [value] if isinstance(value, str) else value
        try:
            named = isinstance(value, (list, tuple))
            names = list(value) if named else self.column_names(value)
            if names and set(names) <= set(self.columns):
                return names
        except (TypeError, AttributeError, LookupError):  # not columns of this table
            pass
        raise ValueError(
            f"{parameter} must be the name of a column of X, a list of names, or columns of X, "
            f"where X is a table of {self.engine} (its columns are {self.columns}); got "
            f"{value!r}."
        )


def as_table(X: Any) -> Any:
    """Wrap a table of an engine; return anything else unchanged."""
    kind = type(X)
    engine = _ENGINES.get((kind.__module__.partition(".")[0], kind.__name__))
    if engine is None:
        return X
    return import_module(f"fairconstrained.engines.{engine}").table(X)
