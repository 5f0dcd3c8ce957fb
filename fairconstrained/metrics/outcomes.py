"""Which outcome is the favourable one: it is never guessed, except for booleans, 0 and 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fairconstrained.arrays import Array, as_numpy

MOST_NAMED = 12  # values in a message


class Outcomes(NamedTuple):
    """The outcome of each row, and the meaning of each value as it was written."""

    favourable: Array  # (n_samples,): 1 or 0, nan where the outcome is missing
    values: dict[str, int]  # rows of each value
    counted: dict[str, bool]  # whether the value counts as favourable
    name: str  # of the favourable outcome
    column: str

    @property
    def spelled(self) -> list[str]:
        """Several spellings that count as one favourable value."""
        return alternatives([value for value, is_good in self.counted.items() if is_good])


def alternatives(values: Sequence[Any]) -> list[str]:
    """Return values that have another spelling among them, by case or by blanks around words."""
    kinds: dict[Any, list[str]] = {}
    for value in values:
        kinds.setdefault(_key(value), []).append(repr(value))
    return sorted(name for names in kinds.values() if len(names) > 1 for name in names)


def favourable_values(
    values: Sequence[Any], pos_label: Any, name: str, parameter: str = "pos_label"
) -> list[bool]:
    """Return which of these values are favourable: 1 and True, or those that the user names.

    Case, and blanks around words, do not matter, and neither does the type: "1", 1 and 1.0 are one
    value. Raises ValueError, which says `parameter`, if there is no answer.
    """
    keys, seen = [_key(value) for value in values], listed(sorted(values, key=str))
    if pos_label is None and not set(keys) <= {0.0, 1.0}:
        raise ValueError(
            f"the values of {name} are {seen}. Name the favourable one by {parameter}: only 1 of "
            "0 and 1, and True, are favourable without."
        )
    wanted = {_key(value) for value in _named(pos_label)}
    if pos_label is not None and not wanted & set(keys):
        asked = listed([repr(value) for value in _named(pos_label)])
        found = f"the values of {name} are {seen or 'missing'}"
        raise ValueError(f"{parameter} is {asked}, but {found}.")
    return [key in wanted for key in keys]


def has_favourable(values: Any, pos_label: Any) -> bool:
    """Whether one of the values is named by the user."""
    keys = {_key(value) for value in pd.Series(values).dropna().unique()}
    return pos_label is not None and bool(keys & {_key(value) for value in _named(pos_label)})


def read_outcomes(
    values: Any, pos_label: Any, name: str, parameter: str = "pos_label", among: Any = None
) -> Outcomes:
    """Read a column of outcomes; missing ones stay missing.

    The favourable value must occur in it, or in a column `among` whose values it has as well.
    """
    column = pd.Series(np.asarray(as_numpy(values)))
    codes, found = pd.factorize(column)
    seen = found.tolist()
    vocabulary = seen if among is None else pd.Series(among).dropna().unique().tolist()
    counts = favourable_values(vocabulary, pos_label, name, parameter)
    meaning = dict(zip(vocabulary, counts, strict=True))
    good = [meaning[value] for value in seen]
    rows = np.bincount(codes[codes >= 0], minlength=len(seen)).tolist()
    number = not any(isinstance(value, str) for value in vocabulary)
    favourable = listed([value for value, is_good in meaning.items() if is_good])
    return Outcomes(
        np.array([*good, np.nan])[codes],
        {str(value): n for value, n in zip(seen, rows, strict=True)},
        {str(value): is_good for value, is_good in zip(seen, good, strict=True)},
        f"{name} = {favourable}" if number else favourable,
        name,
    )


def listed(values: Sequence[Any], most: int = MOST_NAMED) -> str:
    """Return the first values, and how many more there are."""
    words = [str(value) for value in values]
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return ", ".join(words[:most]) + more


def _key(value: Any) -> Any:
    """Return what two spellings of one value have in common."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return str(value).strip().casefold()


def _named(pos_label: Any) -> list[Any]:
    """Return the favourable values, of one or several; 1 of none."""
    if isinstance(pos_label, (list, tuple, set, frozenset, np.ndarray)):
        return list(pos_label)
    return [1 if pos_label is None else pos_label]
