"""Values of columns: their types, order and spellings, and descriptions to check later data."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from numbers import Real
from typing import Any
from unicodedata import normalize

import numpy as np
import pandas as pd

from fairconstrained.arrays import Array, Ints, as_numpy
from fairconstrained.exceptions import InputWarning, warn_caller

# Values in a message: more would bury its request.
MOST_NAMED = 12
# Texts that other programs write where a value is missing.
_AS_IF_MISSING = frozenset(
    {"", "?", "-", "nan", "-nan", "na", "n/a", "n.a.", "#n/a", "#na", "<na>", "nat", "none", "null"}
)

_NANOSECONDS = (
    "has times with nanoseconds, which do not count: times of one microsecond are one value. Give "
    "texts to tell them apart."
)


def to_array(values: Any, name: str) -> Array:
    """Return a list or a column as :func:`typed_array` does, but with times in microseconds."""
    array = typed_array(values, name)
    if array.dtype.kind in "mM":  # as Python's values, which have microseconds
        unit = f"{array.dtype.kind}8[us]"
        # Categories may be declared because it is secret which of them occur.
        exact = np.asarray(getattr(getattr(values, "dtype", None), "categories", array))
        array = array.astype(unit)
        if (exact != exact.astype(unit))[~np.isnat(exact)].any():
            warn_caller(f"{name} {_NANOSECONDS}", InputWarning)
    return array


def typed_array(values: Any, name: str) -> Array:
    """Return a list, or a column of any library, as an array that keeps the types of values.

    Nothing is said about values, since that may depend on one row.
    """
    array = values.to_numpy() if hasattr(values, "to_numpy") else as_numpy(values)
    try:
        array = np.asarray(array)
        if array.dtype.kind in "USbiuf" and not hasattr(values, "dtype"):
            # numpy turns lists of mixed types into texts, or into numbers of one type; this keeps
            # the values, so that those of rows without a group do not type the others.
            array = np.asarray(values, dtype=object)
        elif array.dtype.kind == "f" and hasattr(values, "dtype") and (abs(array) > 2**53).any():
            # Missing values made floats of integers, and floats cannot tell large ones apart.
            array = np.asarray(pd.Series([*values], dtype=object)) if array.ndim == 1 else array
    except ValueError as error:
        raise ValueError(
            f"{name} is ragged: give one row per sample with the same number of values in each."
        ) from error
    return array


def whole_numbers(column: Any, name: str) -> Any:
    """Restore integers, which missing values in a column have turned into 1.0 and 2.0."""
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


def plain(array: Array, name: str = "a column") -> Array:
    """Convert an array of objects that are all numbers, booleans or dates to their dtype."""
    if array.dtype != object or not len(array):
        return array
    if all(isinstance(value, (bool, np.bool_)) for value in array):
        return array.astype(bool)
    if all(isinstance(value, (Real, Decimal, np.bool_)) for value in array):
        return np.array([_inexact(value) for value in array.tolist()])
    if all(isinstance(value, date) and not getattr(value, "tzinfo", None) for value in array):
        if any(getattr(value, "nanosecond", 0) for value in array):
            warn_caller(f"{name} {_NANOSECONDS}", InputWarning)
        return np.array(array.tolist(), dtype="M8[us]")
    return array


def _inexact(value: Any) -> Any:
    """Convert decimals and fractions, which numpy keeps as objects, to integers or floats."""
    if not isinstance(value, (Decimal, Fraction)):
        return value
    return int(value) if float(value).is_integer() else float(value)


def distinct(values: Any, name: str) -> list[Any]:
    """Return the distinct values of a column that are not missing, in plain types."""
    levels = pd.Series([*factorized(values, name)[1]], dtype=object)
    return list(plain(np.asarray(levels), name).tolist())


def declared_values(column: Any) -> list[Any] | None:
    """Return the categories that a column declares, in plain types; None if it declares none."""
    dtype: Any = getattr(column, "dtype", None)
    if type(dtype).__name__ not in ("CategoricalDtype", "Enum"):  # of pandas and polars
        return None
    return distinct(pd.Series([*dtype.categories], dtype=object), "a column of categories")


def factorized(values: Any, name: str) -> tuple[Ints, Any]:
    """Return the code of each row's value, -1 where it is missing, and the distinct values."""
    try:
        codes, levels = pd.factorize(values)
    except TypeError:  # whose message may quote values
        kinds = listed(sorted({type(value).__name__ for value in values}))
        raise ValueError(
            f"{name} must hold values that can be told apart by their hashes, such as texts and "
            f"numbers; got values of type {kinds}. Convert them to texts."
        ) from None
    return codes, levels


