"""Columns of X that are no numbers, named before scikit-learn fails to convert them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from fairconstrained.arrays import column_at, dtype_kind
from fairconstrained.inputs.values import kind_of

_WAYS_OUT = {
    "text": "texts as indicators of their values, by OneHotEncoder in a pipeline or as `model`",
    "bytes": "bytes as texts, by decode",
    "dates": "dates as numbers, such as the days since one of them",
    "periods": "periods as numbers, such as their year",
    "times of day": "times of day as numbers, such as their hours",
    "lengths of time": "lengths of time as numbers, such as their days",
}
_MISSING = {"float", "NoneType", "NAType", "NaTType"}  # types of missing values


def check_numbers(X: Any) -> None:
    """Raise ValueError if a column of X does not hold real numbers; no entry is quoted."""
    wrong = _not_real(X)
    if not wrong:
        return
    listed = ", ".join(f"{name!r} ({', '.join(types)})" for name, types in wrong.items())
    message = (
        f"X must hold real numbers with epsilon, and these columns do not: {listed}. Their "
        "entries are not quoted, because they are protected."
    )
    # scikit-learn's words and types of errors, which its checks of estimators look for.
    if dtype_kind(X) == "c":
        raise ValueError(f"Complex data not supported: {message}")
    if any(
        isinstance(entry, Collection)
        for types in wrong.values()
        for entry in types.values()
        if not isinstance(entry, str)
    ):
        raise TypeError(f"An argument must be a string or a number: {message}")
    raise ValueError(message)


def refuse_texts_and_dates(X: Any) -> None:
    """Raise ValueError if X has texts, dates or lengths of time; no entry is quoted."""
    if words := _texts_and_dates(X):
        raise ValueError(f"X must hold numbers; {words}")


@contextmanager
def naming_texts_and_dates(X: Any) -> Iterator[None]:
    """Name the columns of texts and dates that a classifier could not convert to numbers."""
    try:
        yield
    except (TypeError, ValueError) as error:
        fails = isinstance(error, TypeError) or "convert" in str(error)
        if fails and (words := _texts_and_dates(X)):
            raise ValueError(f"{error} (X: {words})") from error
        raise


def _texts_and_dates(X: Any) -> str:
    """Name the columns of texts, dates and lengths of time, and the ways out; "" without any."""
    kinds = {}
    for name, types in _not_real(X).items():
        others = [kind_of(entry) for key, entry in types.items() if key not in _MISSING]
        others = [kind for kind in others if kind != "numbers"]
        if others and set(others) <= _WAYS_OUT.keys():
            kinds[name] = others[0]
    if not kinds:
        return ""
    listed = "; ".join(f"{kind} in the column {name!r}" for name, kind in kinds.items())
    ways = "; ".join(_WAYS_OUT[kind] for kind in dict.fromkeys(kinds.values()))
    return f"it has {listed}. Give {ways}."


def _not_real(X: Any) -> dict[Any, dict[str, Any]]:
    """Return the columns that are no real numbers, with an entry of each type in them."""
    if hasattr(X, "detach") or dtype_kind(X) in "biuf":
        return {}
    if dtype_kind(X) == "c":
        return {"all": {"complex": 0j}}
    table = X if hasattr(X, "shape") else np.asarray(X, dtype=object)
    if len(table.shape) != 2:
        return {}
    names = getattr(table, "column_names", None)  # Arrow, whose ``columns`` are not their names
    names = list(getattr(table, "columns", range(table.shape[1]))) if names is None else names
    columns = ((name, column_at(table, place)) for place, name in enumerate(names))
    return {name: types for name, column in columns if (types := _types_of(column))}


def _types_of(column: Any) -> dict[str, Any]:
    """Return an entry of each type in a column; nothing if it holds real numbers."""
    if dtype_kind(column) in "biuf":
        return {}
    entries = np.asarray(column)
    try:
        if entries.dtype.kind not in "cmM" and entries.astype(float).ndim == 1:
            return {}
    except (TypeError, ValueError, OverflowError):
        pass
    if entries.dtype.kind in "mM":
        return dict.fromkeys([entries.dtype.name], *entries[:1])
    return {type(entry).__name__: entry for entry in entries.tolist()}
