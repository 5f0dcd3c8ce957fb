"""The description of a data set, and the functions that descriptions use."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pandas as pd

from fairconstrained.datasets.files import File

Group = Callable[[pd.DataFrame], pd.Series]


def table(texts: Sequence[str]) -> pd.DataFrame:
    """Read comma-separated text. Empty fields are missing; the ``?`` of Adult is a value."""
    (text,) = texts  # a repeated column name (both COMPAS tables) gets ".1" appended
    return pd.read_csv(io.StringIO(text))


@dataclass(frozen=True)
class Dataset:
    """Description of one data set, for the loader and for users.

    Several columns in one string are separated by spaces.
    """

    title: str
    source: str
    licence: str
    caution: str  # harms, limits and traps
    files: tuple[File, ...]  # in the order in which `parse` takes their texts
    target: str  # column of the label, which is never a feature
    positive: Callable[[pd.Series], pd.Series]  # from the column of the label to booleans
    target_names: tuple[str, str]  # meanings of 0 and 1
    sensitive: str  # the sensitive feature of the benchmarks
    # Sensitive features with readable values that are not columns of the table.
    groups: Mapping[str, Group] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)  # columns for each reason
    codes: str = ""  # numeric columns that hold codes of categories
    parse: Callable[[Sequence[str]], pd.DataFrame] = table  # from the texts of the files


def known_outcomes(texts: Sequence[str]) -> pd.DataFrame:
    """Leave out people whose ``is_recid`` is -1, because their label is unknown."""
    people = table(texts)
    return people[people["is_recid"] >= 0].reset_index(drop=True)


def equals(value: object) -> Callable[[pd.Series], pd.Series]:
    """Whether the label is `value`."""
    return lambda column: column == value


def above_median(column: pd.Series) -> pd.Series:
    """Whether the label is above its median."""
    return column > column.median()


def decode(column: str, *words: str, first: int = 0) -> Group:
    """Replace the codes `first`, `first` + 1, ... of a column by words."""
    return lambda frame: frame[column].map(dict(enumerate(words, start=first)))


def either(is_first: Group, first: str, other: str) -> Group:
    """Two groups: `first` where `is_first` holds, and `other` elsewhere."""
    return lambda frame: is_first(frame).map({True: first, False: other})
