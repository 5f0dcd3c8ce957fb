"""Convex quadratic programs with quadratic constraints, solved through their dual."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor

from fairconstrained.numerics import ROUNDING, SUFFICIENT
from fairconstrained.solvers.base import Iterate, Solver, not_complementary


class Quadratics(NamedTuple):
    r"""Convex quadratics :math:`\tfrac12 x' P_j x + q_j' x + r_j`, the objective first."""

    P: Tensor  # (1 + m, p, p)
    q: Tensor  # (1 + m, p)
    r: Tensor  # (1 + m,)

    def values(self, x: Tensor) -> Tensor:
        """Return values at x, (1 + m,)."""
        return 0.5 * (self.P @ x) @ x + self.q @ x + self.r

    def minimiser(self, dual: Tensor) -> tuple[Tensor, Tensor]:
        """Return the minimiser of the Lagrangian, and the Cholesky factor of its Hessian."""
        weights = torch.cat((dual.new_ones(1), dual))
        factor = torch.linalg.cholesky(torch.tensordot(weights, self.P, dims=1))
        return torch.cholesky_solve(-(weights @ self.q)[:, None], factor)[:, 0], factor


class QCQP(Solver):
    r"""Projected Newton ascent on the dual of a convex quadratic program.

    For multipliers :math:`\lambda` the minimiser of the Lagrangian solves one linear system,

    .. math:: x(\lambda) = -(P_0 + \textstyle\sum_j \lambda_j P_j)^{-1}
              (q_0 + \textstyle\sum_j \lambda_j q_j) .

    The gradient of the dual is the vector of constraint values at :math:`x(\lambda)`. Its Hessian
    is :math:`-J (P_0 + \sum_j \lambda_j P_j)^{-1} J'` with the Jacobian J of the constraints. Each
    iteration is a Newton step in the free multipliers, with backtracking along the projected arc
    and a d x d factorisation for each trial. True gaps can be far from those of the quadratic
    surrogate, which :class:`AugmentedLagrangian` corrects.

    Notes
    -----
    The residual is the largest entry of the KKT conditions. Stationarity holds to rounding.
    Multipliers above 1e8 mean that no point is feasible.

    References
    ----------
    Bertsekas (1982), Projected Newton methods for optimization problems with simple constraints.

    Examples
    --------
    >>> from fairconstrained import AUCFairClassifier
    >>> from fairconstrained.constraints import AUCParity
    >>> from fairconstrained.datasets import make_biased_classification
    >>> from fairconstrained.solvers import QCQP
    >>> data = make_biased_classification(500, random_state=0)
    >>> clf = AUCFairClassifier(AUCParity(surrogate="quadratic"), solver=QCQP())
    >>> clf.fit(data.data, data.target, sensitive_features=data.sensitive_features).converged_
    True
    """

    requires = ("quadratic_forms",)
    assumes = "is_quadratic"
    takes_known = True
    keeps_last = True  # the dual increases, and the true gaps are not used
    scope = (
        "quadratic objectives and constraints: AUCFairClassifier(AUCParity(..., "
        "surrogate='quadratic')) with model='linear' and objective='auc', without privacy "
        "(epsilon=None)"
    )

    def iterate(
        self, problem: Any, x: Tensor, dual: Tensor, tol: float, rng: Generator
    ) -> Iterator[Iterate]:
        """Yield after each Newton step on the dual; deterministic, without rows."""
        quadratics = Quadratics(*problem.quadratic_forms())
        x, factor = quadratics.minimiser(dual)
        while True:
            value = quadratics.values(x)[1:]
            soft, hard = problem.evaluate(x)
            yield Iterate(x, soft, hard, dual, not_complementary(dual, value))
            # A Newton step in the free multipliers; the others stay at zero.
            free = (dual > 0) | (value > 0)
            J = (quadratics.P @ x + quadratics.q)[1:][free]  # the Jacobian of the free constraints
            curvature = J @ torch.cholesky_solve(J.T, factor)
            curvature.diagonal().add_(1e-12 * (1.0 + curvature.diagonal().sum()))
            step = torch.zeros_like(dual)
            step[free] = torch.linalg.solve(curvature, value[free])
            moved = _line_search(quadratics, x, dual, step)
            # Without a feasible point the dual grows without bound.
            if moved is None or float(moved[1].max()) > 1e8:
                return
            (x, factor), dual = moved


def _line_search(
    quadratics: Quadratics, x: Tensor, dual: Tensor, step: Tensor
) -> tuple[tuple[Tensor, Tensor], Tensor] | None:
    """Halve the projected step until the dual increases enough; return None if it never does."""
    values = quadratics.values(x)
    before, size = float(values[0] + dual @ values[1:]), 1.0
    while size > ROUNDING:  # shorter steps change the dual by rounding only
        moved = (dual + size * step).clamp_min(0.0)
        at = quadratics.minimiser(moved)
        there = quadratics.values(at[0])
        promised = float(values[1:] @ (moved - dual))
        reached = float(there[0] + moved @ there[1:])
        if reached >= before + SUFFICIENT * promised and promised > 0:
            return at, moved
        size *= 0.5
    return None
