"""Arrays of other libraries as numpy arrays; rows and columns of any table; checks of numbers."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from numbers import Real
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
    """Return tensors on any device as numpy arrays, and anything else unchanged."""
    return values.detach().cpu().numpy() if hasattr(values, "detach") else values


def check_array(values: Any, **options: Any) -> NDArray[Any]:
    """Run scikit-learn's ``check_array``, on tensors too; return a numpy array."""
    return check_numpy_array(as_numpy(values), **options)  # type: ignore[no-any-return]


def rows_of(values: Any, rows: NDArray[Any] | slice) -> Any:
    """Return rows, by positions or a mask, of a table, an array, a list, or the columns of a dict.

    Values without an entry for each row, such as numbers and texts, stay as they are.
    """
    if isinstance(values, dict):
        return {name: rows_of(column, rows) for name, column in values.items()}
    values = splittable(values)
    whole = isinstance(values, (str, bytes)) or not hasattr(values, "__len__")
    return values if whole else _safe_indexing(values, rows)


def splittable(values: Any) -> Any:
    """Return columns that scikit-learn can index: computed, and bare arrays of pandas as numpy."""
    values = computed(values)
    is_pandas = type(values).__module__.partition(".")[0] == "pandas"
    whole = hasattr(values, "iloc") or hasattr(getattr(values, "dtype", None), "categories")
    bare = is_pandas and hasattr(values, "to_numpy") and not whole
    return values.to_numpy() if bare else values


def computed(values: Any, *methods: str) -> Any:
    """Compute a lazy table or column by the first method it has; return others as they are."""
    for method in methods or ("compute", "collect"):  # of dask, polars
        if hasattr(type(values), method):  # a table may have a column of this name
            return getattr(values, method)()
    return values


def read_columns(X: Any, column: Any) -> dict[str, Any]:
    """Return columns of a table X by their names or positions, in a dict with keys "0", "1", ..."""
    X = X if hasattr(X, "shape") else np.asarray(X, dtype=object)
    return {str(i): column_at(X, place) for i, place in enumerate(_places(X, column))}


def other_columns(X: Any, column: Any) -> Any:
    """Return a table X without the columns at these names or positions."""
    X = X if hasattr(X, "shape") else np.asarray(X, dtype=object)
    left_out = _places(X, column)
    kept = [place for place in range(X.shape[1]) if place not in left_out]
    return X[[X.columns[place] for place in kept]] if hasattr(X, "columns") else X[:, kept]


def _places(X: Any, column: Any) -> list[int]:
    names, n_columns = list(getattr(X, "columns", ())), X.shape[1]
    places = []
    for key in column if isinstance(column, list) else [column]:
        try:
            # Positions may count from the end; range raises the error for all others.
            places.append(names.index(key) if key in names else int(range(n_columns)[key]))
        except (TypeError, IndexError) as error:
            raise ValueError(
                f"column must name a column of X or be its position; got {key!r}, and X has the "
                f"columns {names or f'0 to {n_columns - 1}'}."
            ) from error
    return places


def column_at(X: Any, place: int) -> Any:
    """Return a column of a table or an array by its position."""
    if hasattr(X, "column_names"):  # Arrow, whose ``columns`` are not their names
        return X.column(place)
    if hasattr(X, "columns"):
        return X[X.columns[place]]
    values = X[:, [place]]
    return (values.toarray() if hasattr(values, "toarray") else values).reshape(-1)


def bisected(holds: Callable[[Any], Any], near: Any, far: Any, n_halvings: int) -> tuple[Any, Any]:
    """Bisect one or several intervals; return the ends where `holds` is true and where not."""
    for _ in range(n_halvings):
        middle = 0.5 * (near + far)
        # All intervals at once: metrics bisect for every group and event.
        inside = holds(middle)
        near, far = np.where(inside, middle, near)[()], np.where(inside, far, middle)[()]
    return near, far


def made_up_like(X: Any, n_rows: int) -> Any:
    """Make up rows with the columns and types of X, which are public, but none of its entries."""
    rng = np.random.default_rng(0)
    if not hasattr(X, "iloc"):
        rows = 3.0 * rng.normal(size=(n_rows, np.shape(X)[1]))
        return type(X)(rows) if hasattr(X, "toarray") else rows.astype(getattr(X, "dtype", float))
    table = X.iloc[:0].reindex(range(n_rows))
    for name in X.columns:
        dtype = X[name].dtype
        values: Any = 3.0 * rng.normal(size=n_rows)
        if hasattr(dtype, "categories"):
            values = rng.choice(dtype.categories, n_rows)
        elif dtype_kind(X[name]) == "O":
            values = ["a"] * n_rows
        table[name] = table[name].__class__(values, index=table.index).astype(dtype)
    return table


def dtype_kind(values: Any) -> str:
    """Return the kind of the dtype, "O" for values without one."""
    return str(getattr(getattr(values, "dtype", None), "kind", "O"))


def is_number(value: Any, kind: type = Real) -> bool:
    """Return whether a value is a number of this kind, but not a boolean."""
    return isinstance(value, kind) and not isinstance(value, bool)


def numbers_in(values: Any) -> Floats:
    """Return numbers as an array, or an empty array if the values are not numbers."""
    try:
        return np.asarray(values, dtype=float)
    except (TypeError, ValueError):
        return np.empty(0)


def check_number(name: str, value: Any, allowed: str, holds: Callable[[float], Any]) -> float:
    """Return a number as a float; raise ValueError unless it is one that `holds` accepts."""
    if not is_number(value) or not holds(float(value)):
        raise ValueError(f"{name} must be {allowed}; got {value!r}.")
    return float(value)


def check_confidence(confidence: Any) -> None:
    """Raise ValueError unless the confidence level is strictly between 0 and 1."""
    check_number("confidence", confidence, "a number between 0 and 1", lambda c: 0 < c < 1)


def check_has(name: str, estimator: Any, *methods: str) -> None:
    """Raise ValueError unless `estimator` is an instance, not a class, with one of the methods."""
    if isinstance(estimator, type):
        raise ValueError(f"{name} is a class; give an object of it, {estimator.__name__}().")
    if not any(hasattr(estimator, method) for method in methods):
        raise ValueError(f"{name} must have a method {' or '.join(methods)}; got {estimator!r}.")


def in_rows(count: float, thousands: str = "") -> str:
    """Format a number of rows: "1 row", "1234 rows", or "1,234 rows" with a thousands separator."""
    return f"{count:{thousands}.0f} row{'s' * int(count != 1)}"


def check_all_samples(method: str, instead: str) -> None:
    """Raise ValueError inside of ``sharded_rows``, where each worker has a part of the samples."""
    workers = CHOSEN_WORKERS.get()
    if workers is not None and workers.size > 1:
        raise ValueError(f"{method} must be called outside of sharded_rows: {instead}")
