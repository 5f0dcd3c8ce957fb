"""PartialParityClassifier constrained by what the paper's tables report, at their values.

For rates of decisions the paper's tables report the notion itself: nothing to do.
"""

from benchmarks.objectives.partial_parity import Rows, Scores
from benchmarks.partial_tasks import Task
from benchmarks.solvers.partial_default import fitted

METHOD = "rank parity"
OBJECTIVES = ["partial_parity"]
GAPS = [0.3, 0.216, 0.127, 0.069, 0.025]  # one minus the paper's fairness on a9a


def levels(notion: str, asked: list[int]) -> list[int]:
    """Distributions only."""
    return asked if notion == "statistical_parity" else []


def fit(train: Rows, task: Task, *, notion: str, level: int, seed: int) -> Scores:
    """Train with default settings."""
    slack = GAPS[level - 1]
    return fitted(train, fairness="rank_parity", interval=task.interval, slack=slack)
