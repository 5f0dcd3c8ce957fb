"""Seconds of AUCFairClassifier by the number of rows, and the passes that stochastic steps need.

    python -m benchmarks.speed.auc
    python -m benchmarks.speed.auc --rows 10000 100000 1000000 --columns 100
    python -m benchmarks.speed.auc --rows --steps 300 1000 3000 10000

First table: fits on generated dense rows, inter-group AUC within 0.05, in turns; "moments" reads
the rows once for group means and covariances (and again for true gaps), the others pass over them.
Second table: the paper's surrogate problem on 10,000 rows (the surrogate's slack is 0.4), solved
exactly from moments; by level sets, until they end by themselves, for each number of steps a level;
and by ``partial_fit`` in place, which uses every row once. "above" is how far the objective is
above the exact optimum, in percent of what constant scores are.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import results
from fairconstrained import AUCFairClassifier
from fairconstrained.constraints import AUCParity
from fairconstrained.solvers import QCQP, LevelSet, Solver, Status

ROWS = [10_000, 100_000, 1_000_000]
BINORMAL = AUCParity("inter_group", surrogate="binormal")
FITS = {
    "moments": AUCFairClassifier(BINORMAL),
    "log loss": AUCFairClassifier(BINORMAL, objective="log"),
    "default": AUCFairClassifier("inter_group"),
}
SURROGATE = AUCParity("inter_group", 0.4, surrogate="quadratic")
PASSES_ROWS = 10_000
PASSES = ["method", "passes", "processor seconds", "objective", "gap"]
STEPS = [300, 1000, 3000]
STEP_SIZE = 0.02
STREAM = LevelSet(n_steps=100, batch_size=20, step_size=STEP_SIZE)
CHUNK = 1_000


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


def seconds(n_rows: int, n_columns: int) -> Iterator[dict[str, Any]]:
    """Of one fit of each kind, after loading: by the clock, and of the processor."""
    X, y, group = generate(n_rows, n_columns)
    for name, model in FITS.items():
        wall, cpu = time.perf_counter(), time.process_time()
        model.fit(X, y, sensitive_features=group)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        yield {"rows": n_rows, "fit": name, "seconds": wall, "processor seconds": cpu}


def passes(n_columns: int, steps: Sequence[int]) -> list[tuple[str, float, float, float, float]]:
    """Method, passes, processor seconds, objective and surrogate gap, exact solution first."""
    rows = generate(PASSES_ROWS, n_columns)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # true gaps are not what these methods bound
        lines = [_line("exact", QCQP(), rows, 1.0)]
        for n_steps in steps:
            solver = LevelSet(n_steps=n_steps, step_size=STEP_SIZE)
            of_level = n_steps * solver.batch_size / PASSES_ROWS
            lines.append(_line(f"{n_steps} steps a level", solver, rows, of_level))
        return [*lines, _streamed(rows)]


def _line(
    name: str, solver: Solver, rows: tuple[Any, Any, Any], passes_each: float
) -> tuple[str, float, float, float, float]:
    X, y, group = rows
    model = AUCFairClassifier(SURROGATE, solver=solver, random_state=0)
    start = time.process_time()
    model.fit(X, y, sensitive_features=group)
    spent = time.process_time() - start
    n_passes = passes_each * model.n_iter_ if isinstance(solver, LevelSet) else 1.0
    return name, n_passes, spent, *_reached(model)


def _streamed(rows: tuple[Any, Any, Any]) -> tuple[str, float, float, float, float]:
    """One pass in chunks; the rows kept for measuring are all, to compare with the others."""
    model = AUCFairClassifier(SURROGATE, solver=STREAM, random_state=0)
    start = time.process_time()
    for chunk in np.split(np.arange(PASSES_ROWS), PASSES_ROWS // CHUNK):
        X, y, group = (column[chunk] for column in rows)
        model.partial_fit(X, y, sensitive_features=group)
    return "in place", 1.0, time.process_time() - start, *_reached(model)


def _reached(model: AUCFairClassifier) -> tuple[float, float]:
    """Of the solver's own last iterate, even where a known point is better by true gaps."""
    last = -2 if model.status_.startswith(Status.KNOWN.value) else -1
    objective, gap = (model.history_[k][last] for k in ("objective", "soft_violation"))
    return float(objective), float(gap)


def main(argv: Sequence[str] | None = None) -> None:
    """Write and print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", nargs="*", type=int, default=ROWS)
    parser.add_argument("--columns", type=int, default=100)
    parser.add_argument("--steps", nargs="+", type=int, default=STEPS)
    parser.add_argument("--output", type=Path, default=Path("results"))
    options = parser.parse_args(argv)
    list(seconds(1_000, options.columns))  # what a process does once is not counted
    fits = [fit for n_rows in options.rows for fit in seconds(n_rows, options.columns)]
    found = [results.save(options.output / "auc_rows.csv", fits)] if fits else []
    lines = passes(options.columns, options.steps)
    optimum, constant = lines[0][3], 0.5
    rows = [
        dict(zip(PASSES, line, strict=True))
        | {"above, percent": 100.0 * (line[3] - optimum) / (constant - optimum)}
        for line in lines
    ]
    found.append(results.save(options.output / "auc_passes.csv", rows))
    for table in found:
        print(table.round(4).to_string(index=False))


if __name__ == "__main__":
    main()
