"""Sequential quadratic programming with hard values."""

from __future__ import annotations

from collections.abc import Generator as Steps
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter

import numpy as np
import torch
from scipy.optimize import lsq_linear
from torch import Generator, Tensor

from fairconstrained.numerics import NEGLIGIBLE, SUFFICIENT
from fairconstrained.problems.base import Linearization, Problem, Sharpenable
from fairconstrained.problems.baselines import ERROR_TOL
from fairconstrained.solvers import base
from fairconstrained.solvers.augmented_lagrangian import AugmentedLagrangian
from fairconstrained.solvers.base import Iterate, best_feasible, violation
from fairconstrained.solvers.lbfgs import FEW_ROWS, Curvature
from fairconstrained.solvers.run import MOVABLE, repair, repair_candidates

# Constraints with at most this much room enter the quadratic program: each costs a gradient.
_NEAR_BINDING = 0.02
# Larger violations are halved in a step: thresholds for small gaps say nothing about large ones.
_LARGE_VIOLATION = 0.02
# Hard values move row by row: steps leave this much slack unused. Where nothing else is feasible,
# some leave a multiple of the excess besides: a row of a small group moves its ranks by more.
_ROOM, _MORE_ROOM = 5e-4, (2.0, 4.0, 8.0)
# Contradictory constraints would have infinite multipliers; bounded ones make a compromise, and a
# small bound keeps the error low where small groups contradict each other. The large one gives up
# error for constraints, for problems in which no step was feasible (decisions: two sharpnesses).
_LARGEST_MULTIPLIERS = (5.0, 100.0)
# Random moves end, from each of so many points, after so many moves in a row without progress, or
# when they have read so many rows, which limits their share of the time.
_N_MOVED, _PATIENCE, _ROWS_READ = 6, 150, 2_000_000
# Error that they accept for less of a violation; with twice as much they end at the same points.
_ERROR_OF_EXCESS = 4.0


