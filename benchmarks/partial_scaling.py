"""A fit of the size of the paper's ACS experiment, on synthetic one-hot rows.

    python -m benchmarks.partial_scaling --rows 300000
    python -m benchmarks.partial_scaling              # 1,664,500 rows, 813 columns

Ten categorical columns with 813 categories in all, one non-zero each; labels and group follow
some of them. Prints seconds of the processor and of the clock, and the peak of the memory.
"""

from __future__ import annotations

import argparse
import resource
import time
from pathlib import Path

import numpy as np
from scipy import sparse

from benchmarks import results
from fairconstrained import PartialParityClassifier

CATEGORIES = (2, 5, 8, 9, 16, 24, 90, 120, 219, 320)  # 813 in all


def data(n_rows: int, seed: int) -> tuple[sparse.csr_array, np.ndarray, np.ndarray]:
    """Rows with skewed categories, labels and groups."""
    rng = np.random.default_rng(seed)
    effect = rng.normal(scale=0.6, size=sum(CATEGORIES))  # first: the same for all numbers of rows
    starts = np.cumsum([0, *CATEGORIES[:-1]])
    columns = np.stack(
        [
            start + (size * rng.random(n_rows) ** 2).astype(np.int32)
            for start, size in zip(starts, CATEGORIES, strict=True)
        ],
        axis=1,
    ).astype(np.int32)
    group = (columns[:, 0] > 0).astype(np.int64)
    score = effect[columns].sum(axis=1) + 0.8 * group
    score -= np.quantile(score, 0.65)
    y = (rng.random(n_rows) < 1.0 / (1.0 + np.exp(-score))).astype(np.int64)
    pointers = np.arange(0, 10 * n_rows + 1, 10, dtype=np.int32)
    values = np.ones(10 * n_rows)
    shape = (n_rows, sum(CATEGORIES))
    return sparse.csr_array((values, columns.reshape(-1), pointers), shape=shape), y, group


def main() -> None:
    """Fit once, write and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_664_500)
    parser.add_argument("--slack", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path("results"))
    options = parser.parse_args()
    X, y, group = data(options.rows, options.seed)
    clock, processor = time.perf_counter(), time.process_time()
    model = PartialParityClassifier(interval=(0.2, 0.4), slack=options.slack)
    model.fit(X, y, sensitive_features=group)
    clock, processor = time.perf_counter() - clock, time.process_time() - processor
    row = {
        **{"rows": options.rows, "columns": X.shape[1], "slack": options.slack},
        **{"seed": options.seed, "seconds": clock, "processor seconds": processor},
        "peak GB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        **{"iterations": model.n_iter_, "gap": model.violation_, "accuracy": model.score(X, y)},
    }
    print(row)
    path = options.output / "partial_scaling.csv"
    results.append(path, row, list(row), ["rows", "slack", "seed"])


if __name__ == "__main__":
    main()
