"""Smooth minimisation by L-BFGS, and to rounding by Newton steps.

Functions map a flat array x to (value, gradient).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.sparse.linalg import LinearOperator, cg

from fairconstrained.arrays import Floats

Gradient = Callable[[Floats], Floats]
Function = Callable[[Floats], tuple[float, Floats]]
Point = tuple[Floats, float, Floats]  # x, value, gradient

FEW_ROWS = 1000
_NOISE = 1e-14  # rounding error of the entries of a gradient, and relative one of a value
ROUNDING = 1e-12  # rounding error of a gradient summed over few rows, with a margin
_DECREASE, _FLATTER = 1e-4, 0.9  # constants of the Wolfe conditions
_TRIALS = 50  # a step across the edge of a steep penalty may need 30
_FLAT = 1e-7  # curvature added in Newton steps
_BENT = 1e-10  # smaller curvature along a step, relative to the norms, is rounding error


class Curvature:
    """L-BFGS approximation of a Hessian, from the last steps and changes of the gradient.

    It can be kept from one minimisation to the next if the functions are similar.

    Examples
    --------
    >>> import numpy as np
    >>> from fairconstrained.solvers.deterministic.minimise import Curvature
    >>> curvature = Curvature(memory=5)
    >>> curvature.learn(np.array([1.0, 0.0]), np.array([4.0, 0.0]))
    >>> curvature.direction(np.array([4.0, 0.0]))
    array([-1.,  0.])
    """

    def __init__(self, memory: int):
        self._pairs: deque[tuple[Floats, Floats, float]] = deque(maxlen=memory)

    def __len__(self) -> int:
        return len(self._pairs)

    def forget(self) -> None:
        """Discard all pairs."""
        self._pairs.clear()

    def learn(self, step: Floats, change: Floats) -> None:
        """Add a step and the change of the gradient along it, if the curvature is positive."""
        bend = float(step @ change)
        if bend > _BENT * float(np.linalg.norm(step) * np.linalg.norm(change)):
            self._pairs.append((step, change, bend))

    def learn_damped(self, step: Floats, change: Floats) -> None:
        """Add any pair, after Powell's damping if its curvature is too small."""
        expected, bend = float(step @ step) / self._scale, float(step @ change)
        if bend < 0.2 * expected:
            fraction = 0.8 * expected / (expected - bend)
            change = fraction * change + (1.0 - fraction) / self._scale * step
        self.learn(step, change)

    def direction(self, gradient: Floats) -> Floats:
        """Quasi-Newton direction."""
        return self.inverse(-gradient)

    def inverse(self, columns: Floats) -> Floats:
        """The inverse Hessian times a vector, or times each column of a matrix.

        It is the two-loop recursion (Nocedal and Wright, Numerical Optimization, Algorithm 7.4).
        """
        result, alphas = columns, []
        for step, change, bend in reversed(self._pairs):
            alphas.append(step @ result / bend)
            result = result - np.multiply.outer(change, alphas[-1])
        result = result * self._scale
        for (step, change, bend), alpha in zip(self._pairs, reversed(alphas), strict=True):
            result = result + np.multiply.outer(step, alpha - change @ result / bend)
        return result

    @property
    def _scale(self) -> float:
        """Scale of the identity matrix from which the recursion starts."""
        if not self._pairs:
            return 1.0
        _, change, bend = self._pairs[-1]
        return bend / float(change @ change)


class Effort(NamedTuple):
    """The largest number of iterations, and the curvature that each of them adds to."""

    max_iter: int
    curvature: Curvature


def lbfgs(function: Function, x: Floats, *, accuracy: float, effort: Effort) -> Floats:
    """Iterate until no entry of the gradient exceeds `accuracy`, or up to `max_iter` times."""
    point: Point = (np.asarray(x, dtype=float), *function(x))
    curvature = effort.curvature
    for _ in range(effort.max_iter):
        x, _, gradient = point
        if np.abs(gradient).max(initial=0.0) <= accuracy:
            break
        found = _line_search(function, point, curvature)
        if found is None and len(curvature):
            curvature.forget()
            found = _line_search(function, point, curvature)
        if found is None:
            break
        curvature.learn(found[0] - x, found[2] - gradient)
        point = found
    return point[0]


def _line_search(function: Function, point: Point, curvature: Curvature) -> Point | None:
    """Bisection for the Wolfe conditions; None if no step meets them.

    Where values differ by rounding only, slopes decide whether they decrease (Hager and Zhang 2005,
    "A new conjugate gradient method with guaranteed descent and an efficient line search", T2).
    """
    x, value, gradient = point
    direction = curvature.direction(gradient)
    slope = float(gradient @ direction)
    if not slope < 0:
        return None
    step = 1.0 if len(curvature) else min(1.0, 1.0 / float(np.linalg.norm(gradient)))
    low, high = 0.0, np.inf
    for _ in range(_TRIALS):
        there = x + step * direction
        reached, gradient = function(there)
        slope_there = float(gradient @ direction)
        lower = reached <= value + _DECREASE * step * slope or (
            reached <= value + _NOISE * abs(value)
            and slope_there <= (2.0 * _DECREASE - 1.0) * slope
        )
        if not lower:
            high = step
        elif slope_there < _FLATTER * slope:
            low = step
        else:
            return there, reached, gradient
        step = 0.5 * (low + high) if high < np.inf else 2.0 * step
    return None


def lbfgs_then_newton(function: Function, x: Floats, *, accuracy: float, effort: Effort) -> Floats:
    """Run :func:`lbfgs`, then go on by Newton steps to where values differ by rounding only."""
    x = lbfgs(function, x, accuracy=accuracy, effort=effort)
    gradient = function(x)[1]
    if np.abs(gradient).max() <= accuracy:
        return x
    return _newton(lambda v: function(v)[1], x, gradient, effort.max_iter)


def _newton(gradient: Gradient, x: Floats, at_x: Floats, max_iter: int) -> Floats:
    """Newton steps by conjugate gradients, as long as each at least halves the gradient.

    They use gradients only, because values near the minimum differ by rounding.
    """

    def curvature(direction: Floats) -> Floats:
        step = 1e-5 / max(float(np.linalg.norm(direction)), 1e-30)
        there, back = gradient(x + step * direction), gradient(x - step * direction)
        # Where there is no curvature, as along equal intercepts of all classes, a step would be a
        # quotient of rounding errors.
        return (there - back) / (2.0 * step) + _FLAT * direction

    # Steps from smaller gradients are rounding errors, and long where there is no curvature.
    while np.abs(at_x).max() > _NOISE:
        hessian = LinearOperator((len(x), len(x)), matvec=curvature, dtype=x.dtype)
        step, _ = cg(hessian, at_x, rtol=1e-3, maxiter=max_iter)
        smaller = gradient(x - step)
        if not np.abs(smaller).max() < 0.5 * np.abs(at_x).max():
            break
        x, at_x = x - step, smaller
    return x
