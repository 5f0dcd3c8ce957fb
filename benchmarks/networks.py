"""The default network beside the linear model, on six tables, and with privacy on Adult.

    python -m benchmarks.networks --tasks adult acs_income_sex --seeds 0 1 2
    python -m benchmarks.networks --private

Both see one-hot columns; a slack of 1 is no constraint. Private fits have slack .05 under
demographic parity and the public ranges of Adult's columns of numbers: round numbers of common
values, such as ages of people who work, which do not come from the table.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.any_classifier import NOTIONS, TASKS, load, trained
from benchmarks.command import Job, command, complete
from fairconstrained import RateConstrainedClassifier
from fairconstrained.models import Linear, Network

MODELS = {
    "linear": Linear(),
    "network": Network(),
    "network, standardised columns": Network(n_bins=None),
}
RANGES = {
    "age": (15, 80),
    "education-num": (0, 16),
    "capital-gain": (0, 20_000),
    "capital-loss": (0, 3_000),
    "hours-per-week": (0, 80),
}
KEY = ["dataset", "seed", "constraint", "method", "slack"]
PRIVATE_KEY = ["dataset", "seed", "epsilon", "method"]
MEASURED = ["train_error", "test_error", "train_violation", "test_violation", "cpu", "wall"]


def on_tables(options: argparse.Namespace) -> Iterator[Job]:
    """Return the key of each run, and how to get its row."""
    for seed, task, slack in product(options.seeds, options.tasks, options.slacks):
        # One notion where none is kept.
        notions = options.constraints[: 1 if slack >= 1.0 else None]
        for notion, name in product(notions, options.methods):
            values = (task, seed, notion, name, slack)
            yield values, partial(of_table, *values)


def of_table(dataset: str, seed: int, constraint: str, method: str, slack: float) -> dict[str, Any]:
    """Train one model on one split."""
    split = load(dataset, False, seed)
    model = RateConstrainedClassifier(constraint, slack=slack, model=MODELS[method], random_state=0)
    return trained(model, split, split.matrices, constraint)


def private(options: argparse.Namespace) -> Iterator[Job]:
    """Return the key of each private run, and how to get its row."""
    for seed, epsilon, name in product(options.seeds, options.epsilon, MODELS):
        values = ("adult", seed, epsilon, name)
        yield values, partial(with_privacy, *values)


def with_privacy(dataset: str, seed: int, epsilon: float, method: str) -> dict[str, Any]:
    """Train one private model on one split."""
    split = load(dataset, False, seed)
    tables = [pd.get_dummies(part, dtype=float) for part in split.tables]
    low, high = np.array([RANGES.get(name, (0, 1)) for name in tables[0]]).T
    model = RateConstrainedClassifier(
        slack=0.05,
        model=MODELS[method],
        epsilon=epsilon,
        delta=1e-5,
        feature_range=(low, high),
        random_state=seed,
    )
    return trained(model, split, tables, "demographic_parity")


def main() -> None:
    """Run what the table does not have yet."""
    parser = command(__doc__)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=TASKS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--constraints", nargs="+", default=NOTIONS[:1], choices=NOTIONS)
    parser.add_argument("--slacks", nargs="+", type=float, default=[1.0, 0.05])
    parser.add_argument("--methods", nargs="+", default=list(MODELS)[:2], choices=MODELS)
    parser.add_argument("--private", action="store_true")
    parser.add_argument("--epsilon", nargs="+", type=float, default=[1.0, 9.0])
    options = parser.parse_args()
    if options.private:
        path = options.output / "private_networks.csv"
        complete(path, PRIVATE_KEY, MEASURED, private(options))
    else:
        complete(options.output / "networks.csv", KEY, MEASURED, on_tables(options))


if __name__ == "__main__":
    main()