def levels_of(array: Array, name: str = "sensitive_features") -> tuple[Array, Ints]:
    """Return the sorted distinct values, and the code of each row's, -1 where it is missing."""
    codes, levels = factorized(array, name)  # by hashes: only the values are sorted, not the rows
    levels = plain(levels, name)
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
    """Return a column as texts, None where missing; raise ValueError for 1 beside "1"."""
    levels, codes = levels_of(to_array(whole_numbers(column, name), name), name)
    return np.array([*map(in_words, levels.tolist()), None], dtype=object)[codes]


def in_words(value: Any) -> str:
    """Return a value as a text: whole floats as integers, times at midnight as days."""
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    is_day = isinstance(value, datetime) and (value.time(), value.tzinfo) == (time(), None)
    return str(value.date() if is_day else value)


def kind_of(value: Any) -> str:
    """Return the kind of a value; values of different kinds are never equal."""
    kinds = {
        "text": (str,),
        "bytes": (bytes,),
        "dates": (date, np.datetime64),
        "periods": (pd.Period,),
        "times of day": (time,),
        "lengths of time": (timedelta, np.timedelta64),  # numpy's are integers, too
        "numbers": (Real, Decimal, np.bool_),
    }
    return next((name for name, types in kinds.items() if isinstance(value, types)), "objects")


def warn_of_values(values: Sequence[Any], name: str, role: str) -> None:
    """Warn of values that may mean a missing value, or the same as another value."""
    for note in notes_on(values, name, role):
        warn_caller(note, InputWarning)


def notes_on(values: Sequence[Any], name: str, role: str) -> list[str]:
    """Return notes on texts that look like missing values, and on spellings of one value."""
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


def as_written(
    parsed: pd.Series[Any], written: pd.Series[Any], decimal: str = "."
) -> tuple[pd.Series[Any], list[str]]:
    """Return a column as pandas parsed it, or as texts if numbers would merge some; and notes.

    `written` holds the texts in the file. Notes say if blanks around them are removed, which of
    them count as missing or as one number, and why a column of numbers is read as texts.
    """
    texts, name, notes = written.str.strip(), str(parsed.name).strip(), []
    if not pd.api.types.is_numeric_dtype(parsed) and (texts != written).any():
        notes.append(f"{name}: blanks around words are removed.")
        # "NA " and "TRUE " of pandas are words, and "NA" and "TRUE" are none.
        bare = io.StringIO(texts.to_csv(index=False))
        parsed = pd.read_csv(bare, decimal=decimal, skip_blank_lines=False).iloc[:, 0]
    is_numeric = pd.api.types.is_numeric_dtype(parsed)
    if gone := texts[parsed.isna() & (texts != "")].unique().tolist():
        notes.append(f"{listed(map(repr, gone))} in {name}: these count as missing.")
    zeros = texts[texts.str.fullmatch(r"[+-]?0\d+")]
    whole = texts[texts.str.fullmatch(r"[+-]?\d+")].unique()
    exact = len(set(map(spelling, whole))) == len(set(map(float, whole)))
    if is_numeric and len(zeros):
        notes.append(f"{name}: read as texts, since {zeros.iloc[0]!r} begins with a zero.")
        parsed = texts.where(parsed.notna())
    elif parsed.dtype.kind == "f" and not exact:
        notes.append(f"{name}: read as texts, since numbers of so many digits are not exact.")
        parsed = texts.where(parsed.notna())
    elif is_numeric and (alike := alternatives(texts.unique().tolist())):
        notes.append(f"{listed(alike)} in {name}: spellings of a number count as one value.")
    return parsed, notes


def alternatives(values: Sequence[Any]) -> list[str]:
    """Return values that occur in several spellings, by case, blanks, zeros, or True for 1."""
    kinds: dict[Any, list[str]] = {}
    for value in values:
        kinds.setdefault(truth(value), []).append(repr(value))
    return sorted(name for names in kinds.values() if len(names) > 1 for name in names)


def spelling(value: Any) -> Any:
    """Return a form of a value that all of its spellings share."""
    if isinstance(value, Real):
        return value
    # Floats cannot tell large integers apart, and int drops the fraction of a Decimal.
    for number in (int, float) if isinstance(value, (str, bytes)) else (float,):
        try:
            return number(value)
        except (TypeError, ValueError, OverflowError):
            pass
    return normalize("NFKC", in_words(value)).strip().casefold()


def truth(value: Any) -> Any:
    """Return a form of a value that all of its spellings share, with "true" and "false" as 1, 0."""
    key = spelling(value)
    return {"true": 1.0, "false": 0.0}.get(key, key)


def listed(values: Iterable[Any], most: int = MOST_NAMED, between: str = ", ") -> str:
    """Return a text of the first values, and of how many more there are."""
    words = [str(value) for value in values]
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return between.join(words[:most]) + more


