"""A user's CSV file: its columns, and a sentence for each way in which it can be wrong."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import pandas as pd

from fairconstrained.inputs.outcomes import Outcomes, read_outcomes
from fairconstrained.inputs.values import listed

# A sensitive column with more values than this is a measurement, not a set of groups.
_MOST_GROUPS = 30
AS_CSV = """Write it in UTF-8 with commas between columns and points in numbers, for example by
pandas.read_csv(FILE, sep=";", decimal=",", encoding="latin-1").to_csv(NEW, index=False)."""


class Unusable(ValueError):
    """A table that cannot be used; the message says why, and the remedy."""


def or_a_sentence(run: Callable[[argparse.Namespace], None], options: argparse.Namespace) -> None:
    """Run a command; exit with code 2 and a sentence if its table or a folder cannot be used."""
    try:
        run(options)
    except (Unusable, OSError) as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None


def read_csv(path: Path, columns: Sequence[str]) -> tuple[pd.DataFrame, list[str]]:
    """Return a table that has these columns, without blanks around words, and notes about it.

    Raises `Unusable`, which names a column that is not there together with those most like it.
    """
    try:
        frame = pd.read_csv(path, low_memory=False)
    except pd.errors.EmptyDataError:
        raise Unusable(f"{path} is empty.") from None
    except ValueError as error:  # of text, of columns
        raise Unusable(f"{path} cannot be read: {error}. {AS_CSV}") from error
    # With more commas in the rows than in the header, pandas takes the first columns for an index.
    if frame.shape[1] < 2 or not frame.index.equals(pd.RangeIndex(len(frame))):
        said = f"{path} lacks commas between columns, or the header has fewer than the rows"
        raise Unusable(f"{said}: {','.join(frame)!r}. {AS_CSV}")
    frame.columns = frame.columns.str.strip()
    words = frame.select_dtypes(exclude=["number", "bool"])
    bare = words.apply(lambda c: c.map(lambda v: v.strip() if isinstance(v, str) else v))
    frame[words.columns] = bare.where(bare != "")
    blank = [name for name in words if not bare[name].equals(words[name])]
    for column in columns:
        if column not in frame:
            like = {n: SequenceMatcher(None, n.casefold(), column.casefold()) for n in frame}
            near = sorted(frame, key=lambda name: like[name].ratio(), reverse=True)
            raise Unusable(f"{path} has no column {column!r}; it has {listed(near)}.")
    return frame, [f"{listed(blank)}: blanks around words are removed."] if blank else []


def outcomes_of(column: Any, positive: Any, path: Path) -> Outcomes:
    """Read outcomes; `Unusable` if the favourable one is not known."""
    try:
        return read_outcomes({"label": column}, positive, "--positive")["label"]
    except ValueError as error:
        raise Unusable(f"In {path}, {error}") from None


def check_groups(columns: pd.DataFrame, path: Path) -> None:
    """Raise `Unusable` for a column that is a measurement."""
    for name in columns:
        count = columns[name].nunique()
        if count > _MOST_GROUPS:
            raise Unusable(
                f"{name} has {count} values, too many for groups of people. Add a column with a "
                f"few ranges of it to {path}, for example with pandas.cut, and name that one."
            )
