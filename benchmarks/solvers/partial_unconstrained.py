"""The same model without constraints: the loose end of every frontier."""

from benchmarks.objectives.partial_parity import Rows, Scores
from benchmarks.partial_tasks import Task
from benchmarks.solvers.partial_default import fitted

METHOD = "no constraint"
OBJECTIVES = ["partial_parity"]


def levels(notion: str, asked: list[int]) -> list[int]:
    """One."""
    return asked[:1]


def fit(train: Rows, task: Task, *, notion: str, level: int, seed: int) -> Scores:
    """Train with a slack that never binds."""
    return fitted(train, fairness=notion, interval=task.interval, slack=10.0)
