"""Peak memory, passes and processor time of a fit whose rows are read from a file in blocks.

    python -m benchmarks.blocks --rows 10000000

The table of `benchmarks.memory` (float32, 20 columns, two groups), demographic parity within 0.05,
default settings. The process first fits on a few rows. Blocks are read with ordinary reads, so that
no page of the file counts as memory of the process.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import results
from benchmarks.memory import N_COLUMNS, generate
from benchmarks.scaling import apart

_BLOCK, _FEW = 65_536, 2_000
_MEGABYTE = 2**20 if sys.platform == "darwin" else 2**10  # of ru_maxrss


def read(folder: Path) -> Iterator[np.ndarray]:
    """The rows of X.npy, some at a time."""
    with (folder / "X.npy").open("rb") as file:
        np.lib.format.read_magic(file)
        np.lib.format.read_array_header_1_0(file)
        while (values := np.fromfile(file, np.float32, _BLOCK * N_COLUMNS)).size:
            yield values.reshape(-1, N_COLUMNS)


def measure(folder: Path) -> dict[str, Any]:
    """One fit on all rows."""
    from fairconstrained import RateConstrainedClassifier
    from fairconstrained.blocks import Blocks

    passes = 0

    def counted() -> Iterator[np.ndarray]:
        nonlocal passes
        passes += 1
        return read(folder)

    y, group = np.load(folder / "y.npy"), np.load(folder / "group.npy")
    few = next(read(folder))[:_FEW]
    RateConstrainedClassifier().fit(few, y[:_FEW], sensitive_features=group[:_FEW])
    before, start, wall = _peak(), time.process_time(), time.perf_counter()
    clf = RateConstrainedClassifier().fit(Blocks(counted), y, sensitive_features=group)
    return {
        "rows": len(y),
        "table (MB)": round(len(y) * N_COLUMNS * 4 / 2**20),
        "peak of the process (MB)": round(_peak()),
        "peak before (MB)": round(before),
        "passes": passes,
        "processor time (s)": round(time.process_time() - start, 1),
        "time (s)": round(time.perf_counter() - wall, 1),
        "violation": round(clf.violation_, 5),
    }


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / _MEGABYTE


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, write and print."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.blocks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--output", type=Path, default=Path("results"))
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        apart(generate, options.rows, Path(folder))
        found = apart(measure, Path(folder))
    print(json.dumps(found))
    results.append(options.output / "blocks.csv", found, list(found), ["rows"])


if __name__ == "__main__":
    main()
