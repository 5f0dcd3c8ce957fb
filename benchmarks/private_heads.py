"""Private heads on public trees, and private fits of which the groups alone are secret.

    python -m benchmarks.private_heads --tasks adult --methods head records --epsilon 1
    python -m benchmarks.private_heads --tasks adult acs_income_sex --methods groups

"head": boosted trees of the label and the group, frozen, are fitted to 8,000 of the training rows,
which are public, and the head to the others, with privacy of the record. "records": the linear
model on one-hot columns of these others, at the same privacy. "groups": the same model on all
training rows, where only the groups are secret. Slack .05; an infinite epsilon is no privacy.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import train_test_split

from benchmarks.any_classifier import NOTIONS, TASKS, Split, load, trained, trees
from benchmarks.command import Job, command, complete
from fairconstrained import RateConstrainedClassifier
from fairconstrained.models.posteriors import Posteriors

N_PUBLIC = 8_000
UNITS = {"head": "record", "records": "record", "groups": "sensitive_features"}
KEY = ["dataset", "seed", "constraint", "method", "epsilon"]
MEASURED = ["train_error", "test_error", "train_violation", "test_violation", "cpu", "wall"]


def divided(split: Split) -> tuple[Split, Split]:
    """The public rows, and the protected ones with the test rows."""
    y, groups = split.y[0], split.groups[0]
    parts = train_test_split(
        np.arange(len(y)),
        train_size=N_PUBLIC,
        stratify=y * (groups.max() + 1) + groups,
        random_state=0,
    )
    public, protected = (
        Split(
            [split.tables[0].iloc[rows], split.tables[1]],
            [split.matrices[0][rows], split.matrices[1]],
            [y[rows], split.y[1]],
            [groups[rows], split.groups[1]],
        )
        for rows in parts
    )
    return public, protected


def of_public(public: Split) -> Posteriors:
    """Frozen trees of the label and the group."""
    return Posteriors(
        *(
            FrozenEstimator(trees().fit(public.tables[0], target))
            for target in (public.y[0], public.groups[0])
        )
    )


def fitted(
    split: Split, model: Any, constraint: str, method: str, epsilon: float, seed: int
) -> dict[str, float]:
    """Train one model, and measure it."""
    tables = split.tables if method == "head" else split.matrices
    given: dict[str, Any] = {"slack": 0.05, "model": model, "random_state": seed}
    if np.isfinite(epsilon):
        given |= {"epsilon": epsilon, "delta": 1e-5, "protect": UNITS[method]}
    return trained(RateConstrainedClassifier(constraint, **given), split, tables, constraint)


def jobs(options: argparse.Namespace) -> Iterator[Job]:
    """Return the key of each run, and how to get its row."""
    for seed, task in product(options.seeds, options.tasks):
        split = load(task, False, seed)
        public, protected = divided(split)
        models = {"head": of_public(public)} if "head" in options.methods else {}
        for rest in product(options.constraints, options.methods, options.epsilon):
            rows, model = split if rest[1] == "groups" else protected, models.get(rest[1], "linear")
            yield (task, seed, *rest), partial(fitted, rows, model, *rest, seed)


def main() -> None:
    """Run what the table does not have yet."""
    parser = command(__doc__)
    parser.add_argument("--tasks", nargs="+", default=["adult"], choices=TASKS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--constraints", nargs="+", default=NOTIONS[:2], choices=NOTIONS)
    parser.add_argument("--methods", nargs="+", default=list(UNITS), choices=UNITS)
    parser.add_argument("--epsilon", nargs="+", type=float, default=[0.1, 1.0, 9.0, np.inf])
    options = parser.parse_args()
    complete(options.output / "private_heads.csv", KEY, MEASURED, jobs(options))


if __name__ == "__main__":
    main()
