r"""The subproblems of the ghost method: few constraints, many variables, so their duals are small.

With values :math:`c` and Jacobian :math:`A` of m constraints in n variables:

* :func:`least_level`, a linear programme: how far the linearised constraints can be met;
* :func:`direction`, a quadratic programme: the step that meets them up to a level.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import linprog, minimize, nnls

from fairconstrained.arrays import Floats

_INFEASIBLE = 1e-12


class Step(NamedTuple):
    """A direction and the multipliers of the linearised constraints."""

    d: Floats  # (n,)
    dual: Floats  # (m,)


def least_level(value: Floats, jacobian: Floats, radius: float) -> float:
    r"""Smallest violation within reach: :math:`\min_{t \ge 0} t` s.t. :math:`c + A d \le t`,
    :math:`\lVert d \rVert_\infty \le` `radius`.

    It is zero, and no programme is solved, if the constraints hold or the shortest step to them is
    within reach, which is so in nearly all steps of a network.

    Examples
    --------
    >>> import numpy as np
    >>> from fairconstrained.solvers.stochastic.directions import least_level
    >>> least_level(np.array([1.0]), np.array([[0.5, -0.5]]), radius=0.5)
    0.5
    """
    if not len(value) or value.max() <= 0:
        return 0.0
    n = jacobian.shape[1]
    shortest = _without_box(np.zeros(n), value, jacobian, 0.0, 1.0)
    if shortest is not None and np.abs(shortest.d).max() <= radius:
        return 0.0
    found = linprog(
        np.r_[np.zeros(n), 1.0],
        A_ub=np.column_stack((jacobian, -np.ones(len(value)))),
        b_ub=-value,
        bounds=[(-radius, radius)] * n + [(0.0, None)],
    )
    return float(found.fun)


def direction(
    gradient: Floats, value: Floats, jacobian: Floats, level: float, curvature: float, bound: float
) -> Step:
    r"""Solve :math:`\min_d g'd + \tfrac{\tau}{2} \lVert d \rVert^2` s.t. :math:`c + A d \le`
    `level`, :math:`\lVert d \rVert_\infty \le` `bound`.

    For multipliers v the minimiser is :math:`d(v) = \mathrm{clip}(-(g + A'v) / \tau)`, and the
    dual is concave in m variables. If no bound is active it is a nonnegative least squares problem.

    Parameters
    ----------
    gradient : ndarray of shape (n,)
    value : ndarray of shape (m,)
    jacobian : ndarray of shape (m, n)
    level : float
    curvature : float
        :math:`\tau`.
    bound : float

    Examples
    --------
    >>> import numpy as np
    >>> from fairconstrained.solvers.stochastic.directions import direction
    >>> step = direction(np.array([1.0, 0.0]), np.array([0.5]), np.array([[-1.0, 0.0]]), 0, 1, 10)
    >>> np.round(step.d, 9) + 0.0, np.round(step.dual, 9)
    (array([0.5, 0. ]), array([1.5]))
    """
    if not len(value):
        return Step(np.clip(-gradient / curvature, -bound, bound), np.zeros(0))
    step = _without_box(gradient, value, jacobian, level, curvature)
    if step is not None and np.abs(step.d).max() <= bound:
        return step

    def at(dual: Floats) -> Floats:
        return np.clip(-(gradient + dual @ jacobian) / curvature, -bound, bound)

    def negative_dual(dual: Floats) -> tuple[float, Floats]:
        d = at(dual)
        excess = value - level + jacobian @ d
        return -float(gradient @ d + 0.5 * curvature * d @ d + dual @ excess), -excess

    start = np.zeros(len(value)) if step is None else step.dual
    options = {"gtol": 1e-10, "ftol": 0.0, "maxiter": 1000}
    bounds = [(0.0, None)] * len(value)
    dual = minimize(
        negative_dual, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options
    ).x
    return Step(at(dual), dual)


def _without_box(
    gradient: Floats, value: Floats, jacobian: Floats, level: float, curvature: float
) -> Step | None:
    """Without bounds on d, by least distance programming; None if there is no such step.

    Lawson and Hanson, Solving Least Squares Problems, Chapter 23: the shortest u with A u <= h
    follows from the nonnegative least squares problem min |(-A' ; -h') v - e|, e the last unit
    vector; here u = d + g / tau.
    """
    h = level - value + jacobian @ gradient / curvature
    # Only norms matter: for A' = QR the norm of R v is that of -A'v, and R has m rows, not n.
    system = np.vstack((np.linalg.qr(jacobian.T)[1], -h))
    unit = np.zeros(len(system))
    unit[-1] = 1.0
    v, _ = nnls(system, unit)
    rest = 1.0 + h @ v  # minus the last entry of the residual
    if rest <= _INFEASIBLE:
        return None
    dual = curvature * v / rest
    return Step(-(gradient + dual @ jacobian) / curvature, dual)
