"""The table of finished runs: a CSV file to which each run is added as soon as it ends."""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

__all__ = ["append", "finished", "versions"]

_PACKAGES = ("fairconstrained", "fairlearn", "numpy", "scikit-learn", "scipy", "torch")


def finished(path: Path, key: Sequence[str]) -> set[tuple[str, ...]]:
    """Give the values, as text, of the columns `key` of each row."""
    if not path.exists():
        return set()
    with path.open(newline="") as file:
        return {tuple(row[name] for name in key) for row in csv.DictReader(file)}


def append(path: Path, row: Mapping[str, Any], columns: Sequence[str]) -> None:
    """Add a row; the first one makes the file.

    Raises
    ------
    ValueError
        If the file has other columns.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", newline="") as file:
        file.seek(0)
        header = next(csv.reader(file), None)
        if header not in (None, list(columns)):
            raise ValueError(f"{path} has columns {header}, not {list(columns)}; move it away.")
        writer = csv.DictWriter(file, columns, lineterminator=os.linesep)
        if header is None:
            writer.writeheader()
        writer.writerow(dict(row))


def versions() -> str:
    """Give the versions of the packages that decide the results."""
    return " ".join(f"{name}={_version(name)}" for name in _PACKAGES)


def _version(name: str) -> str:
    try:
        return version(name)
    except ImportError:  # not installed, or run from a source tree
        return "source"