@dataclass(eq=False, repr=False, kw_only=True)
class SequentialQuadratic(base.Solver):
    r"""Sequential quadratic programming with hard constraint values and soft gradients.

    With the objective f, the soft constraints c and the hard constraints h, a step from x solves

    .. math::

        \min_d \; \nabla f(x)' d + \tfrac12 d' B d \quad \text{s.t.} \quad
        h(x) + \nabla c(x) d \le 0

    with an L-BFGS estimate B of the Hessian of the Lagrangian. A line search backtracks along the
    arc to the second-order correction until :math:`f + \mu \lVert [c + s]_+ \rVert_1` decreases,
    where the shifts :math:`s = h(x) - c(x)` are those at the start of the step.

    Then soft values are sharpened, as sharper gradients are closer to changes of the hard values,
    and the next steps start from the last point. All of this is done twice, the second time with
    sharper values from the first step on, because the problem has many local optima. Nearly
    feasible points of less error than the best feasible one are moved at random until the last rows
    are within the slack: gradients do not see single rows. The result is the feasible point of
    least error. With up to 1000 rows the shifts are then fixed and the problem is solved to
    rounding. If no point is feasible, all is repeated with larger multipliers, and then
    :class:`AugmentedLagrangian` goes on for some iterations, and then steps that leave more of the
    slack unused. If that fails as well, the result is the point of least violation.

    The solver is for constraints whose hard values change almost continuously, such as gaps of
    distributions. From a start far from feasible it first solves problems with more slack, which
    halve the violation: a grid of thresholds for small gaps does not reach those of large gaps.

    Parameters
    ----------
    n_steps : int, default=15
        Largest number of steps at one sharpness.
    sharpenings : int, default=3
        Largest number of doublings of the sharpness, from each of the two first sharpnesses.

    Notes
    -----
    A step takes the gradient of every constraint that nearly binds, in one product with the data
    for gaps of distributions, and two to ten other passes. Problems without constraints are passed
    on to :class:`AugmentedLagrangian`.

    References
    ----------
    Nocedal and Wright, Numerical Optimization, 2nd ed., Chapter 18: Algorithm 18.3, (18.22) for the
    damping, Section 18.3 for the second-order correction.

    Examples
    --------
    >>> from fairconstrained.solvers import SequentialQuadratic
    >>> SequentialQuadratic(sharpenings=1)
    SequentialQuadratic(sharpenings=1)
    """

    requires = ("exact", "sharpness", "more_slack")
    takes_known = True
    scope = "problems with constraints, without privacy (epsilon=None)"

    n_steps: int = base.count(15)
    sharpenings: int = base.count(3, sign=">=")

    def iterate(
        self, problem: Sharpenable, x: Tensor, dual: Tensor, tol: float, rng: Generator
    ) -> Iterator[Iterate]:
        """Take steps at increasing sharpness, then solve for fixed shifts; deterministic."""
        if not len(dual):
            yield from AugmentedLagrangian().iterate(problem, x, dual, tol, rng)
            return
        sharper = problem.sharpened()
        # From one point, soft values of another sharpness lead to another local optimum; a warm
        # start is already close to the solution.
        alone = bool(dual.any()) or sharper is problem
        starts = [problem] if alone else [problem, sharper]
        seen: list[tuple[Sharpenable, Iterate]] = []
        for largest in _LARGEST_MULTIPLIERS:
            n_seen = len(seen)
            for start in starts:
                for pair in self._sharpening(start, x, dual, largest):
                    yield pair[1]
                    seen.append(pair)
            for pair in _moved_at_random(seen[n_seen:]):
                yield pair[1]
                seen.append(pair)
            best = best_feasible([iterate for _, iterate in seen])
            if best.feasible:
                break
        posed = next(posed for posed, iterate in seen if iterate is best)
        if not best.feasible:
            nearest = sorted((iterate for _, iterate in seen), key=attrgetter("excess"))[:3]
            yield (yield from self._rescued(best, posed, nearest, tol, rng))
        elif problem.n_rows <= FEW_ROWS:
            yield from self._settled(best, posed, tol)
        else:
            yield best

    def _sharpening(
        self, problem: Sharpenable, x: Tensor, dual: Tensor, largest: float
    ) -> Iterator[tuple[Sharpenable, Iterate]]:
        """Take steps at increasing sharpness; yield the problem of each with its iterate."""
        if not dual.any():
            for iterate in self._approach(problem, x, dual, largest):
                yield problem, iterate
                x = iterate.x
        for _ in range(self.sharpenings + 1):
            for iterate in self._moving(problem, x, dual, largest):
                yield problem, iterate
            x, dual = iterate.x, iterate.dual
            last, problem = problem, problem.sharpened()
            if problem is last:
                break

    def _rescued(
        self,
        best: Iterate,
        problem: Sharpenable,
        nearest: list[Iterate],
        tol: float,
        rng: Generator,
    ) -> Steps[Iterate, None, Iterate]:
        """Search for a feasible point by moving targets, on lines, and by steps with more room."""
        # Quadratic programs cannot cross infeasible regions; moving targets often can.
        solver, none, start = AugmentedLagrangian(), torch.zeros_like(best.dual), best
        nearest = [best, *nearest]
        for other in islice(solver.iterate(problem, best.x, none, tol, rng), 15):
            rescue = other._replace(residual=torch.inf)
            yield rescue
            best, nearest = best_feasible([best, rescue]), repair_candidates(nearest, rescue)
            if rescue.feasible:
                return best
        best = best_feasible([best, repair(problem, nearest)])
        for times in _MORE_ROOM:
            if best.feasible:
                break
            room = _ROOM + times * start.excess
            for iterate in self._moving(problem, start.x, none, _LARGEST_MULTIPLIERS[-1], room):
                yield iterate
                start = best_feasible([start, iterate])
            best = best_feasible([best, start])
        return best

    def _approach(
        self, problem: Sharpenable, x: Tensor, dual: Tensor, largest: float
    ) -> Iterator[Iterate]:
        """Halve the violation until it is small, by solving problems with more slack."""
        hard = problem.evaluate(x).hard
        for _ in range(10):  # ten halvings make .001 of the largest gap
            excess = violation(hard)
            if excess <= _LARGE_VIOLATION:
                break
            looser, start = problem.loosened(x, 0.5 * excess)
            if looser is problem:
                break
            steps = list(islice(self._moving(looser, start, dual, largest), 1 + self.n_steps // 2))
            _, x = problem.loosened(best_feasible(steps).x, 0.0)
            soft, hard = problem.evaluate(x)
            yield Iterate(x, soft, hard, dual, torch.inf)

    def _moving(
        self, problem: Problem, x: Tensor, dual: Tensor, largest: float, room: float = _ROOM
    ) -> Iterator[Iterate]:
        """Take steps with shifts that follow the hard values; residuals are infinite."""
        state = _SQPState(problem, x, dual, largest)
        soft, hard = problem.evaluate(x)
        shift, fraction, moved = hard[1:] - soft[1:], 1.0, torch.inf
        for _ in range(self.n_steps):
            iterate = state.step(shift + room)
            yield iterate._replace(residual=torch.inf)
            change = iterate.hard[1:] - iterate.soft[1:] - shift
            last, moved = moved, float(change.abs().max())
            # Then sharper soft values gain more than another step.
            if max(iterate.residual, moved) <= 2e-3 and iterate.feasible:
                break
            # Shifts that swing move by less and less, until they settle.
            fraction = fraction if moved < last else 0.7 * fraction
            shift = shift + fraction * change

    def _settled(self, start: Iterate, problem: Problem, tol: float) -> Iterator[Iterate]:
        """Solve with fixed shifts to rounding, so that the order of rows does not matter."""
        room = start.hard[1:].clamp(-_NEAR_BINDING, 0.0) * (start.dual > 0)
        shift = start.hard[1:] - start.soft[1:] - room
        exact = 1e-10  # residual of a solution that depends on the data alone
        for _ in range(3):  # each attempt tightens the constraints that the last one violated
            state = _SQPState(problem, start.x, start.dual, _LARGEST_MULTIPLIERS[-1])
            least = torch.inf
            for k in range(60):
                iterate = state.step(shift)
                yield iterate._replace(residual=torch.inf)
                if iterate.residual <= exact:
                    break
                # Eight steps must halve the residual: slower progress comes from rounding.
                if k % 8 == 7:
                    if iterate.residual > 0.5 * least:
                        break
                    least = iterate.residual
            if iterate.residual > tol:
                break
            if iterate.feasible:
                yield iterate
                return
            shift = shift + 2.0 * iterate.hard[1:].clamp_min(0.0)
        yield start  # no such solution is feasible


def _moved_at_random(
    seen: list[tuple[Sharpenable, Iterate]],
) -> Iterator[tuple[Sharpenable, Iterate]]:
    """Move nearly feasible points of little error at random until they are feasible; seeded."""
    best = best_feasible([iterate for _, iterate in seen])
    most = float(best.hard[0]) - ERROR_TOL if best.feasible else np.inf
    starts: list[tuple[Sharpenable, Iterate]] = []
    near = [pair for pair in seen if 0.0 < pair[1].excess <= MOVABLE]
    # Equal values of different orders of rows agree to so many digits.
    near.sort(key=lambda p: round(float(p[1].hard[0]) + _ERROR_OF_EXCESS * p[1].excess, 12))
    for problem, iterate in near:
        x = iterate.x
        # Where groups are large, a little more of the slack does not buy so much error.
        better = float(iterate.hard[0]) + iterate.excess < most
        # Points of the same place succeed or fail together.
        if better and all((x - start.x).norm() > 0.003 * x.norm() for _, start in starts):
            starts.append((problem, iterate))
    for problem, iterate in starts[:_N_MOVED]:
        yield problem, _towards_feasible(problem, iterate)


def _towards_feasible(problem: Problem, iterate: Iterate) -> Iterate:
    """Accept random moves that decrease the sum of the violations, in units of error."""
    rng, x = np.random.default_rng(0), iterate.x
    size = 0.01 * float(x.norm()) / len(x) ** 0.5

    def merit(hard: Tensor) -> float:
        # Equal merits of different orders of rows agree to so many digits.
        return round(float(hard[0] + _ERROR_OF_EXCESS * hard[1:].clamp_min(0.0).sum()), 12)

    least, failures = merit(iterate.hard), 0
    for _ in range(_ROWS_READ // problem.n_rows):
        if iterate.feasible or failures == _PATIENCE:
            break
        trial = x + size * torch.as_tensor(rng.standard_normal(len(x))).to(x)
        soft, hard = problem.evaluate(trial)
        value = merit(hard)
        failures, size = (0, 1.4 * size) if value < least else (failures + 1, 0.95 * size)
        if value <= least:  # equal merits are a way across a plateau
            x, least = trial, value
            iterate = Iterate(x, soft, hard, iterate.dual, torch.inf)
    return iterate


class _SQPState:
    """A point, the problem's terms there, and the curvature estimated from its steps."""

    def __init__(self, problem: Problem, x: Tensor, dual: Tensor, largest: float):
        self.problem, self.x, self.dual, self.largest = problem, x, dual, largest
        self.terms, self.curvature = problem.linearize(x), Curvature()

    def step(self, shift: Tensor) -> Iterate:
        """Take a step under the soft constraints plus `shift`."""
        terms, x = self.terms, self.x
        values = terms.value[1:] + shift
        program = _QuadraticProgram(terms, values, self.dual, self.curvature)
        excess = float(values.max())
        target = 0.5 * excess if excess > _LARGE_VIOLATION else 0.0
        direction, dual = program.solve(values - target, self.largest)
        # An l1 penalty is exact if it exceeds the largest multiplier.
        penalty = 2.0 * float(dual.max())
        merit = float(terms.value[0] + penalty * values.clamp_min(0.0).sum())
        ahead = (values + program.linear(direction)).clamp_min(0.0)
        saved = float((values.clamp_min(0.0) - ahead).sum())
        slope = float(program.gradient @ direction) - penalty * saved
        size, bend = 1.0, torch.zeros_like(x)
        for trial in range(10):
            point = x + size * direction + size**2 * bend
            there = self.problem.linearize(point)
            reached = there.value[1:] + shift
            # Merits that differ by rounding only are equal.
            allowed = merit + SUFFICIENT * size * slope + 1e-13
            if float(there.value[0] + penalty * reached.clamp_min(0.0).sum()) <= allowed:
                break
            if trial == 0:
                # Second-order correction: solve again with the values at the full step.
                left = reached - program.linear(direction)
                bend = program.solve(left - target, self.largest)[0] - direction
            else:
                size *= 0.5
        gradient = there.pullback(torch.cat((torch.ones_like(dual[:1]), dual)))
        change = gradient - (program.gradient + dual[program.near] @ program.slopes)
        self.curvature.learn_damped((point - x).cpu().numpy(), change.cpu().numpy())
        self.x, self.terms, self.dual = point, there, dual
        gap = base.not_complementary(dual, there.value[1:] + shift)
        residual = max(float(gradient.abs().max()), gap)
        return Iterate(point, *self.problem.evaluate(point), dual, residual)


class _QuadraticProgram:
    r"""Minimise :math:`g'd + d' B d / 2` s.t. values + slopes d <= 0 if nearly binding."""

    def __init__(self, terms: Linearization, values: Tensor, dual: Tensor, curvature: Curvature):
        self.near = torch.nonzero((values > -_NEAR_BINDING) | (dual > 0)).reshape(-1)
        self._size = len(values)
        gradients = terms.gradients(torch.cat((self.near.new_zeros(1), 1 + self.near)))
        self.gradient, self.slopes = gradients[0], gradients[1:]
        self.curved = torch.as_tensor(curvature.inverse(gradients.T.cpu().numpy())).to(values)
        gram = (self.slopes @ self.curved).cpu().numpy()  # (k, 1 + k)
        self._free, inner = gram[:, 0], gram[:, 1:]
        # With more constraints than variables the Gram matrix is singular.
        # The trace is zero where no constraint has a gradient.
        ridge = NEGLIGIBLE * (np.trace(inner) + 1e-30) / max(len(inner), 1)
        self._root = np.linalg.cholesky(inner + ridge * np.eye(len(inner)))

    def solve(self, values: Tensor, largest: float) -> tuple[Tensor, Tensor]:
        """Return direction and multipliers up to `largest`, (m,), for given constraint values."""
        dual = torch.zeros_like(values)
        if len(self.near):
            target = -np.linalg.solve(self._root, self._free - values[self.near].cpu().numpy())
            active = lsq_linear(self._root.T, target, bounds=(0.0, largest), method="bvls").x
            # A multiplier that is only rounding would put its constraint into the next program.
            active[active <= NEGLIGIBLE] = 0.0
            dual[self.near] = torch.as_tensor(active).to(values)
        return -(self.curved @ torch.cat((torch.ones_like(dual[:1]), dual[self.near]))), dual

    def linear(self, direction: Tensor) -> Tensor:
        """Return first-order changes of the constraints, (m,), with 0 far from binding."""
        changes = direction.new_zeros(self._size)
        changes[self.near] = self.slopes @ direction
        return changes
