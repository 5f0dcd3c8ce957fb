"""Take finished runs as the evidence: their tables are then made of these runs.

    python -m benchmarks.evidence.keep results/steps.csv results/private_rates.csv
    python -m benchmarks.evidence.keep --show results/steps.csv

Each file is compressed into ``runs/``. In ``sources.csv`` the tables that it makes get the day. A
table of which the file has no runs stays as it is. A table without a row in ``sources.csv`` is not
shown. With ``--show`` the tables are printed and nothing is kept.
"""

from __future__ import annotations

import argparse
import gzip
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path

import pandas as pd

from benchmarks import results
from benchmarks.evidence import FOLDER
from benchmarks.evidence.aggregates import AGGREGATES


def keep(path: Path, day: str, folder: Path = FOLDER) -> list[str]:
    """Compress the runs of a file into a folder; return the tables that are made of them."""
    sources, runs = pd.read_csv(folder / "sources.csv", dtype=str), pd.read_csv(path)
    own = {name: made for name, made in AGGREGATES.items() if made.runs == path.stem}
    made = [name for name, aggregate in own.items() if len(aggregate.table(runs))]
    shown = sources["table"].isin(made)
    if not shown.any():
        raise SystemExit(f"{path}: no table of sources.csv is made of {path.stem!r}.")
    compressed = folder / "runs" / f"{path.stem}.csv.gz"
    compressed.write_bytes(gzip.compress(path.read_bytes(), mtime=0))
    sources.loc[shown, "results"] = f"runs/{compressed.name}"
    sources.loc[shown, "date"] = day
    sources.to_csv(folder / "sources.csv", index=False)
    return list(sources.loc[shown, "table"])


def shown(path: Path) -> Iterator[str]:
    """Give the tables that are made of the runs of a file, with their names."""
    runs = pd.read_csv(path)
    for name, aggregate in AGGREGATES.items():
        if aggregate.runs == path.stem:
            cells = aggregate.table(runs)
            wide = cells.pivot(index="row", columns="column", values="value")
            rows = wide.reindex(cells["row"].unique())[list(cells["column"].unique())]
            yield f"{name}\n\n{results.markdown(rows.reset_index())}"


def main(argv: Sequence[str] | None = None) -> None:
    """Keep the files of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.evidence.keep",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("runs", nargs="+", type=Path, help="CSV files that a benchmark wrote")
    parser.add_argument("--day", default=date.today().isoformat(), help="default: today")
    parser.add_argument("--show", action="store_true", help="print the tables only")
    options = parser.parse_args(argv)
    for path in options.runs:
        if options.show:
            print("\n\n".join(shown(path)))
        else:
            print(f"{path}: {', '.join(keep(path, options.day))}")


if __name__ == "__main__":
    main()
