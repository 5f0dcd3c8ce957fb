"""Checks of samples: numbers in X, the same order of rows in all inputs, and weights."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from numbers import Integral
from typing import Any

import numpy as np

from fairconstrained.arrays import (
    Array,
    Floats,
    as_numpy,
    check_array,
    column_at,
    dtype_kind,
    in_rows,
)
from fairconstrained.exceptions import InputWarning, warn_caller
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

_LEAST = 1e-100  # of positive weights


def check_samples(**inputs: Any) -> None:
    """Refuse inputs whose numbers or orders of samples differ, and masked values.

    Every input from the user is checked, whether or not it will be needed. Inputs are matched by
    position, as in scikit-learn, but pandas aligns by index: if the same labels are in another
    order, either reading would be a guess. If only some labels are, a warning says so.
    """
    first, known = "", None  # the first input with an index
    counted, n_samples = "", None  # the first input whose rows can be counted
    for name, values in inputs.items():
        refuse_text(values, name)
        if type(values).__name__ == "LazyFrame" and not name.endswith("_features"):
            raise ValueError(f"{name} must be in memory: give {name}.collect() of polars.")
        for column in values.values() if isinstance(values, dict) else [values]:
            if (n_rows := _n_rows(column)) is not None:
                if n_samples is None:
                    counted, n_samples = name, n_rows
                check_length(name, n_rows, n_samples, counted, is_unsplit(values))
            if isinstance(column, np.ma.MaskedArray) and np.ma.is_masked(column):
                raise ValueError(
                    f"{name} has masked values, whose data would be used as if they were not "
                    "masked. Drop these samples or fill the values (numpy.ma.filled)."
                )
            index: Any = getattr(column, "index", None)
            if not hasattr(index, "equals"):  # not from pandas; lists have a method `index`
                continue
            if known is None:
                first, known = name, index
            elif len(index) == len(known) and not index.equals(known):
                _compare_orders(name, index, first, known)


def refuse_text(values: Any, name: str) -> None:
    """Raise ValueError for a name in place of a column, which only tables of engines have."""
    if isinstance(values, (str, bytes)):
        raise ValueError(
            f"{name} must hold a value for each sample; got the single text {values!r}. Give the "
            f"column itself, such as X[{values!r}]."
        )


@contextmanager
def positions_noted() -> Iterator[None]:
    """Silence warnings about matching by position while parts of the inputs are passed on."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* are matched by position", InputWarning)
        yield


def is_unsplit(values: Any) -> bool:
    """Return whether values are a dict or a LazyFrame, which searches pass whole to each fit."""
    return isinstance(values, dict) or type(values).__name__ == "LazyFrame"


def check_length(name: str, n_rows: int, n_samples: int, other: str, unsplit: bool = False) -> None:
    """Raise ValueError unless an input has as many rows as the input called `other`."""
    if n_rows != n_samples:
        whole = (
            " Searches and cross_validate do not split a dict or a LazyFrame: give a DataFrame of "
            "its columns."
        )
        raise ValueError(
            f"{name} has {in_rows(n_rows)}, but {other} has {n_samples}. Give one row per sample, "
            "in the same order (resampling steps of a pipeline break it)."
            f"{whole if unsplit else ''}"
        )


def _n_rows(values: Any) -> int | None:
    """Return the number of rows, or None for texts, numbers, lazy tables and blocks."""
    if hasattr(values, "shape"):  # of lazy tables it holds no number
        shape = values.shape
        n_rows = shape[0] if isinstance(shape, tuple) and shape else None
        return int(n_rows) if isinstance(n_rows, Integral) else None
    is_text = isinstance(values, (str, bytes))
    return None if is_text or not hasattr(type(values), "__len__") else len(values)


def _compare_orders(name: str, index: Any, first: str, known: Any) -> None:
    """Raise ValueError or warn if two indices have the same labels at different positions."""
    # Labels of several levels are tuples, which may stand in an index of one level too.
    index, known = index.to_flat_index(), known.to_flat_index()
    if index.isin(known).all() and known.isin(index).all():
        raise ValueError(
            f"{name} has the samples of {first} in another order: both indices hold the "
            f"same labels. Inputs are taken by position: give {name}.loc[{first}.index], "
            "or arrays without indices (to_numpy()) if the positions are right."
        )
    words = index.map(str), known.map(str)  # numbers that became texts are the same labels
    apart = np.asarray(words[0] != words[1])
    moved = words[0][apart].isin(words[1]) | words[1][apart].isin(words[0])
    if moved.any():  # a label may be the name of a person: its position says as much
        place = np.flatnonzero(apart)[moved].tolist()[0]
        warn_caller(
            f"{name} and {first} are matched by position, but their indices share labels at other "
            f"positions, such as the label at position {place} of {name}. If rows of one label are "
            f"one sample, give {name}.loc[{first}.index]; if the positions are right, as after "
            "reset_index on one side, give arrays without indices (to_numpy()).",
            InputWarning,
        )


def check_weights(sample_weight: Any, n_samples: int) -> Floats:
    """Return non-negative weights, one per row; ones for None."""
    if sample_weight is None:
        return np.ones(n_samples)
    shape = np.asarray(as_numpy(sample_weight)).shape
    if shape != (n_samples,):
        raise ValueError(
            f"sample_weight must have shape ({n_samples},), one weight per row; got {shape}."
        )
    options = {"dtype": np.float64, "input_name": "sample_weight", "force_writeable": True}
    weight: Array = check_array(sample_weight, ensure_2d=False, **options)
    if (weight < 0).any():
        raise ValueError(f"sample_weight must not be negative; got {weight.min()}.")
    some = weight[weight > 0]
    if some.size and not _LEAST <= some.min() <= some.max() <= 1 / _LEAST:
        raise ValueError(
            f"sample_weight must be zero or between {_LEAST} and {1 / _LEAST}, since squares of "
            f"others are no numbers; got {some.min()} to {some.max()}."
        )
    return weight


def check_numbers(X: Any) -> None:
    """Raise ValueError unless X is a table of real numbers; no entry is quoted."""
    shape = X.shape if hasattr(X, "shape") else np.asarray(X, dtype=object).shape
    if len(shape) < 2:  # as scikit-learn says, without the array
        raise ValueError(
            f"Expected 2D array, got {len(shape)}D array instead: X has shape {tuple(shape)}. "
            "Reshape your data by X.reshape(-1, 1) if they have a single feature."
        )
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


@contextmanager
def naming_texts_and_dates(X: Any) -> Iterator[None]:
    """Add to a conversion error of a classifier which columns are texts or dates."""
    try:
        yield
    except (TypeError, ValueError) as error:
        fails = isinstance(error, TypeError) or "convert" in str(error)
        if fails and (words := texts_and_dates(X)):
            raise ValueError(f"{error} (X: {words})") from error
        raise


def texts_and_dates(X: Any) -> str:
    """Describe columns of texts, dates and lengths of time and the ways out; quote no entry."""
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
    """Return the columns that do not hold real numbers, with an entry of each type in them."""
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
    """Return an entry of each type in a column; no entry if all are real numbers."""
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
