"""What solvers see: problems, their linearizations and the batches of rows they hold."""

from fairconstrained.problems.base import (
    Batch,
    DifferenceOfConvex,
    Divisible,
    Evaluation,
    FixedSoftness,
    Linearization,
    Loosenable,
    Problem,
    QuadraticProgram,
    SampledProblem,
    Sharpenable,
    one_in,
    separate_estimates,
    with_penalty,
)
from fairconstrained.problems.erm import FairERM
from fairconstrained.problems.known import Known

__all__ = [
    "Batch",
    "DifferenceOfConvex",
    "Divisible",
    "Evaluation",
    "FairERM",
    "FixedSoftness",
    "Known",
    "Linearization",
    "Loosenable",
    "Problem",
    "QuadraticProgram",
    "SampledProblem",
    "Sharpenable",
    "one_in",
    "separate_estimates",
    "with_penalty",
]
