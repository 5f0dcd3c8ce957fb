"""What each part of `AugmentedLagrangian` buys: the solver without it, on the same problems.

    python -m benchmarks.ablation --trials 30 10 8 0 --tasks compas
    python -m benchmarks.ablation --trials 0 0 0 0 --tasks --made eight_groups hundred_groups

Problems are random ones of `benchmarks.stress`, and equalized odds on training rows of the tasks
and of made-up tables with many classes or groups.
The table shows means over all of them: the hard objective at the result (the error, or 1 - AUC)
and by how much it exceeds the slack. Then come the problems that the solver itself does not solve,
where a known point takes its place, and the processor time as a ratio to that of the whole solver.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pandas as pd

from benchmarks import integer_program, results
from benchmarks.datasets.tables import DATASETS
from benchmarks.frontier import markdown
from benchmarks.objectives.rate_constrained import prepare
from benchmarks.stress import error, trials
from fairconstrained import RateConstrainedClassifier
from fairconstrained.datasets import make_biased_classification
from fairconstrained.solvers import Status, augmented_lagrangian, repair
from fairconstrained.solvers.base import FEASIBILITY_TOL

MODULES = (augmented_lagrangian, repair)
KINDS = ("rates", "losses", "auc", "partial")

# The whole solver, and what is changed in each variant.
VARIANTS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "one sharpness": {"_MANY_ROWS": 0, "_SHARPENINGS": 0},
    "first feasible sharpness": {"_MANY_ROWS": 0},
    "no repairs": {"repaired": lambda problem, seen: seen.best[0]},
    "up to 40 rounds": {"_MAX_ROUNDS": 40},
    "accurate from the first": {"_LOOSE": 1e-4},
    "room is left": {"_ROUNDS_FOR_ROOM": 1},
    "up to 10 rounds": {"_MAX_ROUNDS": 10},
    "3 updates a round": {"_UPDATES": 3},
    "aims at the tolerance": {"_AIM": FEASIBILITY_TOL},
    "room of .002": {"_ROOM": 2e-3},
    "repairs far points": {"REPAIRABLE": 0.2},
    "repairs one iterate": {"_REPAIRED": 1},
    "3 moves": {"_MOVES": 3},
    "moves of length .3": {"_REACH": 0.3},
    "no moves along coordinates": {"_FEW_NUMBERS": 0},
    "5 binding constraints": {"_BINDING": 5},
    "violated constraints alone": {"_NEARLY": -FEASIBILITY_TOL},
}
# Not among the variants that are run by default, because it takes many times as long.
SLOW: dict[str, dict[str, Any]] = {"integer program": {"repaired": integer_program.repaired}}

# Made-up tables of many classes or groups, and the slack.
MADE: dict[str, tuple[dict[str, int], float]] = {
    "eight_groups": ({"n_samples": 1200, "n_features": 10, "n_groups": 8}, 0.02),
    "ten_classes": ({"n_samples": 20000, "n_features": 20, "n_groups": 4, "n_classes": 10}, 0.05),
    "hundred_groups": ({"n_samples": 5000, "n_features": 10, "n_groups": 100}, 0.05),
}


class Case(NamedTuple):
    """An estimator, its rows, and what its scores are judged by."""

    estimator: Any
    X: Any
    y: Any
    group: Any
    criterion: Callable[[Any], float]


def cases(n_trials: Sequence[int], tasks: list[str], made: list[str], seed: int) -> Iterator[Case]:
    """Random problems, so many of each of `KINDS`, and equalized odds on training rows."""
    for kind, n in zip(KINDS, n_trials, strict=True):
        for trial in trials(kind, n, seed):
            if trial.notion != "statistical_parity":  # has another solver
                judge = partial(lambda scored, z: scored(z)[0], trial.scored)
                yield Case(trial.estimator, trial.X, trial.y, trial.group, judge)
    for task in tasks:
        train, _ = prepare(DATASETS[task].load(), seed)
        for slack in (0.01, 0.05):
            estimator = RateConstrainedClassifier("equalized_odds", slack=slack)
            yield Case(estimator, *train, partial(error, train.y))
    for name in made:
        size, slack = MADE[name]
        table = make_biased_classification(**size, random_state=seed)
        estimator = RateConstrainedClassifier("equalized_odds", slack=slack, min_group_size=1)
        judge = partial(wrong, table.target)
        yield Case(estimator, table.data, table.target, table.sensitive_features, judge)


def wrong(y: Any, scores: Any) -> float:
    """Fraction of wrong labels, of two classes or more."""
    return error(y, scores) if scores.ndim == 1 else float((scores.argmax(axis=1) != y).mean())


def measure(changes: dict[str, Any], problems: list[Case]) -> Iterator[dict[str, Any]]:
    """Give what was measured on each problem."""
    with ExitStack() as patches:
        for module in MODULES:
            own = {name: value for name, value in changes.items() if hasattr(module, name)}
            if own:
                patches.enter_context(mock.patch.multiple(module, **own))
        for estimator, X, y, group, criterion in problems:
            start = time.process_time()
            fitted = estimator.fit(X, y, sensitive_features=group)
            cpu = time.process_time() - start
            yield {
                "hard objective": criterion(fitted.decision_function(X)),
                "infeasible": not fitted.feasible_,
                "excess": max(fitted.violation_ - estimator.slack, 0.0),
                "known point instead": fitted.status_.startswith(Status.KNOWN.value),
                "cpu": cpu,
            }


def main() -> None:
    """Write what was measured and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    words = f"of {', '.join(KINDS)}"
    parser.add_argument("--trials", type=int, nargs=len(KINDS), default=[30] * 4, help=words)
    parser.add_argument("--tasks", nargs="*", default=["compas", "acs_income_race_sex"])
    parser.add_argument("--made", nargs="*", default=[], choices=MADE)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=[*VARIANTS, *SLOW])
    parser.add_argument("--output", type=Path, default=Path("results"))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    problems = list(cases(options.trials, options.tasks, options.made, options.seed))
    rows = (
        {"variant": name, "problem": i, **found}
        for name in options.variants
        for i, found in enumerate(measure((VARIANTS | SLOW)[name], problems))
    )
    print(markdown(summary(results.save(options.output / "ablation.csv", rows)).reset_index()))


def summary(found: pd.DataFrame) -> pd.DataFrame:
    """Means and sums over the problems, a row for each variant."""
    of = found.groupby("variant", sort=False)
    table = of["hard objective"].mean().round(4).to_frame()
    table["excess"] = of["excess"].mean().round(5)
    table[["infeasible", "known point instead"]] = of[["infeasible", "known point instead"]].sum()
    table["cpu"] = (of["cpu"].sum() / of["cpu"].sum().iloc[0]).round(2)
    return table


if __name__ == "__main__":
    main()
