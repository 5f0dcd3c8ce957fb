"""Smooth minimisation by L-BFGS and Newton steps; solvers for problems without constraints."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.sparse.linalg import LinearOperator, cg
from torch import Generator, Tensor

from fairconstrained.arrays import Floats
from fairconstrained.problems.base import Problem
from fairconstrained.solvers.base import Iterate, Solver, count

Function = Callable[[Floats], tuple[float, Floats]]  # x to value and gradient
Point = tuple[Floats, float, Floats]  # x, value, gradient
Minimum = tuple[Floats, Floats]  # x, gradient

FEW_ROWS = 1000  # with at most this many rows solutions are accurate to rounding
MANY_ROWS = 10_000  # with more rows time matters more than another attempt
_MAX_ITER = 60  # iterations of one minimisation
_NOISE = 1e-14  # rounding error of gradient entries, and relative rounding error of a value
ROUNDING = 1e-12  # bound on the rounding error of a gradient summed over few rows
_DECREASE, _FLATTER = 1e-4, 0.9  # constants of the Wolfe conditions
_MAX_TRIALS = 50  # of a line search; a step across the edge of a steep penalty may need 30
_DAMPING = 1e-7  # curvature added in Newton steps
_MIN_CURVATURE = 1e-10  # smaller relative curvature along a step is rounding error
_FIRST_ACCURACY = 1e-1  # accuracy of the solver's first iteration; later ones divide it by ten
_MAX_ACCURACIES = 100  # iterations of the solver

# LabelRounds
_SHIFT_STEP = 0.5  # fraction of a shift's step; with 1 rounds alternate at large penalties
_PATIENCE = 3  # rounds without a better one that end a sharpness
_INDEPENDENT = 1e-12  # mutual information of labels that is due to rounding
_SHARPENINGS = 4  # doublings of the sharpness
# Largest penalty weight at the first sharpness, and its growth per sharpness. If flat
# probabilities of many cells are exactly independent, little but constant predictions remains.
_FIRST_WEIGHT, _GROWTH = 100.0, 10.0
_REPAIRS = 10  # rounds of short moves at the end
_SHORT_MOVES = np.geomspace(1e-4, 0.3, 16)  # lengths of short moves, in units of scores


class Curvature:
    """L-BFGS approximation of a Hessian, which similar minimisations may share."""

    def __init__(self, memory: int = 20):
        self.pairs: deque[tuple[Floats, Floats, float]] = deque(maxlen=memory)
        self._scale = 1.0  # of the initial inverse Hessian, a multiple of the identity

    def learn(self, step: Floats, change: Floats) -> None:
        """Add a step and the change of the gradient along it, if the curvature is positive."""
        bend = float(step @ change)
        # Pairs of negative curvature would make the estimate indefinite.
        if bend > _MIN_CURVATURE * float(np.linalg.norm(step) * np.linalg.norm(change)):
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

    def forget(self) -> None:
        """Drop all pairs."""
        self.pairs.clear()
        self._scale = 1.0


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
    """Return a point that meets the Wolfe conditions, by bisection, or None.

    If values differ by rounding only, slopes decide (Hager and Zhang 2005, condition T2).
    """
    x, value, gradient = point
    direction = -curvature.inverse(gradient)
    slope = float(gradient @ direction)
    if not slope < 0:
        return None
    # Without pairs the scale of the Hessian is unknown: move by at most 1.
    step = 1.0 if curvature.pairs else min(1.0, 1.0 / float(np.linalg.norm(gradient)))
    low, high = 0.0, np.inf
    for _ in range(_MAX_TRIALS):
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


def lbfgs_then_newton(
    function: Function, x: Floats, *, accuracy: float, curvature: Curvature
) -> Minimum:
    """Run :func:`lbfgs`, then Newton steps by conjugate gradients while they halve the gradient.

    Newton steps use no values, because values near the minimum differ by rounding.
    """
    x, at_x = lbfgs(function, x, accuracy=accuracy, curvature=curvature)
    if np.abs(at_x).max() <= accuracy:
        return x, at_x

    def bend(direction: Floats) -> Floats:
        step = 1e-5 / max(float(np.linalg.norm(direction)), 1e-30)
        there, back = function(x + step * direction)[1], function(x - step * direction)[1]
        # Without curvature, as along equal intercepts of all classes, a step would be a quotient of
        # rounding errors.
        return (there - back) / (2.0 * step) + _DAMPING * direction

    # Steps from smaller gradients are rounding errors, and long where there is no curvature.
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
    with at most 1000 rows, so the result does not depend on the order of the data. Of ERMI, which
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
            terms = problem.linearize(torch.as_tensor(v, device=x.device))
            gradient = terms.pullback(torch.ones_like(terms.value))
            return terms.value.item(), gradient.cpu().numpy()

        curvature, exact = Curvature(), problem.n_rows <= FEW_ROWS
        point, accuracy = x.cpu().numpy(), _FIRST_ACCURACY
        for _ in range(_MAX_ACCURACIES):
            least = max(accuracy, tol)
            end, gradient = lbfgs(objective, point, accuracy=least, curvature=curvature)
            residual = float(np.abs(gradient).max())
            # Without a step at full accuracy rounding is the limit: more iterations are in vain.
            stuck = np.array_equal(end, point)
            if residual <= tol:
                last_steps = lbfgs_then_newton if exact else lbfgs
                goal = ROUNDING if exact else 1e-3 * tol
                end, gradient = last_steps(objective, end, accuracy=goal, curvature=curvature)
                residual = min(residual, float(np.abs(gradient).max()))
            point = end
            there = torch.as_tensor(point, device=x.device)
            yield Iterate(there, *problem.evaluate(there), dual, residual)
            if stuck and accuracy <= tol:
                return
            accuracy *= 0.1


@dataclass(eq=False, repr=False, kw_only=True)
class LabelRounds(LBFGS):
    r"""Minimise loss plus mutual information in rounds that shift its table to predicted labels.

    Class probabilities can be independent of the groups where labels are not. With tables M of
    probabilities and H of predicted labels, round k minimises, from where the last round ended,

    .. math:: \min_x \; f(x) + \lambda\, \mathrm{ERMI}(M(x) + S_k, N) , \qquad
        S_0 = 0, \quad S_1 = H(x_0) - M(x_0), \quad
        S_{k+1} = S_k + \tfrac12 \big( H(x_k) - M(x_k) - S_k \big) .

    Once the rounds settle, the penalty is the penalty of the labels, with slopes of probabilities.
    The best round has the least error plus penalty, both of predicted labels,

    .. math:: \frac{1}{\sum_i \omega_i} \sum_i \omega_i 1[\hat y_i \neq y_i]
        + \lambda\, \mathrm{ERMI}(H(x_k), N) .

    From there the rounds start again with probabilities that are twice as sharp, up to four times:
    the sharper, the nearer M to H. With more than 10,000 rows a sharpness that brings nothing
    better is the last. Short moves in x, along intercepts and against the slope of the penalty, end
    the run; they lower this objective and the mutual information of labels. The first round is the
    paper's problem if :math:`\lambda \leq 100`.

    Parameters
    ----------
    rounds : int, default=20
        Most rounds at each sharpness. They end where three bring nothing better, or labels are
        independent of the groups.

    Notes
    -----
    Each round is minimised by :class:`LBFGS`.

    Larger penalties are 100 at first, and ten times as large at each sharpness until they are
    reached: if there are hardly more parameters than equations of independence, exactly independent
    *probabilities* are nearly constant, and labels need not be.

    With more than 200,000 rows the first rounds use a subsample. The residual is that of the chosen
    round's minimisation, and infinite before the end. An iteration is one of :class:`LBFGS`.

    References
    ----------
    Paper (Lowy, Gupta and Razaviyayn, Section 3): mean class probabilities; here: moved to labels,
    because fairness is measured on these. ``LBFGS()`` minimises the paper's objective.

    Examples
    --------
    >>> from fairconstrained import DPFermiClassifier
    >>> from fairconstrained.datasets import make_biased_classification
    >>> from fairconstrained.solvers import LBFGS, LabelRounds
    >>> data = make_biased_classification(500, random_state=0)
    >>> def gap(solver):
    ...     clf = DPFermiClassifier(penalty=1e3, epsilon=None, solver=solver)
    ...     clf.fit(data.data, data.target, sensitive_features=data.sensitive_features)
    ...     return clf.violation_
    >>> gap(LabelRounds()) < gap(LBFGS())
    True
    """

    requires = ("label_tables",)
    scope = "a loss plus mutual information, without privacy: DPFermiClassifier(epsilon=None)"

    rounds: int = count(20)

    def iterate(
        self, problem: Any, x: Tensor, dual: Tensor, tol: float, rng: Generator
    ) -> Iterator[Iterate]:
        """Yield the iterates of all rounds and finally the best point; deterministic."""
        best, coarse = _Best(problem), problem.subsample()
        if coarse is problem:
            yield from self._sharpened(problem, x, dual, tol, rng, best)
        else:  # rounds on all rows start near the solution on a subsample
            rough = _Best(coarse)
            for _ in self._sharpened(coarse, x, dual, tol, rng, rough):
                pass
            posed = rough.posed.on_rows_of(problem).moved_to_labels(rough.x)
            yield from self._rounds(posed, rough.x, dual, tol, rng, best)
        best.repair()
        soft, hard = problem.evaluate(best.x)
        yield Iterate(best.x, soft, hard, dual, best.residual)

    def _sharpened(
        self, problem: Any, x: Tensor, dual: Tensor, tol: float, rng: Generator, best: _Best
    ) -> Iterator[Iterate]:
        """Yield the iterates of the rounds at increasing sharpness."""
        largest = _FIRST_WEIGHT
        posed = problem.with_weight(min(problem.weight, largest))
        for _ in range(1 + _SHARPENINGS):
            before = best.value
            yield from self._rounds(posed, x, dual, tol, rng, best)
            x = best.x
            stalled = best.value == before and problem.n_rows > MANY_ROWS
            sharper = posed.sharpened_at(x)
            if stalled or sharper is posed or best.information <= _INDEPENDENT:
                break
            largest *= _GROWTH
            posed = sharper.with_weight(min(problem.weight, largest))

    def _rounds(
        self, posed: Any, x: Tensor, dual: Tensor, tol: float, rng: Generator, best: _Best
    ) -> Iterator[Iterate]:
        """Yield the iterates of rounds at one sharpness, and record their results in `best`."""
        since = 0
        for _ in range(self.rounds):
            for iterate in super().iterate(posed, x, dual, tol, rng):
                yield iterate._replace(residual=torch.inf)
                if iterate.residual <= tol:
                    break
            x = iterate.x
            since = 0 if best.see(x, iterate.residual, posed) else since + 1
            moved = posed.moved_to_labels(x, _SHIFT_STEP)
            if moved is posed or since == _PATIENCE or best.information <= _INDEPENDENT:
                return
            posed = moved


class _Best:
    """The point of least error plus label penalty so far."""

    def __init__(self, problem: Any):
        self._problem = problem
        self.value = self.information = self.residual = torch.inf

    def see(self, x: Tensor, residual: float, posed: Any) -> bool:
        """Record the result of a round if it is better; return whether it is."""
        value, information = self._problem.label_objective(x)
        better: bool = value < self.value
        if better:
            self.x, self.value, self.information, self.residual = x, value, information, residual
            self.posed = posed
        return better

    def repair(self) -> None:
        """Make short moves while they bring labels closer to independence."""
        for _ in range(_REPAIRS if self.information > _INDEPENDENT else 0):
            near = self._problem.moved_to_labels(self.x)
            if near is self._problem:
                break
            terms = near.linearize(self.x)
            slope = terms.pullback(torch.ones_like(terms.value))
            directions = torch.eye(len(self.x)).to(self.x)[self._problem.offsets]
            directions = torch.vstack((directions, slope / slope.norm().clamp_min(1e-30)))
            start, least, information = self.x, self.value, self.information
            for direction in directions:
                for step in (*_SHORT_MOVES, *-_SHORT_MOVES):
                    x = start + step * direction
                    measured = self._problem.label_objective(x)
                    if measured[0] < self.value and measured[1] < information:
                        self.x, (self.value, self.information) = x, measured
            if self.value == least:
                break
