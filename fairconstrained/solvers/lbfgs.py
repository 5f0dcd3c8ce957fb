"""Smooth minimisation by L-BFGS and Newton steps; solvers for problems without constraints."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

import numpy as np
import torch
from scipy.sparse.linalg import LinearOperator, cg
from torch import Generator, Tensor

from fairconstrained.arrays import Floats
from fairconstrained.numerics import ROUNDING, SUFFICIENT
from fairconstrained.problems.base import Problem
from fairconstrained.solvers.base import Iterate, Solver

Function = Callable[[Floats], tuple[float, Floats]]  # x to value and gradient
Point = tuple[Floats, float, Floats]  # x, value, gradient
Minimum = tuple[Floats, Floats]  # x, gradient

# With at most this many rows solutions are accurate to rounding, so that weights and repetitions,
# dense and sparse data agree to 1e-7, as the checks of scikit-learn require.
FEW_ROWS = 1000
# With more rows a temperature of 1 no longer misleads (decisions: temperature 1), and time matters
# more than another attempt.
MANY_ROWS = 10_000
# Iterations of one minimisation: the outer loop moves on from where it ends.
_MAX_ITER = 60
# Rounding error of gradient entries, and relative rounding error of a value: 45 roundings.
_NOISE = 1e-14


class Curvature:
    """L-BFGS approximation of a Hessian, which similar minimisations may share."""

    def __init__(self, memory: int = 20):
        self.pairs: deque[tuple[Floats, Floats, float]] = deque(maxlen=memory)
        self._scale = 1.0  # of the initial inverse Hessian, a multiple of the identity

    def forget(self) -> None:
        """Drop all pairs."""
        self.pairs.clear()
        self._scale = 1.0

    def learn(self, step: Floats, change: Floats) -> None:
        """Add a step and the change of the gradient along it, if the curvature is positive."""
        bend = float(step @ change)
        # Pairs of negative curvature would make the estimate indefinite; less than 1e-10 of both
        # lengths is rounding.
        if bend > 1e-10 * float(np.linalg.norm(step) * np.linalg.norm(change)):
            self.pairs.append((step, change, bend))
            self._scale = bend / float(change @ change)

    def learn_damped(self, step: Floats, change: Floats) -> None:
        """Add a pair, with Powell's damping if its curvature is too small."""
        expected, bend = float(step @ step) / self._scale, float(step @ change)
        if bend < 0.2 * expected:
            fraction = 0.8 * expected / (expected - bend)
            change = fraction * change + (1.0 - fraction) / self._scale * step
        self.learn(step, change)

    def inverse(self, columns: Floats) -> Floats:
        """Multiply a vector, or each column of a matrix, by the inverse Hessian (two loops)."""
        result, alphas = columns, []
        for step, change, bend in reversed(self.pairs):
            alphas.append(step @ result / bend)
            result = result - np.multiply.outer(change, alphas[-1])
        result = result * self._scale
        for (step, change, bend), alpha in zip(self.pairs, reversed(alphas), strict=True):
            result = result + np.multiply.outer(step, alpha - change @ result / bend)
        return result


def lbfgs(function: Function, x: Floats, *, accuracy: float, curvature: Curvature) -> Minimum:
    """Minimise until no gradient entry exceeds `accuracy`; return the point and its gradient."""
    point: Point = (np.asarray(x, dtype=float), *function(x))
    for _ in range(_MAX_ITER):
        x, _, gradient = point
        if np.abs(gradient).max(initial=0.0) <= accuracy:
            break
        reached = _line_search(function, point, curvature)
        # Pairs from a similar function may mislead here: try again without them.
        if reached is None and curvature.pairs:
            curvature.forget()
            reached = _line_search(function, point, curvature)
        if reached is None:
            break
        curvature.learn(reached[0] - x, reached[2] - gradient)
        point = reached
    return point[0], point[2]


