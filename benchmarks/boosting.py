"""A booster that is constrained while it is boosted (`Boosting`), beside the bare booster.

    python -m benchmarks.boosting --seeds 0 1 2

Tables and trees are those of `benchmarks.any_classifier`, whose runs have the constrained head on
posteriors for the same splits. `violation` is about rows that the fit holds out. Seconds are those
of the processor; each fit stands beside a bare one.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any

from benchmarks.any_classifier import Split, load, trained, trees, with_tasks
from benchmarks.command import Job, command, complete
from benchmarks.objectives.rate_constrained import quality
from fairconstrained import RateConstrainedClassifier
from fairconstrained.models import Boosting

CONSTRAINTS = ["demographic_parity", "equalized_odds"]
SLACKS = [0.02, 0.05, 0.1]
KEY = ["dataset", "seed", "constraint", "slack"]
MEASURED = [
    *("error", "gap", "violation", "feasible", "rounds", "cpu"),
    *("bare_error", "bare_gap", "bare_rounds", "bare_cpu"),
]


def measure(split: Split, constraint: str, slack: float) -> dict[str, Any]:
    """Fit both, and measure them on the test rows."""
    table, test = split.tables
    start = time.process_time()
    bare = trees().fit(table, split.y[0])
    bare_cpu = time.process_time() - start
    clf = RateConstrainedClassifier(
        constraint, slack=slack, model=Boosting(trees()), random_state=0
    )
    row = trained(clf, split, split.tables, constraint)
    error, gap = quality(split.y[1], split.groups[1], bare.predict(test).astype(float), constraint)
    return {
        **{"error": row["test_error"], "gap": row["test_violation"], "cpu": row["cpu"]},
        **{"violation": clf.violation_, "feasible": clf.violation_ <= slack},
        **{"rounds": clf.model_.estimator_.n_iter_, "bare_rounds": bare.n_iter_},
        **{"bare_error": error, "bare_gap": gap, "bare_cpu": bare_cpu},
    }


def jobs(options: argparse.Namespace) -> Iterator[Job]:
    """Yield the key of each run, and the function that measures it."""
    for seed, task in product(options.seeds, options.tasks):
        split = load(task, without_group=False, seed=seed)
        for case in product(CONSTRAINTS, SLACKS):
            yield (task, seed, *case), partial(measure, split, *case)


def main() -> None:
    """Run the cells that the table does not have yet."""
    options = with_tasks(command(__doc__)).parse_args()
    warnings.simplefilter("ignore")
    complete(options.output / "boosting.csv", KEY, MEASURED, jobs(options))


if __name__ == "__main__":
    main()
