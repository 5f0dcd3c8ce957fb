"""The view of solvers: problems, their linearizations and the rows they hold."""

from fairconstrained.problems.alternatives import Known
from fairconstrained.problems.base import (
    Evaluation,
    FixedSoftness,
    Linearization,
    separate_estimates,
)
from fairconstrained.problems.erm import FairERM
from fairconstrained.problems.rows import Rows

__all__ = [
    "Evaluation",
    "FairERM",
    "FixedSoftness",
    "Known",
    "Linearization",
    "Rows",
    "separate_estimates",
]