def _line_search(function: Function, point: Point, curvature: Curvature) -> Point | None:
    """Return a point that meets the Wolfe conditions, by bisection, or None."""
    x, value, gradient = point
    direction = -curvature.inverse(gradient)
    slope = float(gradient @ direction)
    if not slope < 0:
        return None
    # Without pairs the scale of the Hessian is unknown: move by at most 1.
    step = 1.0 if curvature.pairs else min(1.0, 1.0 / float(np.linalg.norm(gradient)))
    low, high = 0.0, np.inf
    flatter = 0.9  # recommended for quasi-Newton steps (Nocedal and Wright, Section 3.1)
    for _ in range(50):  # a step across the edge of a steep penalty may need 30
        there = x + step * direction
        reached, gradient = function(there)
        slope_there = float(gradient @ direction)
        # If values differ by rounding only, slopes decide (Hager and Zhang 2005, condition T2).
        lower = reached <= value + SUFFICIENT * step * slope or (
            reached <= value + _NOISE * abs(value)
            and slope_there <= (2.0 * SUFFICIENT - 1.0) * slope
        )
        if not lower:
            high = step
        elif slope_there < flatter * slope:
            low = step
        else:
            return there, reached, gradient
        step = 0.5 * (low + high) if high < np.inf else 2.0 * step
    return None


def lbfgs_then_newton(
    function: Function, x: Floats, *, accuracy: float, curvature: Curvature
) -> Minimum:
    """Run :func:`lbfgs`, then Newton steps by conjugate gradients while they halve the gradient."""
    x, at_x = lbfgs(function, x, accuracy=accuracy, curvature=curvature)
    if np.abs(at_x).max() <= accuracy:
        return x, at_x

    def bend(direction: Floats) -> Floats:
        step = 1e-5 / max(float(np.linalg.norm(direction)), 1e-30)
        there, back = function(x + step * direction)[1], function(x - step * direction)[1]
        # Without curvature, as along equal intercepts of all classes, a step would be a quotient of
        # rounding errors.
        return (there - back) / (2.0 * step) + 1e-7 * direction

    # Without values, which differ by rounding near the minimum. Steps from smaller gradients are
    # rounding errors, and long where there is no curvature.
    while np.abs(at_x).max() > _NOISE:
        hessian = LinearOperator((len(x), len(x)), matvec=bend, dtype=x.dtype)
        step, _ = cg(hessian, at_x, rtol=1e-3, maxiter=_MAX_ITER)
        smaller = function(x - step)[1]
        if not np.abs(smaller).max() < 0.5 * np.abs(at_x).max():
            break
        x, at_x = x - step, smaller
    return x, at_x


class LBFGS(Solver):
    r"""Minimise :math:`f(x)` on all rows, without constraints.

    Notes
    -----
    A recorded iteration reduces the gradient to a tenth, by at most 60 iterations of L-BFGS, which
    keeps 20 pairs of steps and gradient changes. The residual is the largest entry of the gradient
    in the coordinates of the model. The last iterations go well beyond ``tol``, and to rounding
    with at most 1000 rows, so the result does not depend on the order of the data. For ERMI, which
    is not convex, it is a stationary point.

    References
    ----------
    Nocedal and Wright, Numerical Optimization, 2nd ed., Section 7.2.

    Examples
    --------
    >>> from fairconstrained.solvers import LBFGS
    >>> LBFGS()
    LBFGS()
    """

    requires = ("exact",)
    takes_known = True
    keeps_last = True  # the objective descends
    scope = "problems without constraints, without privacy: DPFermiClassifier(epsilon=None)"

    @classmethod
    def suits(cls, problem: Problem) -> bool:
        return problem.n_constraints == 0

    def iterate(
        self, problem: Problem, x: Tensor, dual: Tensor, tol: float, rng: Generator
    ) -> Iterator[Iterate]:
        """Yield whenever the gradient has fallen to a tenth; deterministic."""

        def objective(v: Floats) -> tuple[float, Floats]:
            terms = problem.linearize(torch.as_tensor(v).to(x))
            return terms.value.item(), terms.pullback(torch.ones_like(terms.value)).cpu().numpy()

        curvature, exact = Curvature(), problem.n_rows <= FEW_ROWS
        point, accuracy = x.cpu().numpy(), 0.1
        for _ in range(100):  # `stuck` ends the loop long before
            least = max(accuracy, tol)
            end, gradient = lbfgs(objective, point, accuracy=least, curvature=curvature)
            residual = float(np.abs(gradient).max())
            # Without a step at full accuracy rounding is the limit: more iterations are in vain.
            stuck = np.array_equal(end, point)
            if residual <= tol:
                last_steps, goal = (lbfgs_then_newton, ROUNDING) if exact else (lbfgs, 1e-3 * tol)
                end, gradient = last_steps(objective, end, accuracy=goal, curvature=curvature)
                residual = min(residual, float(np.abs(gradient).max()))
            point, there = end, torch.as_tensor(end).to(x)
            yield Iterate(there, *problem.evaluate(there), dual, residual)
            if stuck and accuracy <= tol:
                return
            accuracy *= 0.1
