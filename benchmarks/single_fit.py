"""One plain classifier that learns from the constrained head of posteriors, beside that head.

    python -m benchmarks.single_fit --seeds 0 1 2

Both are given the same boosted trees. `equal_error` is the test error of the head at the test gap
of the single classifier: on the frontier of its slacks, which are fitted to the same posteriors.
Seconds are those of the processor: fits of both estimators at the slack, and predictions of all
test rows, the fastest of five. An estimator has another generator for its folds than the shared
posteriors.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks import results
from benchmarks.any_classifier import (
    TASKS,
    Case,
    Head,
    Split,
    constrained,
    load,
    posterior_columns,
    trees,
)
from benchmarks.frontier import error_at
from benchmarks.objectives.rate_constrained import ALPHA, quality
from fairconstrained import RateConstrainedClassifier
from fairconstrained.models import SingleFit

SLACK = 0.05
SLACKS = [0.01, 0.03, SLACK, 0.08, 0.15]  # of the frontier
KEY = ["dataset", "seed", "constraint"]
MEASURED = [
    *("error", "gap", "equal_error", "head_error", "head_gap", "violation", "feasible"),
    *("cpu", "head_cpu", "predict_cpu", "head_predict_cpu", "plain_predict_cpu"),
]


def seconds(function: Callable[[], Any], times: int = 1) -> tuple[Any, float]:
    """Return the answer of a function, and the least processor time of some calls."""
    found = []
    for _ in range(times):
        start = time.process_time()
        answer = function()
        found.append(time.process_time() - start)
    return answer, min(found)


def measure(split: Split, constraint: str) -> dict[str, Any]:
    """Fit both, and measure them on the test rows."""
    table, test = split.tables
    y, groups = split.y[0], split.groups[0]
    given = {"slack": SLACK, "alpha": ALPHA, "random_state": 0}
    single = RateConstrainedClassifier(constraint, model=SingleFit(trees()), **given)
    beside = RateConstrainedClassifier(constraint, model=trees(), **given)
    fits, predictions = {}, {}
    for clf in (single, beside):
        _, fits[clf] = seconds(lambda clf=clf: clf.fit(table, y, sensitive_features=groups))
        predictions[clf] = seconds(lambda clf=clf: clf.predict(test), 5)
    predicted, predict_cpu = predictions[single]
    _, plain_cpu = seconds(lambda: single.model_.estimator_.predict(test), 5)
    error, gap = quality(split.y[1], split.groups[1], predicted.astype(float), constraint)
    columns = posterior_columns(split, constraint)
    points = {}
    for slack in SLACKS:
        case = Case(split, columns, constraint, slack)
        accepted = constrained(case, list(columns[:2]), Head())
        points[slack] = quality(split.y[1], split.groups[1], accepted[1], constraint)
    errors, gaps = zip(*points.values(), strict=True)
    at = SLACKS.index(SLACK)
    return {
        **{"error": error, "gap": gap, "equal_error": float(error_at(gaps, errors, gap))},
        **{"head_error": errors[at], "head_gap": gaps[at]},
        **{"violation": single.violation_, "feasible": single.feasible_},
        **{"cpu": fits[single], "head_cpu": fits[beside], "predict_cpu": predict_cpu},
        **{"head_predict_cpu": predictions[beside][1], "plain_predict_cpu": plain_cpu},
    }


def main() -> None:
    """Run the cells that the table does not have yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("results"))
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=TASKS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    options = parser.parse_args()
    path = options.output / "single_fit.csv"
    for seed, task in product(options.seeds, options.tasks):
        for constraint in ("demographic_parity", "equalized_odds"):
            key = dict(zip(KEY, (task, seed, constraint), strict=True))
            if tuple(map(str, key.values())) in results.finished(path, KEY):
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                row = measure(load(task, without_group=False, seed=seed), constraint)
            results.append(path, key | row, [*KEY, *MEASURED], KEY)


if __name__ == "__main__":
    main()
