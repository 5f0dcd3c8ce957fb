"""PartialParityClassifier at slacks between the paper's loosest for rates and no constraint.

The baselines end there: without these slacks they would be compared with a long chord.
"""

from benchmarks.objectives.partial_parity import Rows, Scores
from benchmarks.partial_tasks import Task
from benchmarks.solvers.partial_default import fitted

METHOD = "partial parity, loose"
OBJECTIVES = ["partial_parity"]
GAPS = [0.65, 0.55, 0.45, 0.35, 0.25]


def levels(notion: str, asked: list[int]) -> list[int]:
    """Rates of decisions only."""
    return asked if notion == "demographic_parity" else []


def fit(train: Rows, task: Task, *, notion: str, level: int, seed: int) -> Scores:
    """Train with default settings."""
    return fitted(train, fairness=notion, interval=task.interval, slack=GAPS[level - 1])
