"""The table of finished runs: a CSV file to which each run is added as soon as it ends."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd

_PACKAGES = ("fairconstrained", "fairlearn", "numpy", "scikit-learn", "scipy", "torch")


def finished(path: Path, key: Sequence[str]) -> set[tuple[str, ...]]:
    """Give the values, as text, of the columns `key` of each row; a torn last line is none."""
    rows = csv.DictReader(io.StringIO(_whole_lines(path)))
    missing = sorted(set(key) - set(rows.fieldnames or key))
    if missing:
        raise SystemExit(f"{path} is no table of these runs: it lacks {missing}. Move it away.")
    return {tuple(row[name] for name in key) for row in rows}


def append(path: Path, row: Mapping[str, Any], columns: Sequence[str], key: Sequence[str]) -> None:
    """Add a row unless its key is there; the first one makes the file.

    Raises
    ------
    SystemExit
        If the file has other columns.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = _whole_lines(path)
    header = next(csv.reader(io.StringIO(whole)), None)
    if header not in (None, list(columns)):
        raise SystemExit(
            f"{path} is no table of these runs: it has the columns {header}, not {list(columns)}. "
            "Move it away."
        )
    if tuple(str(row[name]) for name in key) in finished(path, key):
        return
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    if header is None:
        writer.writeheader()
    writer.writerow(dict(row))
    with path.open("a", encoding="utf-8") as file:
        file.truncate(len(whole.encode()))  # what an interruption left of a line
        file.write(text.getvalue())


def save(path: Path, rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Write the rows of a whole benchmark in place of an earlier table, and return them."""
    table = pd.DataFrame(rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    table.to_csv(path, index=False)
    return table


def _whole_lines(path: Path) -> str:
    # As bytes: text with other line ends is shorter than its file, which is cut to this length.
    text = path.read_bytes().decode() if path.exists() else ""
    return text[: text.rfind("\n") + 1]


def markdown(table: pd.DataFrame) -> str:
    """Return a table in markdown; cells without a value stay empty."""
    lines = [list(map(str, table.columns)), ["---"] * len(table.columns)]
    lines += [
        ["" if pd.isna(value) else str(value) for value in row] for row in table.to_numpy(object)
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def versions() -> str:
    """Give the versions of the packages that decide the results."""
    return " ".join(f"{name}={_version(name)}" for name in _PACKAGES)


def _version(name: str) -> str:
    try:
        return version(name)
    except ImportError:  # not installed, or run from a source tree
        return "source"