@dataclass(frozen=True)
class Description:
    """The columns of groups, the groups and the labels so far, to compare later data with."""

    columns: tuple[Any, ...] | None = None  # names in order; None: none given, or uncertain groups
    groups: tuple[Any, ...] = ()  # in the order in which they came
    labels: tuple[Any, ...] = ()  # in the order in which they came
    favourable: Any = None  # one of two labels; None: not known

    def in_order(self, columns: dict[Any, Any], name: str) -> dict[Any, Any]:
        """Return later columns in the described order; raise ValueError if their names differ."""
        one = len(self.columns or ()) == len(columns) == 1
        if self.columns is None or (one and 0 in (*self.columns, *columns)):  # without a name
            return columns
        missing = [key for key in self.columns if key not in columns]
        further = [key for key in columns if key not in self.columns]
        if missing or further:
            parts = {"missing": missing, "further": further}
            others = "; ".join(f"{word}: {listed(map(repr, k))}" for word, k in parts.items() if k)
            raise ValueError(
                f"{name} must have the same columns as before, {listed(map(repr, self.columns))}, "
                f"which are found by their names; {others}."
            )
        return {key: columns[key] for key in self.columns}

    def with_labels(self, labels: Sequence[Any], name: str) -> Description:
        """Return the description with more labels; raise ValueError if their kind differs."""
        check_kind(labels[:1], self.labels[:1], name)
        return replace(self, labels=tuple(dict.fromkeys([*self.labels, *labels])))

    def with_favourable(self, label: Any) -> Description:
        """Return the description with a favourable label, if known; refuse another than before."""
        if None not in (label, self.favourable) and label != self.favourable:
            raise ValueError(
                f"the favourable label must be the same as before, {self.favourable!r}; got "
                f"{label!r}."
            )
        return self if label is None else replace(self, favourable=label)

    def also(self, other: Description) -> Description:
        """Return the union of two descriptions; raise ValueError if they contradict each other."""
        both = self.with_labels(other.labels, "labels").with_favourable(other.favourable)
        groups = list(map(self.placing(other), other.groups))
        return described(groups, other.columns, both, "sensitive_features")

    def placing(self, other: Description) -> Callable[[Any], Any]:
        """Return a function that reorders the values of the other's groups by the columns here."""
        if self.columns is None or other.columns is None:
            return lambda group: group
        numbered = {column: at for at, column in enumerate(other.columns)}
        places = list(self.in_order(numbered, "sensitive_features").values())
        return lambda group: tuple(group[at] for at in places) if len(places) > 1 else group


def described(
    groups: Sequence[Any], columns: tuple[Any, ...] | None, before: Description | None, name: str
) -> Description:
    """Return the description `before` extended by groups; raise ValueError if kinds differ."""
    before = Description() if before is None else before
    if before.groups:
        check_kind(examples_of(groups), examples_of(before.groups), name)
        warn_of_spellings(groups, before.groups, name)
    if before.columns not in (None, (0,)) or columns is None:
        columns = before.columns
    return replace(before, columns=columns, groups=tuple(dict.fromkeys([*before.groups, *groups])))


def warn_of_spellings(groups: Sequence[Any], before: Sequence[Any], name: str) -> None:
    """Warn of new groups that may be earlier ones in another spelling."""
    if set(groups) <= set(before):
        return
    every = [group if isinstance(group, tuple) else (group,) for group in [*before, *groups]]
    for column in zip(*every, strict=False):
        values = [v.item() if isinstance(v, np.generic) else v for v in column]
        first, now = (
            [value for value in dict.fromkeys(part) if value is not None]
            for part in (values[: len(before)], values[len(before) :])
        )
        alike = alternatives(list(dict.fromkeys([*first, *now])))
        new = {repr(value) for value in now if value not in first}
        # Two spellings that are both new have a note of their own.
        if not (new - set(alternatives(now))).isdisjoint(alike):
            note = f"{listed(alike)} in {name}, before and now, are different groups."
            warn_caller(note, InputWarning)


def examples_of(groups: Sequence[Any]) -> tuple[Any, ...]:
    """Return an example value of each column of groups, None where all are missing."""
    columns = zip(*(g if isinstance(g, tuple) else (g,) for g in groups), strict=True)
    return tuple(next((v for v in column if v is not None), None) for column in columns)


def check_kind(values: Sequence[Any], before: Sequence[Any], name: str) -> None:
    """Raise ValueError if the example value of a column is of another kind than before."""
    for new, old in zip(values, before, strict=False):
        if None not in (new, old) and kind_of(new) != kind_of(old):
            raise ValueError(
                f"{name} holds values of another kind than before: {new!r} after {old!r}."
            )
