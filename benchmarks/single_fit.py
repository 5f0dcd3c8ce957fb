"""One plain classifier that learns from the constrained head of posteriors, beside that head.

    python -m benchmarks.single_fit --seeds 0 1 2

Both are given the same boosted trees. `equal_error` is the test error of the head at the test gap
of the single classifier: on the frontier of its slacks, which are fitted to the same posteriors.
Seconds are those of the processor: fits of both estimators at the slack, and predictions of all
test rows, the fastest of five. An estimator has another generator for its folds than the shared
posteriors.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

from benchmarks.any_classifier import (
    Case,
    Head,
    constrained,
    load,
    posterior_columns,
    trees,
    with_tasks,
)
from benchmarks.command import command, complete
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
    spent = []
    for _ in range(times):
        start = time.process_time()
        answer = function()
        spent.append(time.process_time() - start)
    return answer, min(spent)


def measure(task: str, seed: int, constraint: str) -> dict[str, Any]:
    """Fit both, and measure them on the test rows."""
    split = load(task, without_group=False, seed=seed)
    table, test = split.tables
    y, groups = split.y[0], split.groups[0]
    shared = {"slack": SLACK, "alpha": ALPHA, "random_state": 0}
    single = RateConstrainedClassifier(constraint, model=SingleFit(trees()), **shared)
    beside = RateConstrainedClassifier(constraint, model=trees(), **shared)
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
    options = with_tasks(command(__doc__)).parse_args()
    notions = "demographic_parity", "equalized_odds"
    cells = [(t, s, c) for s, t, c in product(options.seeds, options.tasks, notions)]
    jobs = [(cell, partial(measure, *cell)) for cell in cells]
    warnings.simplefilter("ignore")
    complete(options.output / "single_fit.csv", KEY, MEASURED, jobs)


if __name__ == "__main__":
    main()
