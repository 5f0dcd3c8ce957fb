"""Columns of outcomes, with missing values and one or more favourable values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fairconstrained.arrays import Floats
from fairconstrained.inputs.labels import (
    best_of,
    check_favourable,
    is_known,
    order_of,
    refuse_other_values,
)
from fairconstrained.inputs.values import (
    alternatives,
    factorized,
    in_words,
    listed,
    plain,
    spelling,
    truth,
)


class Outcomes(NamedTuple):
    """The outcome of each row, and the meaning of each value as it was written."""

    favourable: Floats  # (n_samples,): 1 or 0, nan where the outcome is missing
    rows: dict[Any, int]  # number of rows of each possible value
    good: list[Any]  # the favourable ones of these values
    column: str

    @property
    def spelled(self) -> list[str]:
        """Return the spellings that count as one favourable value, if there are several."""
        return alternatives([str(value) for value in self.good])

    @property
    def name(self) -> str:
        """Return the name of the favourable outcome; before numbers and booleans, the column's."""
        # Where only 0 or False occurs, the favourable outcome would have been 1 or True.
        best = "True" if set(map(type, self.rows)) == {bool} else "1"
        word = any(isinstance(value, str) for value in self.rows)
        return f"{'' if word else f'{self.column} = '}{listed(map(in_words, self.good)) or best}"


def favourable_values(
    values: Sequence[Any], pos_label: Any, name: str, parameter: str = "pos_label"
) -> list[Any]:
    """Return the favourable values: those named by the user, or else 1 and True.

    Case, blanks and types do not matter. Raises ValueError, naming the `parameter`, if none is.
    """
    seen = f"the values of {name} are {listed(sorted(map(in_words, values))) or 'missing'}"
    if pos_label is None and not is_known(values):
        raise ValueError(
            f"{seen}. Name the favourable one by {parameter}: only 1 of 0 and 1 (or -1 and 1), "
            "True, and the last of two ordered categories are known."
        )
    several = pd.api.types.is_list_like(pos_label) and not isinstance(pos_label, dict)
    named = list(pos_label) if several else [1 if pos_label is None else pos_label]
    for label in named:
        check_favourable(label, values, parameter)
    wanted = set(map(truth, named))
    good = [value for value in values if truth(value) in wanted]
    if pos_label is not None and not good:
        raise ValueError(
            f"{parameter} is {listed(map(repr, named))}, but {seen}. Name the favourable one of "
            "these as well."
        )
    return good


def read_outcomes(
    columns: Mapping[str, pd.Series[Any]], pos_label: Any, parameter: str = "pos_label"
) -> dict[str, Outcomes]:
    """Read columns of decisions, earlier decisions and labels; missing values stay missing.

    The favourable value must occur in each column, or in another that has all of its values.
    """
    values = {key: factorized(column, key)[1].tolist() for key, column in columns.items()}
    for column, seen in zip(columns.values(), values.values(), strict=True):
        refuse_other_values(plain(np.array(seen, dtype=object)), str(column.name))
    orders, outcomes = list(map(order_of, columns.values())), {}
    for name, column in columns.items():
        spellings = set(map(spelling, values[name]))
        best, more = pos_label, [v for v in values.values() if spellings <= set(map(spelling, v))]
        if pos_label is None:
            best = best_of(values[name], *orders)
            more = [] if best is None else [[best]]
        counts = column.value_counts().to_dict()
        rows = {value: counts.get(value, 0) for value in chain(values[name], *more)}
        good = favourable_values(list(rows), best, str(column.name), parameter)
        is_good = column.isin(good).astype(float).where(column.notna()).to_numpy()
        outcomes[name] = Outcomes(is_good, rows, good, str(column.name))
    return outcomes
