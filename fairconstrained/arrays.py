"""Arrays of other libraries as numpy arrays; rows and columns of any table; checks of samples."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import _safe_indexing
from sklearn.utils import check_array as check_numpy_array

Array = NDArray[Any]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
# The workers of torch.distributed that have the other samples; None if these are all samples.
CHOSEN_WORKERS: ContextVar[Any] = ContextVar("chosen_workers", default=None)


def as_numpy(values: Any) -> Any:
    """Tensors on any device as numpy arrays, and anything else as it is.

    Labels, groups, weights and predictions are small beside X: all that is made of them is made in
    numpy, whatever they come in.

    Examples
    --------
    >>> import torch
    >>> from fairconstrained.arrays import as_numpy
    >>> as_numpy(torch.tensor([0, 1])), as_numpy([0, 1])
    (array([0, 1]), [0, 1])
    """
    return values.detach().cpu().numpy() if hasattr(values, "detach") else values


def check_array(values: Any, **options: Any) -> NDArray[Any]:
    """scikit-learn's ``check_array`` of tensors, too; a numpy array comes out."""
    return check_numpy_array(as_numpy(values), **options)  # type: ignore[no-any-return]


def rows_of(values: Any, rows: NDArray[Any] | slice) -> Any:
    """Some rows of a table, an array or a list; of a dict those of its columns.

    What has no entry for each row, such as a number or a text, stays as it is.

    Parameters
    ----------
    values : object
    rows : ndarray or slice
        Positions, or a mask.

    Examples
    --------
    >>> import numpy as np
    >>> from fairconstrained.arrays import rows_of
    >>> rows_of({"sex": ["f", "m", "f"], "weight": 2.0}, np.array([0, 1]))
    {'sex': ['f', 'm'], 'weight': 2.0}
    """
    if isinstance(values, dict):
        return {name: rows_of(column, rows) for name, column in values.items()}
    whole = isinstance(values, (str, bytes)) or not hasattr(values, "__len__")
    return values if whole else _safe_indexing(values, rows)


def read_columns(X: Any, column: Any) -> dict[str, Any]:
    """Columns of X by their places in the list `column`.

    Parameters
    ----------
    X : pandas or polars DataFrame, array, sparse matrix or nested list
    column : column name, position, or list of them
        An integer that is no column's name is a position.

    Raises
    ------
    ValueError
        If X has no such column.

    Examples
    --------
    >>> from fairconstrained.arrays import other_columns, read_columns
    >>> X = [[0, 7], [1, 8]]
    >>> read_columns(X, 1), other_columns(X, 1).tolist()
    ({'0': array([7, 8], dtype=object)}, [[0], [1]])
    """
    X = _table(X)
    return {str(i): _values(X, place) for i, place in enumerate(_places(X, column))}


def other_columns(X: Any, column: Any) -> Any:
    """X without these columns."""
    X = _table(X)
    left_out = _places(X, column)
    kept = [place for place in range(X.shape[1]) if place not in left_out]
    return X[[X.columns[place] for place in kept]] if hasattr(X, "columns") else X[:, kept]


def _table(X: Any) -> Any:
    return X if hasattr(X, "shape") else np.asarray(X, dtype=object)


def _places(X: Any, column: Any) -> list[int]:
    keys = column if isinstance(column, list) else [column]
    return [_place(list(getattr(X, "columns", ())), X.shape[1], key) for key in keys]


def _place(names: list[Any], n_columns: int, key: Any) -> int:
    if key in names:
        return names.index(key)
    try:
        return int(range(n_columns)[key])
    except (TypeError, IndexError) as error:
        raise ValueError(
            f"column must name a column of X or be its position; got {key!r}, and X has the "
            f"columns {names or f'0 to {n_columns - 1}'}."
        ) from error


def _values(X: Any, place: int) -> Any:
    if hasattr(X, "columns"):
        return X[X.columns[place]]
    values = X[:, [place]]
    return (values.toarray() if hasattr(values, "toarray") else values).reshape(-1)


def check_all_samples(method: str, instead: str) -> None:
    """Raise ValueError where the samples given are one worker's part of them.

    Examples
    --------
    >>> from fairconstrained.arrays import check_all_samples
    >>> check_all_samples("Search.fit", "search on one worker.")
    """
    workers = CHOSEN_WORKERS.get()
    if workers is not None and workers.size > 1:
        raise ValueError(f"{method} must be called outside of sharded_rows: {instead}")


def check_samples(**inputs: Any) -> None:
    """Refuse masked values, and indices that put the same samples into different orders.

    Inputs are taken by position, as in scikit-learn. pandas aligns by index instead, so an input
    whose index holds the labels of another one in a different order means other samples than those
    at its positions. It is refused, because either reading would be a guess. Indices with
    different labels say nothing about the order.

    Parameters
    ----------
    **inputs : array-like or dict of array-like
        By the names that the user knows. None is allowed.

    Raises
    ------
    ValueError
        The message names the input.

    Examples
    --------
    >>> import pandas as pd
    >>> from fairconstrained.arrays import check_samples
    >>> y = pd.Series([0, 1, 1])
    >>> check_samples(y=y, sensitive_features=pd.Series(["a", "b", "b"], index=[7, 8, 9]))
    >>> try:
    ...     check_samples(y=y, sensitive_features=pd.Series(["a", "b", "b"], index=[2, 1, 0]))
    ... except ValueError as error:
    ...     print(str(error).split(":")[0])
    sensitive_features has the samples of y in another order
    """
    first: tuple[str, Any] | None = None
    columns = [
        (name, column)
        for name, values in inputs.items()
        for column in (values.values() if isinstance(values, dict) else [values])
    ]
    for name, values in columns:
        if np.ma.is_masked(values):
            raise ValueError(
                f"{name} has masked values, whose data would be used as if they were not masked. "
                "Drop these samples or fill the values (numpy.ma.filled)."
            )
        index = getattr(values, "index", None)
        if not hasattr(index, "equals"):  # not from pandas; lists have a method `index`
            continue
        first = first or (name, index)
        if _another_order(index, first[1]):
            raise ValueError(
                f"{name} has the samples of {first[0]} in another order: both indices hold the "
                f"same labels. Inputs are taken by position: give {name}.loc[{first[0]}.index], "
                "or arrays without indices (to_numpy()) if the positions are right."
            )


def _another_order(index: Any, known: Any) -> bool:
    if len(index) != len(known) or index.equals(known):
        return False
    return bool(index.isin(known).all() and known.isin(index).all())
