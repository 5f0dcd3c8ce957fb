"""Sensitive features as one group index per row.

Estimators, metrics and splitters accept the same inputs because all of them call
:func:`encode_groups`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairconstrained.arrays import as_numpy


class Groups(NamedTuple):
    """The group of each row: its position in the sorted labels, or -1 where it is not known."""

    codes: NDArray[np.int64]  # (n,)
    labels: NDArray[Any]  # (n_groups,): values, or tuples of the values of several columns

    @property
    def known(self) -> NDArray[np.bool_]:
        """Whether the group of each row is known, (n,)."""
        return self.codes >= 0


def encode_groups(sensitive_features: Any, n_samples: int | None = None) -> Groups:
    """Cross the columns of `sensitive_features` into one group per combination that occurs.

    Parameters
    ----------
    sensitive_features : array-like of shape (n_samples,) or (n_samples, n_columns)
        A list, an array, a Series or DataFrame (pandas, polars or dask), an array or table of
        pyarrow, or a dict of columns. Values are strings, numbers or booleans. A group is not known
        if a value is missing: None, NaN or pandas.NA.
    n_samples : int, optional
        Number of samples in X and y, checked if given.

    Returns
    -------
    Groups

    Raises
    ------
    ValueError
        If the input is a single text, or not one- or two-dimensional, if its number of rows is not
        `n_samples`, or if values of different types have the same name, such as 1 and "1".

    Examples
    --------
    >>> from fairconstrained.groups import encode_groups
    >>> encode_groups(["b", "a", "b"]).codes
    array([1, 0, 1])
    >>> encode_groups([["f", 1], ["m", 0], ["f", 1]]).labels
    array([('f', 1), ('m', 0)], dtype=object)
    >>> encode_groups(["b", None, "a"]).codes
    array([ 1, -1,  0])
    """
    columns = list(map(_to_numpy, columns_of(sensitive_features).values()))
    if not columns:
        raise ValueError("sensitive_features has no columns; give at least one.")
    if len(set(map(np.shape, columns))) > 1 or columns[0].ndim != 1:
        shapes = ", ".join(str(column.shape) for column in columns)
        raise ValueError(f"sensitive_features has columns of different shapes: {shapes}.")
    n_rows = len(columns[0])
    if n_samples is not None and n_rows != n_samples:
        raise ValueError(
            f"sensitive_features has {n_rows} rows, but X and y have {n_samples}. Give one row "
            "per sample, in the order of X (resampling steps of a pipeline break this order)."
        )
    levels, codes = zip(*map(_unique, columns), strict=True)
    if len(columns) == 1:
        return Groups(codes[0], levels[0])
    crossed = np.stack(codes, axis=1)
    known: NDArray[np.bool_] = np.all(crossed >= 0, axis=1)
    seen, index = np.unique(crossed[known], axis=0, return_inverse=True)
    of_rows = np.where(known, 0, -1)
    of_rows[known] = index.reshape(-1)
    labels = np.empty(len(seen), dtype=object)
    labels[:] = [
        tuple(_plain(level[i]) for level, i in zip(levels, row, strict=True)) for row in seen
    ]
    return Groups(of_rows, labels)


def recoded(codes: NDArray[Any], places: Any) -> NDArray[np.int64]:
    """Codes after each label has got another place; -1 stays.

    >>> recoded(np.array([0, -1, 1]), [5, 3])
    array([ 5, -1,  3])
    """
    moved: NDArray[np.int64] = np.append(places, -1).astype(np.int64)[codes]
    return moved


def within_strata(sensitive_features: Any, control_features: Any) -> tuple[dict[Any, Any], int]:
    """Columns of groups and of strata as one table, to be crossed; and the number of the latter.

    >>> within_strata(["a", "b"], ["old", "young"])
    ({'sensitive_features 0': ['a', 'b'], 'control_features 0': ['old', 'young']}, 1)
    """
    tables = {"sensitive_features": sensitive_features, "control_features": control_features}
    columns = {
        f"{name} {key}": column
        for name, table in tables.items()
        for key, column in columns_of(table, name).items()
    }
    lengths = [len(column) for column in columns.values()]
    if lengths[-1] != lengths[0]:
        raise ValueError(
            f"control_features has {lengths[-1]} rows, but sensitive_features has {lengths[0]}."
        )
    return columns, sum(name.startswith("control_features") for name in columns)


def columns_of(table: Any, name: str = "sensitive_features") -> dict[Any, Any]:
    """The columns of a table, an array or a list, by their names or positions; errors say `name`.

    >>> columns_of([["f", 1], ["m", 0]])
    {0: array(['f', 'm'], dtype=object), 1: array([1, 0], dtype=object)}
    """
    if isinstance(table, (str, bytes)):
        raise ValueError(
            f"{name} must hold the group of each sample; got the single text "
            f"{table!r}. Give the column itself, such as X[{table!r}]."
        )
    # Columns of Arrow become Python's types.
    table = computed(computed(table), "to_pydict", "to_pylist")
    if isinstance(table, dict):
        return table
    if hasattr(table, "columns"):  # a DataFrame, whose columns keep their dtypes
        return dict(zip(table.columns, map(table.__getitem__, table.columns), strict=True))
    array = _to_numpy(table)
    if array.ndim not in (1, 2):
        raise ValueError(
            f"{name} must have one or two dimensions; got {array.ndim}. Give one "
            "value, or one row of values, per sample."
        )
    return {0: table} if array.ndim == 1 else dict(enumerate(array.T))


def group_name(label: Any) -> str:
    """Name of a group in messages and plots; the values of a combination are joined by ' & '."""
    return " & ".join(map(str, label)) if isinstance(label, tuple) else str(label)


def computed(values: Any, *methods: str) -> Any:
    """Compute columns that are yet to be computed, by the first method that exists."""
    for method in methods or ("compute", "collect"):  # of dask, polars
        if hasattr(type(values), method):  # a table may have a column of this name
            return getattr(values, method)()
    return values


def _to_numpy(values: Any) -> NDArray[Any]:
    array = values.to_numpy() if hasattr(values, "to_numpy") else as_numpy(values)
    try:
        array = np.asarray(array)
        if array.dtype.kind in "US" and not hasattr(values, "dtype"):
            # numpy turns a nested list of mixed types into strings; this keeps the values.
            array = np.asarray(values, dtype=object)
    except ValueError as error:
        raise ValueError(
            "sensitive_features is ragged: give one row per sample with the same number of "
            "values in each."
        ) from error
    return array


def _unique(column: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Sorted values, and the position of that of each row; -1 where it is missing."""
    known: NDArray[np.bool_] = np.ones(len(column), dtype=bool)
    if column.dtype.kind in "fcmM":
        known = column == column
    elif column.dtype.kind == "O":
        known = ~np.fromiter(map(_is_missing, column), bool, len(column))
    column = column[known]
    if column.dtype.kind == "O" and all(isinstance(value, str) for value in column):
        column = column.astype(str)
    try:
        levels, codes = np.unique(column, return_inverse=True)
    except TypeError:  # values of different types cannot be sorted
        first: dict[str, Any] = {}
        for value in column:
            if (other := first.setdefault(str(value), value)) != value:
                raise ValueError(
                    "sensitive_features has groups of different types with the same name: "
                    f"{other!r} and {value!r}. Convert the column to one type."
                ) from None
        levels, codes = np.unique(column.astype(str), return_inverse=True)
    of_rows = np.where(known, 0, -1)
    of_rows[known] = codes.reshape(-1)
    return levels, of_rows


def _is_missing(value: Any) -> bool:
    equals_itself = value == value  # False for NaN, and pandas.NA for pandas.NA
    return value is None or (equals_itself is not True and equals_itself is not np.True_)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
