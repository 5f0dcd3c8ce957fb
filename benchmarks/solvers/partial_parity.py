"""PartialParityClassifier as a user gets it, and what it is compared with in its paper."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from benchmarks.objectives.partial_parity import ALPHA, Rows, Scores
from benchmarks.partial_tasks import Task
from fairconstrained import AUCFairClassifier, PartialParityClassifier
from fairconstrained.constraints import PARTIAL, AUCParity
from fairconstrained.estimators._group_columns import with_group_columns

# Slacks from loose to tight, one for each level.
# Between the paper's loosest for rates and no constraint. The baselines end there: without these
# slacks they would be compared with a long chord.
LOOSE = [0.65, 0.55, 0.45, 0.35, 0.25]
# What the paper's tables report of distributions: one minus its fairness on a9a. Of rates of
# decisions they report the notion itself.
RANKS = [0.3, 0.216, 0.127, 0.069, 0.025]
# Gaps of all ranks are smaller than gaps inside an interval: slacks for similar fairness there.
FULL = {
    "statistical_parity": [0.3, 0.2, 0.12, 0.06, 0.02],
    "demographic_parity": [0.1, 0.05, 0.03, 0.02, 0.005],
}
# G.3 of the paper. Paper: the quadratic surrogate, with slacks from 0.1 to 15 of its own; here: the
# true gap of AUCs, because the surrogate's gap does not follow its slack: a stronger baseline.
AUC_GAPS = [0.15, 0.1, 0.06, 0.03, 0.005]
NEVER_BINDS = 10.0


def every(notion: str, asked: list[int]) -> list[int]:
    """All levels."""
    return asked


def one(notion: str, asked: list[int]) -> list[int]:
    """One level."""
    return asked[:1]


def only(wanted: str) -> Callable[[str, list[int]], list[int]]:
    """All levels of one notion."""
    return lambda notion, asked: asked if notion == wanted else []


def method(
    name: str,
    trained: Callable[[Rows, Task, str, int], Scores],
    levels: Callable[[str, list[int]], list[int]] = every,
) -> SimpleNamespace:
    """What the objective asks of a solver; `trained` gets rows, task, notion and position."""

    def fit(train: Rows, task: Task, *, notion: str, level: int, seed: int) -> Scores:
        return trained(train, task, notion, level - 1)

    return SimpleNamespace(METHOD=name, OBJECTIVES=["partial_parity"], levels=levels, fit=fit)


def fitted(train: Rows, **params: Any) -> Scores:
    """Give the scores of a model with group features."""
    model = PartialParityClassifier(group_features=True, alpha=ALPHA, **params)
    model.fit(train.X, train.y, sensitive_features=train.groups)
    return lambda X, groups: model.decision_function(X, sensitive_features=groups)


def within_interval(train: Rows, task: Task, notion: str, slack: float) -> Scores:
    """The notion on the task's interval."""
    return fitted(train, constraint=notion, interval=task.interval, slack=slack)


def under_full_parity(train: Rows, task: Task, notion: str, slack: float) -> Scores:
    """The notion over all percentiles, on a grid of the interval's spacing (G.10 of the paper)."""
    low, high = task.interval
    n_grid = round(10 / (high - low))
    options = {"n_grid": n_grid} if notion == "statistical_parity" else {}
    constraint = PARTIAL[notion](**options)
    return fitted(train, constraint=constraint, interval=(0.0, 1.0), slack=slack)


def under_auc_parity(train: Rows, notion: str, slack: float) -> Scores:
    """A model that is linear in (1, x, s, s x), on the same log loss, under a gap of AUCs."""
    n_groups = int(train.groups.max()) + 1

    def columns(X: Any, groups: Any) -> Any:
        return with_group_columns(X, groups, n_groups)

    model = AUCFairClassifier(
        AUCParity(notion, surrogate="binormal"), slack=slack, objective="log", alpha=ALPHA
    )
    model.fit(columns(train.X, train.groups), train.y, sensitive_features=train.groups)
    return lambda X, groups: model.decision_function(columns(X, groups))


def auc_method(name: str, auc_notion: str) -> SimpleNamespace:
    """It does not depend on the notion."""
    return method(
        name, lambda train, task, notion, i: under_auc_parity(train, auc_notion, AUC_GAPS[i])
    )


SOLVERS = {
    "partial_default": method(
        "partial parity",
        lambda train, task, notion, i: within_interval(train, task, notion, task.slacks[notion][i]),
    ),
    "partial_loose": method(
        "partial parity, loose",
        lambda train, task, notion, i: within_interval(train, task, notion, LOOSE[i]),
        only("demographic_parity"),
    ),
    "partial_ranks": method(
        "rank parity",
        lambda train, task, notion, i: within_interval(train, task, "rank_parity", RANKS[i]),
        only("statistical_parity"),
    ),
    "partial_full": method(
        "full parity",
        lambda train, task, notion, i: under_full_parity(train, task, notion, FULL[notion][i]),
    ),
    "partial_group_auc": auc_method("group AUC", "group_auc"),
    "partial_inter_group": auc_method("inter-group pairs", "inter_group"),
    "partial_intra_group": auc_method("intra-group pairs", "intra_group"),
    # The loose end of every frontier.
    "partial_unconstrained": method(
        "no constraint",
        lambda train, task, notion, i: within_interval(train, task, notion, NEVER_BINDS),
        one,
    ),
}
