"""Intra-group pairwise fairness with the same objective, as ``partial_group_auc``."""

from benchmarks.objectives.partial_parity import Rows, Scores
from benchmarks.partial_tasks import Task
from benchmarks.solvers.partial_group_auc import SLACKS, fitted, levels

METHOD = "intra-group pairs"
OBJECTIVES = ["partial_parity"]

__all__ = ["METHOD", "OBJECTIVES", "fit", "levels"]


def fit(train: Rows, task: Task, *, notion: str, level: int, seed: int) -> Scores:
    """Train with default settings."""
    return fitted("intra_group", train, SLACKS[level - 1])
