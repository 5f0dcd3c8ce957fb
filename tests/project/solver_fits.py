"""Which solver fits which problem, as ``mypy --strict`` sees it; CI checks it, nothing runs it.

A line that is wrong carries ``type: ignore``: mypy reports it should it become right.
"""

from torch import Generator, Tensor

from fairconstrained.problems import FairERM
from fairconstrained.problems.fermi import FermiERM
from fairconstrained.problems.moments import MomentERM
from fairconstrained.problems.private.erm import PrivateERM
from fairconstrained.solvers import DPSGDA, FERMI, QCQP, SGDA, AugmentedLagrangian, run
from fairconstrained.training.problem import ModuleProblem


def fits(erm: FairERM, module: ModuleProblem, moments: MomentERM, x: Tensor, g: Generator) -> None:
    """Problems with constraints."""
    run(AugmentedLagrangian(), erm, x, x, g, max_iter=None, tol=1e-4)
    run(SGDA(), erm, x, x, g, max_iter=None, tol=1e-4)
    run(SGDA(), module, x, x, g, max_iter=None, tol=1e-4)
    run(QCQP(), moments, x, x, g, max_iter=None, tol=1e-4)
    run(QCQP(), erm, x, x, g, max_iter=None, tol=1e-4)  # type: ignore[misc]
    run(SGDA(), moments, x, x, g, max_iter=None, tol=1e-4)  # type: ignore[misc]


def others(private: PrivateERM, penalised: FermiERM, x: Tensor, g: Generator) -> None:
    """Private problems, and problems with a penalty."""
    run(DPSGDA(), private, x, x, g, max_iter=None, tol=1e-4)
    run(FERMI(), penalised, x, x, g, max_iter=None, tol=1e-4)
    run(SGDA(), private, x, x, g, max_iter=None, tol=1e-4)  # type: ignore[misc]
    run(AugmentedLagrangian(), penalised, x, x, g, max_iter=None, tol=1e-4)  # type: ignore[misc]
