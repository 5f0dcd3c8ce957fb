"""Peak memory and processor time of a fit and of predictions on a memory-mapped float32 table.

    python -m benchmarks.memory --rows 5000000

Demographic parity within 0.05, two groups, 20 columns, default settings, beside scikit-learn's
LogisticRegression. Each measurement has a process of its own, which first fits on a few rows. The
peak is that of the resident memory. It counts the pages of the table that were read, so the ratio
is (peak - peak before - table) / table: what is needed beyond the data.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import open_memmap

from benchmarks import results
from benchmarks.scaling import apart

N_COLUMNS = 20
_BLOCK = 100_000
_FEW = 2_000
_UNIT = 1 if sys.platform == "darwin" else 2**10  # of ru_maxrss, in bytes


def generate(n_rows: int, folder: Path) -> None:
    """Write a float32 table, labels and groups, some rows at a time."""
    shape = (n_rows, N_COLUMNS)
    table = open_memmap(folder / "X.npy", mode="w+", dtype=np.float32, shape=shape)
    rng = np.random.default_rng(0)
    weights = rng.normal(size=N_COLUMNS)
    group = rng.integers(2, size=n_rows).astype(np.int8)
    y = np.empty(n_rows, np.int8)
    for start in range(0, n_rows, _BLOCK):
        rows = slice(start, min(start + _BLOCK, n_rows))
        X = rng.normal(size=(rows.stop - start, N_COLUMNS))
        X[:, 0] += group[rows]
        table[rows] = X
        y[rows] = X @ weights + 2 * rng.logistic(size=len(X)) + group[rows] > 0
    table.flush()
    np.save(folder / "y.npy", y)
    np.save(folder / "group.npy", group)


def measure(what: str, folder: Path) -> dict[str, Any]:
    """Peak beyond the data, as a fraction of it, and processor time."""
    from sklearn.linear_model import LogisticRegression

    from fairconstrained import RateConstrainedClassifier

    X = np.load(folder / "X.npy", mmap_mode="r")
    y, group = np.load(folder / "y.npy"), np.load(folder / "group.npy")
    few = slice(0, _FEW)  # first calls load libraries: not what is measured
    ours, theirs = RateConstrainedClassifier(), LogisticRegression()
    ours.fit(X[few], y[few], sensitive_features=group[few])
    theirs.fit(X[few], y[few])
    calls: dict[str, Callable[[], Any]] = {
        "fit": lambda: ours.fit(X, y, sensitive_features=group),
        "predict": lambda: ours.predict(X),
        "fit of LogisticRegression": lambda: theirs.fit(X, y),
    }
    before, start = _peak(), time.process_time()
    calls[what]()
    seconds = time.process_time() - start
    return {"beyond": (_peak() - before - X.nbytes) / X.nbytes, "seconds": seconds}


MEASURED = ("fit", "predict", "fit of LogisticRegression")


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _UNIT


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, write and print."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.memory",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--output", type=Path, default=Path("results"))
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        apart(generate, options.rows, Path(folder))
        rows = [{"what": what} | apart(measure, what, Path(folder)) for what in MEASURED]
    print(results.markdown(results.save(options.output / "memory.csv", rows).round(2)))


if __name__ == "__main__":
    main()
