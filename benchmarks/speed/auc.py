"""Seconds of AUCFairClassifier by the number of rows, and the passes that stochastic steps need.

    python -m benchmarks.speed.auc
    python -m benchmarks.speed.auc --rows 10000 100000 1000000 --columns 100

First table: fits on generated dense rows, inter-group AUC within 0.05, in turns; "moments" reads
the rows once for group means and covariances (and again for true gaps), "log loss" is the default.
Second table: the paper's surrogate problem on the first number of rows, solved exactly from moments
and by level sets: objective (with the surrogate's slack at 0.4) by passes over the data.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairconstrained import AUCFairClassifier
from fairconstrained.solvers import QCQP, LevelSet

ROWS = [10_000, 100_000, 1_000_000]
FITS: dict[str, dict[str, Any]] = {"moments": {"objective": "auc"}, "log loss": {}}
SURROGATE: dict[str, Any] = {"objective": "auc", "surrogate": "quadratic", "slack": 0.4}
LEVEL_SET = LevelSet(step_size=0.01, max_levels=6)


def generate(
    n_rows: int, n_columns: int
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    """Two groups whose scores differ in level, and in how well they tell the labels apart."""
    rng = np.random.default_rng(0)
    y, group = rng.integers(2, size=n_rows), rng.integers(2, size=n_rows)
    X = rng.normal(size=(n_rows, n_columns))
    X[:, 0] += 1.0 * y
    X[:, 1] += 1.2 * group + 0.6 * y
    X[:, 2] += 1.5 * y * group
    return X, y, group


def seconds(n_rows: int, n_columns: int) -> list[float]:
    """Of one fit of each kind, after loading: by the clock, and of the processor."""
    X, y, group = generate(n_rows, n_columns)
    times = []
    for params in FITS.values():
        start = time.perf_counter(), time.process_time()
        AUCFairClassifier("inter_group", **params).fit(X, y, sensitive_features=group)
        times += [time.perf_counter() - start[0], time.process_time() - start[1]]
    return times


def passes(n_rows: int, n_columns: int) -> list[tuple[str, float, float, float, float]]:
    """Method, passes, seconds, objective and surrogate gap, exact solution first."""
    X, y, group = generate(n_rows, n_columns)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # true gaps are not what these methods bound
        exact, stochastic = (
            AUCFairClassifier("inter_group", solver=solver, random_state=0, **SURROGATE).fit(
                X, y, sensitive_features=group
            )
            for solver in (QCQP(), LEVEL_SET)
        )
    of_level = LEVEL_SET.n_steps * LEVEL_SET.batch_size / n_rows
    lines = [
        (
            f"level {level + 1}",
            of_level * (level + 1),
            *(float(stochastic.history_[k][level]) for k in ("time", "objective")),
            float(stochastic.history_["soft_violation"][level]),
        )
        for level in range(stochastic.n_iter_)
    ]
    last = [float(exact.history_[k][-1]) for k in ("time", "objective", "soft_violation")]
    return [("exact", 1.0, last[0], last[1], last[2]), *lines]


def main(argv: Sequence[str] | None = None) -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", nargs="+", type=int, default=ROWS)
    parser.add_argument("--columns", type=int, default=100)
    options = parser.parse_args(argv)
    seconds(1_000, options.columns)  # what a process does once is not counted
    print(f"{'rows':>10}" + "".join(f"{name:>12}{'(CPU)':>12}" for name in FITS) + "   seconds")
    for n_rows in options.rows:
        times = seconds(n_rows, options.columns)
        print(f"{n_rows:>10}" + "".join(f"{value:12.2f}" for value in times), flush=True)
    print(f"{'':10}{'passes':>9}{'seconds':>9}{'objective':>11}{'gap':>9}")
    for name, n_passes, spent, objective, gap in passes(options.rows[0], options.columns):
        print(f"{name:10}{n_passes:9.1f}{spent:9.2f}{objective:11.4f}{gap:9.4f}")


if __name__ == "__main__":
    main()
