"""Smooth minimisation by L-BFGS, and to rounding by Newton steps: what deterministic solvers share.

Functions are of flat arrays, ``x -> (value, gradient)``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.sparse.linalg import LinearOperator, cg

__all__ = ["FEW_ROWS", "ROUNDING", "Effort", "Function", "Vector", "lbfgs", "lbfgs_then_newton"]

Vector = NDArray[np.float64]
Gradient = Callable[[Vector], Vector]
Function = Callable[[Vector], tuple[float, Vector]]

FEW_ROWS = 1000
_NOISE = 1e-14
ROUNDING = 1e-12  # of a gradient summed over few rows, with a margin


class Effort(NamedTuple):
    """Most iterations, and pairs kept."""

    max_iter: int
    memory: int


def lbfgs(function: Function, x: Vector, *, accuracy: float, effort: Effort) -> Vector:
    """Iterate until no entry of the gradient exceeds `accuracy`, or as often as is allowed."""
    options = {
        "maxiter": effort.max_iter,
        "maxcor": effort.memory,
        "gtol": accuracy,
        "ftol": 0.0,
        # A step across a penalty's cliff may need 30 trials: giving up at 20 left x as it was.
        "maxls": 50,
    }
    found: Vector = minimize(function, x, jac=True, method="L-BFGS-B", options=options).x
    return found


def lbfgs_then_newton(function: Function, x: Vector, *, accuracy: float, effort: Effort) -> Vector:
    """As :func:`lbfgs`, and on to where line searches see nothing but rounding."""
    x = lbfgs(function, x, accuracy=accuracy, effort=effort)
    gradient = function(x)[1]
    if np.abs(gradient).max() <= 10.0 * accuracy:
        return x
    return _newton(lambda v: function(v)[1], x, gradient, effort.max_iter)


def _newton(gradient: Gradient, x: Vector, at_x: Vector, max_iter: int) -> Vector:
    """Newton steps by conjugate gradients, from gradients alone, while they at least halve them.

    Line searches compare values, which near the minimum differ by rounding only.
    """

    def curvature(direction: Vector) -> Vector:
        step = 1e-5 / max(float(np.linalg.norm(direction)), 1e-30)
        there, back = gradient(x + step * direction), gradient(x - step * direction)
        return (there - back) / (2.0 * step)

    # Steps from less are made of rounding: along directions without curvature they are long.
    while np.abs(at_x).max() > _NOISE:
        hessian = LinearOperator((len(x), len(x)), matvec=curvature, dtype=x.dtype)
        step, _ = cg(hessian, at_x, rtol=1e-3, maxiter=max_iter)
        smaller = gradient(x - step)
        if not np.abs(smaller).max() < 0.5 * np.abs(at_x).max():
            break
        x, at_x = x - step, smaller
    return x
