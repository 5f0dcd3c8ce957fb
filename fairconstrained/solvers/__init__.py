"""Algorithms: each sees a problem and yields iterates; ``run`` does the rest."""

from fairconstrained.solvers.augmented_lagrangian import AugmentedLagrangian
from fairconstrained.solvers.dpsgda import DPSGDA, Budget
from fairconstrained.solvers.level_set import LevelSet, ProximalLevelSet
from fairconstrained.solvers.qcqp import QCQP
from fairconstrained.solvers.run import Iterate, Solution, Solver, Status, run
from fairconstrained.solvers.sgda import SGDA

__all__ = [
    "DPSGDA",
    "QCQP",
    "SGDA",
    "AugmentedLagrangian",
    "Budget",
    "Iterate",
    "LevelSet",
    "ProximalLevelSet",
    "Solution",
    "Solver",
    "Status",
    "run",
]
