"""Algorithms: each is given a problem and yields iterates; ``run`` does the rest."""

from fairconstrained.privacy import Budget
from fairconstrained.solvers.base import (
    Iterate,
    Solution,
    Solver,
    Status,
    check_solves,
    solves,
)
from fairconstrained.solvers.deterministic.augmented_lagrangian import AugmentedLagrangian
from fairconstrained.solvers.deterministic.idca import IDCA, DirectSwitching
from fairconstrained.solvers.deterministic.label_rounds import LabelRounds
from fairconstrained.solvers.deterministic.lbfgs import LBFGS
from fairconstrained.solvers.deterministic.qcqp import QCQP
from fairconstrained.solvers.deterministic.sequential_quadratic import SequentialQuadratic
from fairconstrained.solvers.private.dpfermi import DPFERMI, NoisyTables
from fairconstrained.solvers.private.dpsgda import DPSGDA
from fairconstrained.solvers.private.released_moments import ReleasedMoments
from fairconstrained.solvers.run import run
from fairconstrained.solvers.stochastic.alm import ALM, SSLALM
from fairconstrained.solvers.stochastic.base import constant, cosine
from fairconstrained.solvers.stochastic.early_stopped import EarlyStoppedSGDA
from fairconstrained.solvers.stochastic.fermi import FERMI
from fairconstrained.solvers.stochastic.level_set import LevelSet, ProximalLevelSet
from fairconstrained.solvers.stochastic.sgda import SGDA
from fairconstrained.solvers.stochastic.stochastic_ghost import StochasticGhost
from fairconstrained.solvers.stochastic.stochastic_idca import StochasticIDCA
from fairconstrained.solvers.stochastic.switching_subgradient import SwitchingSubgradient

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
    "Budget",
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
    "check_solves",
    "constant",
    "cosine",
    "run",
    "solves",
]
