"""PartialParityClassifier as a user gets it, at the paper's slacks."""

from typing import Any

from benchmarks.objectives.partial_parity import ALPHA, Rows, Scores
from benchmarks.partial_tasks import Task
from fairconstrained import PartialParityClassifier

METHOD = "partial parity"
OBJECTIVES = ["partial_parity"]


def levels(notion: str, asked: list[int]) -> list[int]:
    """All."""
    return asked


def fit(train: Rows, task: Task, *, notion: str, level: int, seed: int) -> Scores:
    """Train with default settings."""
    slack = task.slacks[notion][level - 1]
    return fitted(train, fairness=notion, interval=task.interval, slack=slack)


def fitted(train: Rows, **params: Any) -> Scores:
    """Give the scores of a model with group features."""
    model = PartialParityClassifier(group_features=True, alpha=ALPHA, **params)
    model.fit(train.X, train.y, sensitive_features=train.groups)
    return lambda X, groups: model.decision_function(X, sensitive_features=groups)
