"""Algorithms: each sees a problem and yields iterates; ``run`` does the rest."""

from fairconstrained.solvers.alm import ALM, SSLALM
from fairconstrained.solvers.augmented_lagrangian import AugmentedLagrangian
from fairconstrained.solvers.baselines import SGD, PenaltySGD
from fairconstrained.solvers.dpfermi import DPFERMI, ClosedFormNoise, NoisyTables
from fairconstrained.solvers.dpsgda import DPSGDA, Budget
from fairconstrained.solvers.fermi import FERMI
from fairconstrained.solvers.idca import IDCA, DirectSwitching
from fairconstrained.solvers.lbfgs import LBFGS
from fairconstrained.solvers.level_set import LevelSet, ProximalLevelSet
from fairconstrained.solvers.qcqp import QCQP
from fairconstrained.solvers.released_moments import ReleasedMoments
from fairconstrained.solvers.run import Iterate, Solution, Solver, Status, run
from fairconstrained.solvers.sequential_quadratic import SequentialQuadratic
from fairconstrained.solvers.sgda import SGDA
from fairconstrained.solvers.stochastic import constant, cosine
from fairconstrained.solvers.stochastic_ghost import StochasticGhost
from fairconstrained.solvers.stochastic_idca import StochasticIDCA
from fairconstrained.solvers.switching_subgradient import SwitchingSubgradient

__all__ = [
    "ALM",
    "DPFERMI",
    "DPSGDA",
    "FERMI",
    "IDCA",
    "LBFGS",
    "QCQP",
    "SGD",
    "SGDA",
    "SSLALM",
    "AugmentedLagrangian",
    "Budget",
    "ClosedFormNoise",
    "DirectSwitching",
    "Iterate",
    "LevelSet",
    "NoisyTables",
    "PenaltySGD",
    "ProximalLevelSet",
    "ReleasedMoments",
    "SequentialQuadratic",
    "Solution",
    "Solver",
    "Status",
    "StochasticGhost",
    "StochasticIDCA",
    "SwitchingSubgradient",
    "constant",
    "cosine",
    "run",
]
