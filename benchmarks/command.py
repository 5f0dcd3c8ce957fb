"""What command lines of benchmarks share: a parser, and a loop over the runs that are missing."""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from benchmarks.results import append, finished

Job = tuple[tuple[Any, ...], Callable[[], dict[str, Any]]]  # key of a run, and what measures it


def command(doc: str | None, output: str = "results", **options: Any) -> argparse.ArgumentParser:
    """Return a parser with the option ``--output``."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=doc, formatter_class=raw, **options)
    parser.add_argument("--output", type=Path, default=Path(output), help=f"default: {output}")
    return parser


def complete(
    path: Path, key: Sequence[str], measured: Sequence[str], jobs: Iterable[Job]
) -> list[str]:
    """Do the runs that the table does not have, and return the failures.

    A run is stored as soon as it has ended. A failure is told and leaves its row for the next call.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.open("ab").close()  # an error here comes before hours of work
    columns, done, failures = [*key, *measured], finished(path, key), []
    for values, run in tqdm(jobs, unit="run"):
        if tuple(map(str, values)) in done:
            continue
        try:
            row = {**dict.fromkeys(columns, ""), **dict(zip(key, values, strict=True)), **run()}
        except Exception:
            failures.append(f"{values} failed:\n{traceback.format_exc()}")
            print(failures[-1], file=sys.stderr)
        else:
            append(path, row, columns, key)
    return failures
