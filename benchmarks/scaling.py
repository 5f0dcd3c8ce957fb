"""Fit time and peak memory of RateConstrainedClassifier against the number of rows.

    python -m benchmarks.scaling
    python -m benchmarks.scaling --rows 10000 100000 --kinds sparse1000
    python -m benchmarks.scaling --rows 10000000 --kinds mapped20 blocks20

Data of `make_biased_classification`, default settings, demographic parity within 0.05; the kind
"private100" with epsilon = 1. Each fit has a process of its own that loads the data from a file, so
its peak memory is that of a training job: the interpreter with its libraries, the data, and the
needs of the fit. "mapped20" is a memory-mapped table of single precision, whose pages count once
they are read; "blocks20" reads the same file in blocks with ordinary reads, in every pass. A second
call skips what <output>/scaling.csv has.
"""

from __future__ import annotations

import multiprocessing
import resource
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import open_memmap
from scipy import sparse

from benchmarks.command import command, complete
from benchmarks.results import versions

# Of the data, and of the estimator.
KINDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "dense20": ({"n_features": 20}, {}),
    "dense100": ({"n_features": 100}, {}),
    "sparse1000": ({"n_features": 1_000, "density": 0.02}, {}),
    "private100": ({"n_features": 100}, {"epsilon": 1.0, "delta": 1e-7, "feature_range": (-4, 4)}),
    "mapped20": ({"n_features": 20}, {}),
    "blocks20": ({"n_features": 20}, {}),
}
IN_MEMORY = list(KINDS)[:4]
ROWS = [10_000, 30_000, 100_000, 300_000, 1_000_000]
SLACK = 0.05
KEY = ["kind", "n_rows", "seed"]
MEASURED = [
    *("fit_time", "cpu", "n_iter", "passes", "data_mb", "loaded_mb", "peak_mb"),
    *("violation", "converged", "versions"),
]
_BLOCK, _FEW = 65_536, 2_000
# ru_maxrss is in kilobytes, on macOS in bytes.
_MEGABYTE = 2**20 if sys.platform == "darwin" else 2**10


def generate(kind: str, n_rows: int, seed: int, folder: Path) -> None:
    """Write X, y and the groups into `folder`; single precision some rows at a time."""
    from fairconstrained.datasets import make_biased_classification

    if kind not in IN_MEMORY:
        _generate_single(n_rows, seed, folder)
        return
    data = make_biased_classification(n_rows, random_state=seed, **KINDS[kind][0])
    if sparse.issparse(data.data):
        sparse.save_npz(folder / "X.npz", data.data, compressed=False)
    else:
        np.save(folder / "X.npy", data.data)
    np.save(folder / "y.npy", data.target)
    np.save(folder / "groups.npy", data.sensitive_features)


def _generate_single(n_rows: int, seed: int, folder: Path) -> None:
    rng = np.random.default_rng(seed)
    table = open_memmap(folder / "X.npy", mode="w+", dtype=np.float32, shape=(n_rows, 20))
    weights, group = rng.normal(size=20), rng.integers(2, size=n_rows).astype(np.int8)
    y = np.empty(n_rows, np.int8)
    for start in range(0, n_rows, _BLOCK):
        rows = slice(start, min(start + _BLOCK, n_rows))
        X = rng.normal(size=(rows.stop - start, 20))
        X[:, 0] += group[rows]
        table[rows] = X
        y[rows] = X @ weights + 2 * rng.logistic(size=len(X)) + group[rows] > 0
    table.flush()
    np.save(folder / "y.npy", y)
    np.save(folder / "groups.npy", group)


class Passes:
    """Blocks of rows of a file, and how often they were read."""

    def __init__(self, folder: Path, n_columns: int) -> None:
        self.path, self.n_columns, self.n = folder / "X.npy", n_columns, 0

    def __call__(self) -> Iterator[np.ndarray]:
        self.n += 1
        with self.path.open("rb") as file:
            np.lib.format.read_magic(file)
            np.lib.format.read_array_header_1_0(file)
            while (values := np.fromfile(file, np.float32, _BLOCK * self.n_columns)).size:
                yield values.reshape(-1, self.n_columns)


def measure(kind: str, folder: Path) -> dict[str, Any]:
    """Fit once on the data in `folder`, after a fit on a few rows."""
    from fairconstrained import RateConstrainedClassifier
    from fairconstrained.blocks import Blocks

    mode = None if kind in IN_MEMORY else "r"
    npz = folder / "X.npz"
    X = sparse.load_npz(npz) if npz.exists() else np.load(folder / "X.npy", mmap_mode=mode)
    y, groups = np.load(folder / "y.npy"), np.load(folder / "groups.npy")
    size = X.data.nbytes + X.indices.nbytes if sparse.issparse(X) else X.nbytes
    few, passes = slice(0, _FEW), Passes(folder, X.shape[1])
    parameters = KINDS[kind][1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few rows for private training
        warm_up = RateConstrainedClassifier(slack=1.0, **parameters)  # libraries are loaded
        warm_up.fit(X[few], y[few], sensitive_features=groups[few])
    model = RateConstrainedClassifier(slack=SLACK, **parameters)
    loaded, start, cpu = _peak(), time.perf_counter(), time.process_time()
    model.fit(Blocks(passes) if kind == "blocks20" else X, y, sensitive_features=groups)
    return {
        "fit_time": time.perf_counter() - start,
        "cpu": time.process_time() - cpu,
        "n_iter": model.n_iter_,
        "passes": passes.n,
        "data_mb": size / 2**20,
        "loaded_mb": loaded,
        "peak_mb": _peak(),
        "violation": model.violation_,
        "converged": model.converged_,
    }


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / _MEGABYTE


def apart(function: Callable[..., Any], *args: Any) -> Any:
    """Call in a fresh process: a forked one would start with the peak of its parent."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *args).result()


def generated_and_measured(kind: str, n_rows: int, seed: int) -> dict[str, Any]:
    """Write data to a folder, and fit to them, each in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        apart(generate, kind, n_rows, seed, Path(folder))
        return apart(measure, kind, Path(folder)) | {"versions": versions()}


def main(argv: Sequence[str] | None = None) -> None:
    """Run what is missing."""
    parser = command(__doc__)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=IN_MEMORY)
    parser.add_argument("--rows", nargs="+", type=int, default=ROWS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    options = parser.parse_args(argv)
    asked = [(k, n, s) for n, k, s in product(options.rows, options.kinds, options.seeds)]
    jobs = [(run, partial(generated_and_measured, *run)) for run in asked]
    complete(options.output / "scaling.csv", KEY, MEASURED, jobs)


if __name__ == "__main__":
    main()
