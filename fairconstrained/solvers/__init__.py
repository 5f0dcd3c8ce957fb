"""Algorithms: each sees a problem and yields iterates; ``run`` does the rest."""

from fairconstrained.solvers.augmented_lagrangian import AugmentedLagrangian
from fairconstrained.solvers.qcqp import QCQP
from fairconstrained.solvers.run import Iterate, Solution, Solver, Status, run
from fairconstrained.solvers.sgda import SGDA

__all__ = ["QCQP", "SGDA", "AugmentedLagrangian", "Iterate", "Solution", "Solver", "Status", "run"]
