"""Problems as solvers see them, their linearizations and their rows."""

from fairconstrained.problems.base import (
    Evaluation,
    FixedSoftness,
    Linearization,
    separate_estimates,
)
from fairconstrained.problems.baselines import Baseline
from fairconstrained.problems.erm import FairERM
from fairconstrained.problems.rows import Rows

__all__ = [
    "Baseline",
    "Evaluation",
    "FairERM",
    "FixedSoftness",
    "Linearization",
    "Rows",
    "separate_estimates",
]
