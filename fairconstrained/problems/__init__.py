"""What solvers see: problems, their linearizations and the batches of rows they hold."""

from fairconstrained.problems.base import Batch, Problem, separate_estimates
from fairconstrained.problems.erm import FairERM
from fairconstrained.problems.linearization import Evaluation, Linearization

__all__ = [
    "Batch",
    "Evaluation",
    "FairERM",
    "Linearization",
    "Problem",
    "separate_estimates",
]
