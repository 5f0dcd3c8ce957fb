"""Columns of outcomes, of which several values may be favourable and some may be missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fairconstrained.arrays import Floats
from fairconstrained.inputs.groups import recoded
from fairconstrained.inputs.labels import Classes, best_of, is_known, order_of
from fairconstrained.inputs.values import alternatives, listed, spelling


class Outcomes(NamedTuple):
    """The outcome of each row, and the meaning of each value as it was written."""

    favourable: Floats  # (n_samples,): 1 or 0, nan where the outcome is missing
    rows: list[int]  # of each value
    values: Classes  # that occur or could have, and the places of the favourable ones
    column: str

    @property
    def good(self) -> list[Any]:
        """Return the favourable values."""
        return [self.values.labels[place] for place in self.values.targets]

    @property
    def spelled(self) -> list[str]:
        """Return several spellings that count as one favourable value."""
        return alternatives([str(value) for value in self.good])

    @property
    def name(self) -> str:
        """Return the name of the favourable outcome, with the column of numbers and booleans."""
        labels = self.values.labels
        # Without any favourable outcome, 0 or False alone, it is the one that could have been.
        best = "True" if set(map(type, labels)) == {bool} else "1"
        word = any(isinstance(value, str) for value in labels)
        return f"{'' if word else f'{self.column} = '}{listed(self.good) or best}"


def outcome_values(
    values: Sequence[Any],
    pos_label: Any,
    name: str,
    parameter: str = "pos_label",
    orders: Sequence[list[Any] | None] = (),
) -> Classes:
    """Return values with the favourable ones: named, best of an order, or 1 and True.

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
    targets = [place for place, value in enumerate(values) if spelling(value) in wanted]
    if pos_label is not None and not targets:
        names = listed(map(repr, _named(pos_label)))
        raise ValueError(
            f"{parameter} is {names}, but {seen}. Name the favourable one of these as well."
        )
    return Classes(list(values), targets, True)


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
    values = outcome_values(vocabulary, pos_label, str(column.name), parameter)
    codes, seen = pd.factorize(column.to_numpy(dtype=object))
    place = {value: at for at, value in enumerate(vocabulary)}
    codes = recoded(codes, [place[value] for value in seen.tolist()])
    rows = np.bincount(codes[codes >= 0], minlength=len(vocabulary)).tolist()
    is_good = np.isin(np.arange(len(vocabulary)), values.targets)
    favourable = np.append(is_good, np.nan)[codes]
    return Outcomes(favourable, rows, values, str(column.name))


def _named(pos_label: Any) -> list[Any]:
    """Return the favourable values, of one or several; 1 of none."""
    if isinstance(pos_label, (list, tuple, set, frozenset, np.ndarray)):
        return list(pos_label)
    return [1 if pos_label is None else pos_label]
