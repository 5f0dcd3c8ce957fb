"""Algorithms: each yields iterates of a problem; ``run`` does the rest."""

from fairconstrained.solvers.alm import ALM, SSLALM, SwitchingSubgradient
from fairconstrained.solvers.augmented_lagrangian import AugmentedLagrangian
from fairconstrained.solvers.base import Iterate, Solution, Solver, Status
from fairconstrained.solvers.fermi import FERMI, LabelRounds
from fairconstrained.solvers.idca import IDCA, DirectSwitching, StochasticIDCA
from fairconstrained.solvers.lbfgs import LBFGS
from fairconstrained.solvers.level_set import LevelSet, ProximalLevelSet
from fairconstrained.solvers.private.dpfermi import DPFERMI, NoisyTables
from fairconstrained.solvers.private.dpsgda import DPSGDA
from fairconstrained.solvers.private.released_moments import ReleasedMoments
from fairconstrained.solvers.qcqp import QCQP
from fairconstrained.solvers.run import run
from fairconstrained.solvers.sequential_quadratic import SequentialQuadratic
from fairconstrained.solvers.sgda import SGDA, EarlyStoppedSGDA
from fairconstrained.solvers.stochastic import constant, cosine
from fairconstrained.solvers.stochastic_ghost import StochasticGhost

__all__ = [
    "ALM",
    "DPFERMI",
    "DPSGDA",
    "FERMI",
    "IDCA",
    "LBFGS",
    "QCQP",
    "SGDA",
    "SSLALM",
    "AugmentedLagrangian",
    "DirectSwitching",
    "EarlyStoppedSGDA",
    "Iterate",
    "LabelRounds",
    "LevelSet",
    "NoisyTables",
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
