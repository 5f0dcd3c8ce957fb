"""The values of one column: in numpy's plain kinds, in order, and alike in spelling."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date, time, timedelta
from numbers import Real
from typing import Any
from unicodedata import normalize

import numpy as np
import pandas as pd

from fairconstrained.arrays import Array, Ints, as_numpy
from fairconstrained.exceptions import InputWarning, warn_caller

# Values in a message: more would hide what it asks for.
MOST_NAMED = 12
# Texts that other programs write where a value is missing.
_AS_IF_MISSING = frozenset(
    {"", "?", "-", "nan", "-nan", "na", "n/a", "n.a.", "#n/a", "#na", "<na>", "nat", "none", "null"}
)


def to_array(values: Any, name: str) -> Array:
    """Return a list, or a column of any library, as an array that keeps the types of values."""
    array = values.to_numpy() if hasattr(values, "to_numpy") else as_numpy(values)
    try:
        array = np.asarray(array)
        if array.dtype.kind in "US" and not hasattr(values, "dtype"):
            # numpy turns a nested list of mixed types into strings; this keeps the values.
            array = np.asarray(values, dtype=object)
        elif array.dtype.kind in "mM":  # whose values Python has, as it has none of nanoseconds
            array = array.astype(f"{array.dtype.kind}8[us]")
    except ValueError as error:
        raise ValueError(
            f"{name} is ragged: give one row per sample with the same number of values in each."
        ) from error
    return array


def whole_numbers(column: Any, name: str) -> Any:
    """Return a column with codes as whole numbers, which missing values turn into 1.0 and 2.0."""
    if type(getattr(column, "dtype", None)).__name__ == "Enum":  # of polars, which declares values
        column = pd.Series(pd.Categorical(column.to_list(), list(column.dtype.categories)))
    if isinstance(getattr(column, "dtype", None), pd.CategoricalDtype):
        return pd.Series(column).reset_index(drop=True)
    values = to_array(column, name)
    if values.dtype.kind != "f":
        return values
    known = values[~np.isnan(values)]
    if (known != np.floor(known)).any() or np.isinf(known).any():
        return values
    return pd.Series(values, dtype="Int64").astype(object)


def plain(array: Array) -> Array:
    """Return numbers, booleans and dates in an array of objects as an array of these."""
    if array.dtype != object or not len(array):
        return array
    if all(isinstance(value, (bool, np.bool_)) for value in array):
        return array.astype(bool)
    if all(isinstance(value, (Real, np.bool_)) for value in array):
        return np.array(array.tolist())
    if all(isinstance(value, date) and not getattr(value, "tzinfo", None) for value in array):
        return np.array(array.tolist(), dtype="M8[us]")
    return array


def factorized(values: Any, name: str) -> tuple[Ints, Any]:
    """Return the position of each row's value among the distinct ones, -1 for none, and these."""
    try:
        codes, levels = pd.factorize(values)
    except TypeError:  # whose words the values may have written
        kinds = listed(sorted({type(value).__name__ for value in values}))
        raise ValueError(
            f"{name} must hold values that can be told apart by their hashes, such as texts and "
            f"numbers; got values of type {kinds}. Convert them to texts."
        ) from None
    return codes, levels


def levels_of(array: Array, name: str = "sensitive_features") -> tuple[Array, Ints]:
    """Return the sorted values, and the position of each row's value; -1 where it is missing."""
    codes, levels = factorized(array, name)  # by hashes: only the values are sorted, not the rows
    levels = plain(levels)
    if levels.dtype.kind == "O" and all(isinstance(value, str) for value in levels):
        levels = levels.astype(str)
    try:
        levels, places = np.unique(levels, return_inverse=True)
    except TypeError:  # values of different types cannot be sorted
        first: dict[str, Any] = {}
        words = list(map(str, levels))
        for word, value in zip(words, levels, strict=True):
            if (other := first.setdefault(word, value)) != value:
                raise ValueError(
                    f"{name} has groups of different types with the same name: "
                    f"{other!r} and {value!r}. Convert the column to one type."
                ) from None
        levels, places = np.unique(words, return_inverse=True)
    return levels, np.append(places.reshape(-1), -1)[codes]


