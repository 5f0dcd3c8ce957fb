"""Group AUC fairness with the same objective (G.3 of the paper), here on true AUCs.

Paper: the quadratic surrogate, with slacks from 0.1 to 15 of its own; here: the true gap of AUCs,
because the surrogate's gap does not follow its slack: a stronger baseline.
"""

from typing import Any

from benchmarks.objectives.partial_parity import ALPHA, Rows, Scores
from benchmarks.partial_tasks import Task
from fairconstrained import AUCFairClassifier
from fairconstrained.estimators._group_columns import with_group_columns

METHOD = "group AUC"
OBJECTIVES = ["partial_parity"]
SLACKS = [0.15, 0.1, 0.06, 0.03, 0.005]


def levels(notion: str, asked: list[int]) -> list[int]:
    """All: the model does not depend on the notion."""
    return asked


def fit(train: Rows, task: Task, *, notion: str, level: int, seed: int) -> Scores:
    """Train on the log loss, as partial parity does."""
    return fitted("group_auc", train, SLACKS[level - 1])


def fitted(fairness: str, train: Rows, slack: float) -> Scores:
    """Give the scores of a model that is linear in (1, x, s, s x)."""
    n_groups = int(train.groups.max()) + 1

    def columns(X: Any, groups: Any) -> Any:
        return with_group_columns(X, groups, n_groups)

    model = AUCFairClassifier(
        fairness, slack=slack, objective="log", surrogate="binormal", alpha=ALPHA
    )
    model.fit(columns(train.X, train.groups), train.y, sensitive_features=train.groups)
    return lambda X, groups: model.decision_function(columns(X, groups))
