"""The table of finished runs: a CSV file to which each run is added as soon as it ends."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["append", "arrays", "finished", "save_arrays", "versions", "writable"]

_PACKAGES = ("fairconstrained", "fairlearn", "numpy", "scikit-learn", "scipy", "torch")


def finished(path: Path, key: Sequence[str]) -> set[tuple[str, ...]]:
    """Give the values, as text, of the columns `key` of each row; a torn last line is none."""
    if not path.exists():
        return set()
    whole = path.read_text()
    whole = whole[: whole.rfind("\n") + 1]
    return {tuple(row[name] for name in key) for row in csv.DictReader(io.StringIO(whole))}


def append(path: Path, row: Mapping[str, Any], columns: Sequence[str]) -> None:
    """Add a row; the first one makes the file.

    The row is there as a whole or not at all: what an interrupted or failed writing left of a line
    is cut off.

    Raises
    ------
    ValueError
        If the file has other columns.
    OSError
        If it cannot be written, such as on a full disk.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab+") as file:
        file.seek(0)
        content = file.read()
        end = content.rfind(b"\n") + 1
        header = next(csv.reader(content[:end].decode().splitlines()), None)
        if header not in (None, list(columns)):
            raise ValueError(f"{path} has columns {header}, not {list(columns)}; move it away.")
        file.truncate(end)
        text = io.StringIO()
        writer = csv.DictWriter(text, columns, lineterminator="\n")
        if header is None:
            writer.writeheader()
        writer.writerow(dict(row))
        try:
            file.write(text.getvalue().encode())
            file.flush()
            os.fsync(file.fileno())
        except OSError:
            os.truncate(path, end)
            raise


def writable(path: Path) -> None:
    """Raise OSError if rows could not be added, before hours of work."""
    path.parent.mkdir(parents=True, exist_ok=True)
    existed = path.exists()
    with path.open("ab"):
        pass
    if not existed:
        path.unlink()


def save_arrays(folder: Path, key: Iterable[Any], named: Mapping[str, NDArray[Any]]) -> str:
    """Store what a run measured beside numbers; give the file's name below `folder`."""
    words = [re.sub(r"[^\w.]+", "_", str(value)) for value in key]
    name = f"arrays/{'-'.join(words)}.npz"
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".part")
    with unfinished.open("wb") as file:
        np.savez_compressed(file, **named)
    unfinished.replace(path)
    return name


def arrays(folder: Path, row: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Load what :func:`save_arrays` stored for a row."""
    with np.load(folder / row["arrays"]) as stored:
        return {name: stored[name] for name in stored.files}


def versions() -> str:
    """Give the versions of the packages that decide the results."""
    return " ".join(f"{name}={_version(name)}" for name in _PACKAGES)


def _version(name: str) -> str:
    try:
        return version(name)
    except ImportError:  # not installed, or run from a source tree
        return "source"
