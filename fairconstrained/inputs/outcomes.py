"""Columns of outcomes, of which several values may be favourable and some may be missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fairconstrained.arrays import Array
from fairconstrained.inputs.labels import best_of, is_known, order_of
from fairconstrained.inputs.values import alternatives, listed, spelling


class Outcomes(NamedTuple):
    """The outcome of each row, and the meaning of each value as it was written."""

    favourable: Array  # (n_samples,): 1 or 0, nan where the outcome is missing
    values: dict[str, int]  # rows of each value
    counted: dict[str, bool]  # whether the value counts as favourable
    name: str  # of the favourable outcome
    column: str

    @property
    def spelled(self) -> list[str]:
        """Return several spellings that count as one favourable value."""
        return alternatives([value for value, is_good in self.counted.items() if is_good])


def favourable_values(
    values: Sequence[Any],
    pos_label: Any,
    name: str,
    parameter: str = "pos_label",
    orders: Sequence[list[Any] | None] = (),
) -> list[bool]:
    """Return which of these values are favourable: named, best of an order, or 1 and True.

    Case, and blanks around words, do not matter, and neither does the type: "1", 1 and 1.0 are one
    value. Raises ValueError, which says `parameter`, if there is no answer.
    """
    pos_label = best_of(values, *orders) if pos_label is None else pos_label
    seen = f"the values of {name} are {listed(sorted(values, key=str)) or 'missing'}"
    if pos_label is None and not is_known(values):
        raise ValueError(
            f"{seen}. Name the favourable one by {parameter}: only 1 of 0 and 1 (or -1 and 1), "
            "True, and the last of two ordered categories are known."
        )
    wanted = {spelling(value) for value in _named(pos_label)}
    favourable = [spelling(value) in wanted for value in values]
    if pos_label is not None and not any(favourable):
        names = listed(map(repr, _named(pos_label)))
        raise ValueError(
            f"{parameter} is {names}, but {seen}. Name the favourable one of these as well."
        )
    return favourable


def read_outcomes(
    columns: Mapping[str, pd.Series[Any]], pos_label: Any, parameter: str = "pos_label"
) -> dict[str, Outcomes]:
    """Read decisions, earlier ones and labels; missing ones stay missing.

    The favourable value must occur in each column, or in another one that has all of its values.
    The order of categories of one column is that of all.
    """
    values = {name: column.dropna().unique().tolist() for name, column in columns.items()}
    orders, outcomes = list(map(order_of, columns.values())), {}
    for name, column in columns.items():
        best, spellings = pos_label, set(map(spelling, values[name]))
        vocabulary = [values[name]]
        if best is None:
            best = best_of(values[name], *orders)
            vocabulary += [] if best is None else [[best]]
        else:
            vocabulary += [v for v in values.values() if spellings <= set(map(spelling, v))]
        every = list(dict.fromkeys(value for some in vocabulary for value in some))
        outcomes[name] = _outcomes(column, every, best, parameter)
    return outcomes


def _outcomes(
    column: pd.Series[Any], vocabulary: list[Any], pos_label: Any, parameter: str
) -> Outcomes:
    """Read a column, whose values are among a vocabulary."""
    name = str(column.name)
    codes, seen = pd.factorize(column.to_numpy(dtype=object))
    counts = favourable_values(vocabulary, pos_label, name, parameter)
    meaning = dict(zip(vocabulary, counts, strict=True))
    good = [meaning[value] for value in seen.tolist()]
    rows = np.bincount(codes[codes >= 0], minlength=len(seen)).tolist()
    number = not any(isinstance(value, str) for value in meaning)
    # Without any favourable outcome, 0 or False alone, it is the one that could have been.
    best = "True" if set(map(type, meaning)) == {bool} else "1"
    favourable = listed([value for value, is_good in meaning.items() if is_good]) or best
    return Outcomes(
        np.array([*good, np.nan])[codes],
        {str(value): n for value, n in zip(seen, rows, strict=True)},
        {str(value): is_good for value, is_good in zip(seen, good, strict=True)},
        f"{name} = {favourable}" if number else favourable,
        name,
    )


def _named(pos_label: Any) -> list[Any]:
    """Return the favourable values, of one or several; 1 of none."""
    if isinstance(pos_label, (list, tuple, set, frozenset, np.ndarray)):
        return list(pos_label)
    return [1 if pos_label is None else pos_label]
