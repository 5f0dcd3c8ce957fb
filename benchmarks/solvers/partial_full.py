"""The same notion over all percentiles: full parity.

The grid has the spacing of the interval's, as in G.10 of the paper.
"""

from benchmarks.objectives.partial_parity import Rows, Scores
from benchmarks.partial_tasks import Task
from benchmarks.solvers.partial_default import fitted

METHOD = "full parity"
OBJECTIVES = ["partial_parity"]
# Gaps of all ranks are smaller than gaps inside an interval: slacks for similar fairness there.
GAPS = {
    "statistical_parity": [0.3, 0.2, 0.12, 0.06, 0.02],
    "demographic_parity": [0.1, 0.05, 0.03, 0.02, 0.005],
}


def levels(notion: str, asked: list[int]) -> list[int]:
    """All."""
    return asked


def fit(train: Rows, task: Task, *, notion: str, level: int, seed: int) -> Scores:
    """Train with default settings."""
    return under_full_parity(train, task, notion, GAPS[notion][level - 1])


def under_full_parity(train: Rows, task: Task, notion: str, slack: float) -> Scores:
    """The same at any slack."""
    low, high = task.interval
    n_grid = round(10 / (high - low))
    return fitted(train, fairness=notion, interval=(0.0, 1.0), slack=slack, n_grid=n_grid)