def texts(column: Any, name: str) -> Array:
    """Return a column as texts, None where values are missing; 1 beside "1" is an error."""
    levels, codes = levels_of(to_array(whole_numbers(column, name), name), name)
    return np.array([*map(str, levels.tolist()), None], dtype=object)[codes]


def kind_of(value: Any) -> str:
    """Return the kind of a value: values of one kind may be equal, values of two never are."""
    kinds = {
        "text": (str,),
        "bytes": (bytes,),
        "dates": (date, np.datetime64),
        "periods": (pd.Period,),
        "times of day": (time,),
        "lengths of time": (timedelta, np.timedelta64),  # numpy's are integers, too
        "numbers": (Real, np.bool_),
    }
    return next((name for name, types in kinds.items() if isinstance(value, types)), "objects")


def warn_of_values(values: Sequence[Any], name: str, role: str) -> None:
    """Warn of values that may not have been meant as values of their own."""
    for note in notes_on(values, name, role):
        warn_caller(note, InputWarning)


def notes_on(values: Sequence[Any], name: str, role: str) -> list[str]:
    """Describe how texts count that stand for a missing value, or are spelled like another."""
    missing = [
        repr(value)
        for value in values
        if isinstance(value, str) and value.strip().casefold() in _AS_IF_MISSING
    ]
    notes = []
    if missing:
        notes.append(
            f"{name} has the text {listed(missing)}, which counts as a {role} of its own. If it "
            "stands for missing values, give None, or NaN in an array of numbers or objects "
            "(astype(str) makes it a text)."
        )
    if alike := alternatives(values):
        notes.append(f"{listed(alike)} in {name} are different {role}s.")
    return notes


def as_written(parsed: pd.Series[Any], written: pd.Series[Any]) -> tuple[pd.Series[Any], list[str]]:
    """Return a column of a file as pandas parsed it, or as texts that numbers would merge.

    `written` are the texts in the file. Notes say which texts count as missing or as one number,
    and whether leading zeros make the column one of texts.
    """
    texts, notes = written.str.strip(), []
    if gone := texts[parsed.isna() & (texts != "")].unique().tolist():
        notes.append(f"{listed(map(repr, gone))} in {parsed.name}: these count as missing.")
    zeros = texts[texts.str.fullmatch(r"[+-]?0\d+")]
    if pd.api.types.is_numeric_dtype(parsed) and len(zeros):
        notes.append(f"{parsed.name}: read as texts, since {zeros.iloc[0]!r} begins with a zero.")
        parsed = texts.where(parsed.notna())
    elif pd.api.types.is_numeric_dtype(parsed) and (alike := alternatives(texts.unique().tolist())):
        notes.append(f"{listed(alike)} in {parsed.name} count as one value.")
    return parsed, notes


def alternatives(values: Sequence[Any]) -> list[str]:
    """Return values that have another spelling among them: by case, blanks, zeros, or True of 1."""
    kinds: dict[Any, list[str]] = {}
    for value in values:
        key = spelling(value)
        kinds.setdefault({"true": 1.0, "false": 0.0}.get(key, key), []).append(repr(value))
    return sorted(name for names in kinds.values() if len(names) > 1 for name in names)


def spelling(value: Any) -> Any:
    """Return the common form of two spellings of one value."""
    if isinstance(value, Real):
        return value
    try:
        return float(value)
    except (TypeError, ValueError):
        return normalize("NFKC", str(value)).strip().casefold()


def listed(values: Iterable[Any], most: int = MOST_NAMED, between: str = ", ") -> str:
    """Return the first values, and how many more there are."""
    words = [str(value) for value in values]
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return between.join(words[:most]) + more
