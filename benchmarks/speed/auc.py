"""Seconds of AUCFairClassifier on many rows, and the passes that stochastic steps need.

    python -m benchmarks.speed.auc
    python -m benchmarks.speed.auc --rows --steps 300 1000 3000 10000

First table: fits on generated dense rows, inter-group AUC within 0.05; "moments" reads the rows
once for group means and covariances (and again for true gaps), the others pass over them.
Second table: the paper's surrogate problem on 10,000 rows (the surrogate's slack is 0.4), solved
exactly from moments; by level sets, until they end by themselves, for each number of steps a level;
and by ``partial_fit`` in place, which uses every row once. "above" is how far the objective is
above the exact optimum, in percent of what constant scores are.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import results
from benchmarks.command import command
from fairconstrained import AUCFairClassifier
from fairconstrained.constraints import AUCParity
from fairconstrained.solvers import QCQP, LevelSet, Solver, Status

N_COLUMNS = 100
BINORMAL = AUCParity("inter_group", surrogate="binormal")
FITS = {
    "moments": AUCFairClassifier(BINORMAL),
    "log loss": AUCFairClassifier(BINORMAL, objective="log"),
    "default": AUCFairClassifier("inter_group"),
}
SURROGATE = AUCParity("inter_group", 0.4, surrogate="quadratic")
PASSES_ROWS, CHUNK = 10_000, 1_000
STEP_SIZE = 0.02
CONSTANT = 0.5  # objective of constant scores


def generate(
    n_rows: int, n_columns: int = N_COLUMNS
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    """Return two groups whose scores differ in level, and in how well they tell the labels."""
    rng = np.random.default_rng(0)
    y, group = rng.integers(2, size=n_rows), rng.integers(2, size=n_rows)
    X = rng.normal(size=(n_rows, n_columns))
    X[:, 0] += 1.0 * y
    X[:, 1] += 1.2 * group + 0.6 * y
    X[:, 2] += 1.5 * y * group
    return X, y, group


def seconds(n_rows: int) -> Iterator[dict[str, Any]]:
    """Give the time of one fit of each kind, by the clock and of the processor."""
    X, y, group = generate(n_rows)
    for name, model in FITS.items():
        wall, cpu = time.perf_counter(), time.process_time()
        model.fit(X, y, sensitive_features=group)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        yield {"rows": n_rows, "fit": name, "seconds": wall, "processor seconds": cpu}


def passes(steps: Sequence[int], n_columns: int = N_COLUMNS) -> Iterator[dict[str, Any]]:
    """Give what each method reaches, the exact solution first."""
    rows = generate(PASSES_ROWS, n_columns)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # true gaps, which these methods do not bound
        exact = reached("exact", QCQP(), rows)
        yield exact
        for n_steps in steps:
            solver = LevelSet(n_steps=n_steps, step_size=STEP_SIZE)
            yield reached(f"{n_steps} steps a level", solver, rows, exact["objective"])
        stream = LevelSet(n_steps=100, batch_size=20, step_size=STEP_SIZE)
        yield reached("in place", stream, rows, exact["objective"], in_chunks=True)


def reached(
    name: str, solver: Solver, rows: Any, optimum: float | None = None, in_chunks: bool = False
) -> dict[str, Any]:
    """Train, on chunks or on all rows, and measure the solver's own last iterate."""
    model = AUCFairClassifier(SURROGATE, solver=solver, random_state=0)
    start = time.process_time()
    if in_chunks:
        for first in range(0, PASSES_ROWS, CHUNK):
            X, y, group = (column[first : first + CHUNK] for column in rows)
            model.partial_fit(X, y, sensitive_features=group)
    else:
        X, y, group = rows
        model.fit(X, y, sensitive_features=group)
    cpu = time.process_time() - start
    last = -2 if model.status_.startswith(Status.KNOWN.value) else -1
    objective, gap = (float(model.history_[k][last]) for k in ("objective", "soft_violation"))
    optimum = objective if optimum is None else optimum
    n_passes = 1.0
    if isinstance(solver, LevelSet) and not in_chunks:
        n_passes = model.n_iter_ * solver.n_steps * solver.batch_size / PASSES_ROWS
    return {
        "method": name,
        "passes": n_passes,
        "processor seconds": cpu,
        "objective": objective,
        "gap": gap,
        "above, percent": 100.0 * (objective - optimum) / (CONSTANT - optimum),
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Write and print both tables."""
    parser = command(__doc__)
    parser.add_argument("--rows", nargs="*", type=int, default=[1_000_000])
    parser.add_argument("--steps", nargs="+", type=int, default=[300, 1000, 3000])
    options = parser.parse_args(argv)
    list(seconds(1_000))  # libraries are loaded
    fits = [fit for n_rows in options.rows for fit in seconds(n_rows)]
    found = [results.save(options.output / "auc_rows.csv", fits)] if fits else []
    found.append(results.save(options.output / "auc_passes.csv", passes(options.steps)))
    for table in found:
        print(table.round(4).to_string(index=False))


if __name__ == "__main__":
    main()
