"""The default network beside the linear model and boosted trees, with and without constraints.

    python -m benchmarks.networks --tasks adult acs_income_sex --seeds 0 1 2 --output results
    python -m benchmarks.networks --report --output results

Networks and linear models see one-hot columns, trees the table. Trees under a constraint are
posteriors under a constrained linear model. Nothing is chosen by test rows: ``--inner`` puts a
quarter of the training rows in their place, for choices.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.model_selection import train_test_split

from benchmarks import frontier, results
from benchmarks.any_classifier import TASKS, Split, load, quality, trees
from fairconstrained import RateConstrainedClassifier
from fairconstrained.models import Network
from fairconstrained.solvers import SGDA

NOTIONS = ["demographic_parity", "equalized_odds", "equal_opportunity"]
MEASURED = ["train_error", "test_error", "train_violation", "test_violation", "cpu", "wall"]
KEY = ["dataset", "seed", "notion", "method", "slack"]


def standardised(**params: Any) -> RateConstrainedClassifier:
    """Standardised columns and descent-ascent on all rows: the default of earlier versions."""
    model = Network((64, 32), n_bins=None)
    return RateConstrainedClassifier(model=model, solver=SGDA(), random_state=0, **params)


def network(**params: Any) -> RateConstrainedClassifier:
    """The default network."""
    return RateConstrainedClassifier(model=(64, 32), random_state=0, **params)


def boosted(**params: Any) -> BaseEstimator:
    """Boosted trees: as they are where nothing is constrained, or their posteriors."""
    if params["slack"] >= 1.0:
        return trees()
    return RateConstrainedClassifier(model=trees(), random_state=0, **params)


METHODS: dict[str, Callable[..., BaseEstimator]] = {
    "linear": RateConstrainedClassifier,
    "network": network,
    "network, standardised columns": standardised,
    "trees": boosted,
}


def inner(split: Split, seed: int) -> Split:
    """The training rows alone, a quarter of each label in each group as if they were test rows."""
    y, groups = split.y[0], split.groups[0]
    parts = train_test_split(
        np.arange(len(y)),
        test_size=0.25,
        stratify=y * (groups.max() + 1) + groups,
        random_state=1000 + seed,
    )
    return Split(
        [split.tables[0].iloc[rows] for rows in parts],
        *([of_all[rows] for rows in parts] for of_all in (split.matrices[0], y, groups)),
    )


def measure(split: Split, notion: str, method: str, slack: float) -> dict[str, float]:
    """Train one method, and measure it on training and test rows."""
    parts = split.tables if method == "trees" else split.matrices
    model = METHODS[method](constraint=notion, slack=slack)
    given = {} if method == "trees" and slack >= 1.0 else {"sensitive_features": split.groups[0]}
    wall, cpu = time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(parts[0], split.y[0], **given)
    row = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    for i, part in enumerate(("train", "test")):
        accepted = np.asarray(model.predict(parts[i]), dtype=float)
        row |= quality(split.y[i], split.groups[i], accepted, notion, part)
    return row


def run(options: argparse.Namespace) -> None:
    """All cells that the table does not have yet."""
    path = table_path(options)
    cells = [
        (task, seed, notion, method, slack)
        for seed in options.seeds
        for task in options.tasks
        for slack in options.slacks
        for notion in options.notions[: 1 if slack >= 1.0 else None]  # one notion if none is kept
        for method in options.methods
    ]
    for key in cells:
        if tuple(map(str, key)) in results.finished(path, KEY):
            continue
        task, seed, notion, method, slack = key
        split = load(task, False, seed)
        row = measure(inner(split, seed) if options.inner else split, notion, method, slack)
        row |= dict(zip(KEY, key, strict=True))
        results.append(path, row, [*KEY, *MEASURED], KEY)
        print(*key, {name: round(row[name], 4) for name in MEASURED}, flush=True)


def table_path(options: argparse.Namespace) -> Path:
    """The table of the runs."""
    found: Path = options.output / ("networks_inner.csv" if options.inner else "networks.csv")
    return found


def main() -> None:
    """Run, or report what has run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("results"))
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=TASKS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--notions", nargs="+", default=NOTIONS, choices=NOTIONS)
    slacks = {"nargs": "+", "type": float, "default": [1.0, 0.05]}
    parser.add_argument("--slacks", **slacks, help="1: unconstrained")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--inner", action="store_true", help="on training rows only")
    parser.add_argument("--report", action="store_true")
    options = parser.parse_args()
    if not options.report:
        run(options)
        return
    table = results.table(table_path(options), KEY, MEASURED)
    keys = [name for name in KEY if name != "seed"]
    print(frontier.markdown(table.groupby(keys)[MEASURED].mean().round(4).reset_index()))


if __name__ == "__main__":
    main()
