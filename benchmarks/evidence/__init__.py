"""Our own results, as the pages of ``docs/evidence`` show them.

``runs/``: finished runs as the runners wrote them, compressed, which
:mod:`benchmarks.evidence.aggregates` turns into tables when the site is built.
:mod:`benchmarks.evidence.keep` puts new runs in their place. ``sources.csv`` has a row for each
table: the file, what names its rows, the command that measures it again, and its day. Commands of
finished studies are gone; they run at the commit that the row names.
``claims.csv`` names the cells that the first page compares.

A table is a long data frame with the columns ``row``, ``column``, ``value`` and ``std``: text, one
number a cell with the standard deviation that belongs to it. Parts of a row's name are separated by
`` / ``.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from benchmarks.evidence.aggregates import AGGREGATES

FOLDER = Path(__file__).parent
_TEXT: dict[str, Any] = {"dtype": str, "keep_default_na": False}


class Cell(NamedTuple):
    """A number as text, and its standard deviation, empty if there is none."""

    value: str
    std: str

    def __str__(self) -> str:
        text = f"{self.value} ± {self.std}" if self.std else self.value
        return text.replace("-", "\N{MINUS SIGN}") if _is_number(self.value) else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


@cache
def _read(name: str, **options: Any) -> pd.DataFrame:
    return pd.read_csv(FOLDER / name, **options)


def sources() -> pd.DataFrame:
    """One row for each table, by its name: results, head, command, commit, date."""
    return _read("sources.csv", **_TEXT).set_index("table")


def claims() -> pd.DataFrame:
    """One row for each claim: claim, unit, ours, other, method; the two are references to cells."""
    return _read("claims.csv", **_TEXT)


@cache
def table(name: str) -> pd.DataFrame:
    """Give the cells of a table in their order.

    Raises
    ------
    KeyError
        If ``sources.csv`` has no such table.
    """
    return AGGREGATES[name].table(_read(sources().loc[name, "results"]))


def cell(reference: str) -> Cell:
    """Give the cell that ``table :: row :: column`` names.

    Raises
    ------
    KeyError
        If there is none.
    """
    name, row, column = reference.split(" :: ")
    cells = table(name).set_index(["row", "column"])
    return Cell(*cells.loc[(row, column)])
