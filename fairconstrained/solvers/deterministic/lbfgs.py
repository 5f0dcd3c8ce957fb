"""Deterministic minimisation of problems without constraints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from numbers import Integral

import numpy as np
import torch
from torch import Generator, Tensor

from fairconstrained.arrays import Floats
from fairconstrained.problems import Problem
from fairconstrained.solvers.base import Iterate, Solver, check_numbers, last
from fairconstrained.solvers.deterministic.minimise import (
    FEW_ROWS,
    ROUNDING,
    Curvature,
    Effort,
    lbfgs,
    lbfgs_then_newton,
)

_FIRST = 1e-1  # accuracy of the first iteration; each later one is ten times as accurate
_MOST = 100  # iterations


class LBFGS(Solver):
    r"""Minimise :math:`f(x)` on all rows, without constraints.

    Parameters
    ----------
    inner_max_iter : int, default=60
        Largest number of L-BFGS iterations in one recorded iteration, which reduces the gradient to
        a tenth.
    memory : int, default=20
        Number of pairs of steps and gradient changes that L-BFGS keeps.

    Notes
    -----
    The residual is the largest entry of the gradient in the coordinates of the model. The last
    iterations go well beyond ``tol``, and to rounding with at most 1000 rows, so the result depends
    on the data and not on their order. If the objective is not convex, as with ERMI, the result is
    a stationary point.

    References
    ----------
    Nocedal and Wright, Numerical Optimization, 2nd ed., Section 7.2.

    Examples
    --------
    >>> from fairconstrained import DPFermiClassifier
    >>> from fairconstrained.datasets import make_biased_classification
    >>> from fairconstrained.solvers import LBFGS
    >>> data = make_biased_classification(500, random_state=0)
    >>> clf = DPFermiClassifier(epsilon=None, solver=LBFGS())
    >>> clf.fit(data.data, data.target, sensitive_features=data.sensitive_features).converged_
    True
    """

    requires = ("exact",)
    scope = "problems without constraints, without privacy: DPFermiClassifier(epsilon=None)"

    def __init__(self, *, inner_max_iter: int = 60, memory: int = 20):
        self.inner_max_iter = inner_max_iter
        self.memory = memory

    def check(self, problem: Problem) -> None:
        """Raise ValueError for a bad parameter."""
        check_numbers(self, positive=("inner_max_iter", "memory"), kind=Integral)

    @classmethod
    def suits(cls, problem: Problem) -> bool:
        """Whether there are no constraints."""
        return problem.n_constraints == 0

    def iterate(
        self, problem: Problem, x: Tensor, dual: Tensor, tol: float, rng: Generator
    ) -> Iterator[Iterate]:
        """Yield whenever the gradient has fallen to a tenth; deterministic."""

        def objective(v: Floats) -> tuple[float, Floats]:
            terms = problem.linearize(torch.as_tensor(v, device=x.device))
            gradient = terms.pullback(torch.ones_like(terms.value))
            return terms.value.item(), gradient.cpu().numpy()

        effort = Effort(self.inner_max_iter, Curvature(self.memory))
        exact = problem.n_rows <= FEW_ROWS
        point, accuracy = x.cpu().numpy(), _FIRST
        for _ in range(_MOST):
            found = lbfgs(objective, point, accuracy=max(accuracy, tol), effort=effort)
            residual = float(np.abs(objective(found)[1]).max())
            stuck = np.array_equal(found, point)
            if residual <= tol:
                last_steps = lbfgs_then_newton if exact else lbfgs
                goal = ROUNDING if exact else 1e-3 * tol
                found = last_steps(objective, found, accuracy=goal, effort=effort)
                residual = min(residual, float(np.abs(objective(found)[1]).max()))
            point = found
            there = torch.as_tensor(point, device=x.device)
            soft, hard = problem.evaluate(there)
            yield Iterate(there, soft, hard, dual, residual)
            if stuck and accuracy <= tol:
                return
            accuracy = 0.1 * accuracy

    def select(self, iterates: Sequence[Iterate]) -> Iterate:
        """Choose the last iterate, since the objective descends."""
        return last(iterates)
