"""Dense against CSR products X v and X' c: where does the sparse form win?

    python -m benchmarks.speed.products

The constant `_SPARSE_BELOW` of fairconstrained/features.py cites this. The matrix is like a one-hot
table: each row has one nonzero in each of k blocks, in all `--columns` columns.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from timeit import repeat

import numpy as np
import torch
from scipy import sparse

from benchmarks import results
from fairconstrained.models.features import DenseFeatures, SparseFeatures

DENSITIES = (0.02, 0.05, 0.1, 0.13, 0.2, 0.25, 0.3, 0.4, 0.5, 0.7)


def one_hot_like(n_rows: int, n_columns: int, density: float) -> sparse.csr_array:
    """Zeros and ones with the same number of ones in each row."""
    n_blocks = max(round(density * n_columns), 1)
    edges = np.linspace(0, n_columns, n_blocks + 1).astype(int)
    columns = np.random.default_rng(0).integers(edges[:-1], edges[1:], size=(n_rows, n_blocks))
    starts = np.arange(0, n_rows * n_blocks + 1, n_blocks)
    values = np.ones(n_rows * n_blocks)
    return sparse.csr_array((values, columns.reshape(-1), starts), shape=(n_rows, n_columns))


def milliseconds(function: Callable[[], object]) -> float:
    """Least of seven timings of three calls, per call."""
    return min(repeat(function, number=3, repeat=7)) / 3 * 1e3


def main(argv: Sequence[str] | None = None) -> None:
    """Write and print the times for each density."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.speed.products",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rows", type=int, default=36_631, help="default: of Adult's training set")
    parser.add_argument("--columns", type=int, default=107, help="default: of Adult, one-hot")
    parser.add_argument("--threads", type=int, default=1, help="default: 1, as the solvers use")
    parser.add_argument("--output", type=Path, default=Path("results"))
    options = parser.parse_args(argv)
    torch.set_num_threads(options.threads)
    v = torch.ones((options.columns, 1), dtype=torch.float64)
    c = torch.ones((options.rows, 1), dtype=torch.float64)
    rows = []
    for density in DENSITIES:
        X = one_hot_like(options.rows, options.columns, density)
        forms = DenseFeatures(torch.from_numpy(X.toarray())), SparseFeatures(X)
        times = [
            (milliseconds(lambda f=form: f.matmul(v)), milliseconds(lambda f=form: f.t_matmul(c)))
            for form in forms
        ]
        names = [f"{form} {product}, ms" for form in ("dense", "CSR") for product in ("X v", "X'c")]
        row = {"density": density} | dict(zip(names, np.ravel(times), strict=True))
        rows.append(row | {"dense / CSR": np.sum(times[0]) / np.sum(times[1])})
    print(f"{options.rows} x {options.columns}, {options.threads} threads")
    print(results.save(options.output / "products.csv", rows).round(2).to_string(index=False))


if __name__ == "__main__":
    main()
