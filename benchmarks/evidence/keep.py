"""Take finished runs as the evidence: their tables are then made of these runs.

    python -m benchmarks.evidence.keep results/steps.csv results/private_rates.csv

Each file is compressed into ``runs/``. In ``sources.csv`` the tables that it makes get the day. A
table of which the file has no runs stays as it is. A table without a row in ``sources.csv`` is not
shown.
"""

from __future__ import annotations

import argparse
import gzip
from collections.abc import Sequence
from datetime import date
from pathlib import Path

import pandas as pd

from benchmarks.evidence import FOLDER
from benchmarks.evidence.aggregates import AGGREGATES


def keep(path: Path, day: str) -> list[str]:
    """Compress the runs of a file, and give the tables that are made of them."""
    sources, runs = pd.read_csv(FOLDER / "sources.csv", dtype=str), pd.read_csv(path)
    own = {name: made for name, made in AGGREGATES.items() if made.runs == path.stem}
    made = [name for name, aggregate in own.items() if len(aggregate.table(runs))]
    shown = sources["table"].isin(made)
    if not shown.any():
        raise SystemExit(f"{path}: no table of sources.csv is made of {path.stem!r}.")
    kept = FOLDER / "runs" / f"{path.stem}.csv.gz"
    kept.write_bytes(gzip.compress(path.read_bytes(), mtime=0))
    sources.loc[shown, "results"] = f"runs/{kept.name}"
    sources.loc[shown, "date"] = day
    sources.to_csv(FOLDER / "sources.csv", index=False)
    return list(sources.loc[shown, "table"])


def main(argv: Sequence[str] | None = None) -> None:
    """Keep the files of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.evidence.keep",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("runs", nargs="+", type=Path, help="CSV files that a benchmark wrote")
    parser.add_argument("--day", default=date.today().isoformat(), help="default: today")
    options = parser.parse_args(argv)
    for path in options.runs:
        print(f"{path}: {', '.join(keep(path, options.day))}")


if __name__ == "__main__":
    main()
