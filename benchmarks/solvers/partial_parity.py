"""PartialParityClassifier as a user gets it, and the baselines of its paper."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.objectives.partial_parity import Scores
from benchmarks.objectives.rate_constrained import ALPHA, Rows
from benchmarks.partial_tasks import Task
from benchmarks.solvers import Cells, Method, grid
from fairconstrained import AUCFairClassifier, PartialParityClassifier
from fairconstrained.constraints import AUCParity, PartialStatisticalParity
from fairconstrained.estimators.partial_parity import with_group_columns
from fairconstrained.solvers import IDCA, DirectSwitching, Solver

# Slacks from loose to tight, one for each level.
# Between the paper's loosest for rates and no constraint. The baselines end there: without these
# slacks they would be compared with a long chord.
LOOSE = [0.65, 0.55, 0.45, 0.35, 0.25]
# One minus the fairness of distributions in the paper's tables, on a9a. Of rates of decisions they
# report the notion itself. The last is ours, since new rows are less fair than those of the fit.
RANKS = [0.3, 0.216, 0.127, 0.069, 0.025, 0.01]
# G.3 of the paper. Paper: the quadratic surrogate, with slacks from 0.1 to 15 of its own; here: the
# true gap of AUCs, because the surrogate's gap does not follow its slack: a stronger baseline.
AUC_GAPS = [0.15, 0.1, 0.06, 0.03, 0.005]
NEVER_BINDS = 10.0


def of(notion: str) -> Callable[[dict[str, list[Any]]], Cells]:
    """Return all levels of one notion."""
    return lambda asked: [cell for cell in grid(asked) if cell["constraint"] == notion]


def all_ranks(asked: dict[str, list[Any]]) -> Cells:
    """Return the levels that are asked for, and the last of the ranks."""
    return of("statistical_parity")({**asked, "level": sorted({*asked["level"], len(RANKS)})})


def one_level(asked: dict[str, list[Any]], level: int = 1) -> Cells:
    """Return one level of each notion."""
    return grid({**asked, "level": [level]})


def method(
    name: str,
    trained: Callable[[Rows, Task, str, int], Scores],
    cells: Callable[[dict[str, list[Any]]], Cells] = grid,
) -> Method:
    """Return a method; `trained` gets rows, task, constraint and position."""

    def fit(train: Rows, task: Task, *, constraint: str, level: int, seed: int) -> Scores:
        return trained(train, task, constraint, level - 1)

    return Method(name, ["partial_parity"], fit, cells)


def within_interval(
    train: Rows, task: Task, constraint: Any, slack: float, solver: Solver | None = None
) -> Scores:
    """Train a model with group features under the notion on the task's interval."""
    options = {"slack": slack, "group_features": True, "alpha": ALPHA, "solver": solver}
    model = PartialParityClassifier(constraint, interval=task.interval, **options)
    model.fit(train.X, train.y, sensitive_features=train.groups)
    return lambda X, groups: model.decision_function(X, sensitive_features=groups)


def solved(name: str, solver: Solver | None) -> Method:
    """Return the default at the middle slack of each notion by one solver, as in Figures 10, 11."""
    return method(
        name,
        lambda train, task, notion, i: within_interval(
            train, task, notion, task.slacks[notion][i], solver
        ),
        partial(one_level, level=3),
    )


def under_auc_parity(train: Rows, constraint: str, slack: float) -> Scores:
    """Train a model that is linear in (1, x, s, s x), on the same log loss, under a gap of AUCs."""
    n_groups = int(train.groups.max()) + 1

    def columns(X: Any, groups: Any) -> Any:
        return with_group_columns(X, groups, n_groups)

    model = AUCFairClassifier(
        AUCParity(constraint, surrogate="binormal"), slack=slack, objective="log", alpha=ALPHA
    )
    model.fit(columns(train.X, train.groups), train.y, sensitive_features=train.groups)
    return lambda X, groups: model.decision_function(columns(X, groups))


def auc_method(name: str, auc: str) -> Method:
    """Return a method that does not depend on the notion."""
    return method(name, lambda train, task, _, i: under_auc_parity(train, auc, AUC_GAPS[i]))


SOLVERS = {
    "partial_default": method(
        "partial parity",
        lambda train, task, notion, i: within_interval(train, task, notion, task.slacks[notion][i]),
    ),
    "partial_loose": method(
        "partial parity, loose",
        lambda train, task, notion, i: within_interval(train, task, notion, LOOSE[i]),
        of("demographic_parity"),
    ),
    "partial_ranks": method(
        "rank parity",
        lambda train, task, notion, i: within_interval(train, task, "rank_parity", RANKS[i]),
        all_ranks,
    ),
    # Table 4: the default compares distributions at 10 points.
    "partial_20_points": method(
        "partial parity, 20 points",
        lambda train, task, notion, i: within_interval(
            train, task, PartialStatisticalParity(n_grid=20), task.slacks[notion][i]
        ),
        of("statistical_parity"),
    ),
    "partial_idca": solved("IDCA", IDCA(max_outer=10)),
    "partial_switching": solved("switching", DirectSwitching(n_steps=2_000)),
    "partial_group_auc": auc_method("group AUC", "group_auc"),
    "partial_inter_group": auc_method("inter-group pairs", "inter_group"),
    "partial_intra_group": auc_method("intra-group pairs", "intra_group"),
    # The loose end of every frontier.
    "partial_unconstrained": method(
        "no constraint",
        lambda train, task, notion, i: within_interval(train, task, notion, NEVER_BINDS),
        one_level,
    ),
}
