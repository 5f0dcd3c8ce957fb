"""Types of arrays, arrays of other libraries as numpy arrays, rows and columns of any table."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import _safe_indexing
from sklearn.utils import check_array as check_numpy_array

Array = NDArray[Any]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


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
