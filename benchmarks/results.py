"""The table of finished runs: a CSV file to which each run is added as soon as it ends."""

from __future__ import annotations

import csv
import fcntl
import io
import os
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd

_PACKAGES = ("fairconstrained", "fairlearn", "numpy", "scikit-learn", "scipy", "torch")


def finished(path: Path, key: Sequence[str]) -> set[tuple[str, ...]]:
    """Give the values, as text, of the columns `key` of each row; a torn last line is none."""
    if not path.exists():
        return set()
    rows = csv.DictReader(io.StringIO(_whole_lines(path)))
    _check_columns(path, rows.fieldnames or key, key)
    return {tuple(row[name] for name in key) for row in rows}


def append(path: Path, row: Mapping[str, Any], columns: Sequence[str], key: Sequence[str]) -> None:
    """Add a row unless its key is there; the first one makes the file.

    Processes that share a file take turns. The row is there as a whole or not at all: what an
    interrupted or failed writing left of a line is cut off.

    Raises
    ------
    SystemExit
        If the file has other columns.
    OSError
        If it cannot be written, such as on a full disk.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # until the file is closed, or the process ends
        whole = _whole_lines(path)
        has_header = _has_header(path, whole, columns)
        if tuple(str(row[name]) for name in key) in finished(path, key):
            return
        end = len(whole.encode())
        file.truncate(end)
        text = io.StringIO()
        writer = csv.DictWriter(text, columns, lineterminator="\n")
        if not has_header:
            writer.writeheader()
        writer.writerow(dict(row))
        try:
            file.write(text.getvalue().encode())
            file.flush()
            os.fsync(file.fileno())
        except OSError:
            os.truncate(path, end)
            raise


def save(path: Path, rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Write the rows of a whole benchmark in place of those of an earlier call, and give them."""
    found = pd.DataFrame(rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    found.to_csv(path, index=False)
    return found


def _whole_lines(path: Path) -> str:
    try:
        text = path.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise _foreign(path, "it is no text") from error
    return text[: text.rfind("\n") + 1]


def _has_header(path: Path, whole: str, columns: Sequence[str]) -> bool:
    header = next(csv.reader(io.StringIO(whole)), None)
    if header not in (None, list(columns)):
        raise _foreign(path, f"it has the columns {header}, not {list(columns)}")
    return header is not None


def _check_columns(path: Path, present: Iterable[str], needed: Sequence[str]) -> None:
    missing = sorted(set(needed) - set(present))
    if missing:
        raise _foreign(path, f"it lacks the columns {missing}")


def _foreign(path: Path, why: str) -> SystemExit:
    return SystemExit(f"{path} is no table of these runs: {why}. Move it away.")


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
