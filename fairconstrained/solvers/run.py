"""The loop that runs every solver, and searches for feasible points near its result.

Labels change row by row, so there are many feasible points close to a slightly infeasible one, and
a line search over all label changes finds them at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor
from torch.nn.functional import one_hot

from fairconstrained.distributed import one_thread
from fairconstrained.exceptions import DivergenceError
from fairconstrained.numerics import NEGLIGIBLE
from fairconstrained.problems.base import Sharpenable
from fairconstrained.problems.baselines import ERROR_TOL, Baseline
from fairconstrained.solvers import base
from fairconstrained.solvers.base import Iterate, Solution, Solver, Status

# Larger violations do not come from single rows; neither line moves nor random ones remove them.
MOVABLE = 0.05


def run(
    solver: Solver,
    problem: Any,
    x: Tensor,
    dual: Tensor,
    rng: Generator,
    *,
    max_iter: int | None,
    tol: float,
    callbacks: Sequence[base.Callback] = (),
    known: Sequence[Baseline] = (),
    record: Callable[[Iterate], Any] | None = None,
) -> Solution:
    """Run `solver` on `problem` until it converges, ends, or is stopped.

    Parameters
    ----------
    solver : Solver
    problem : object
        A problem with the capabilities that the solver requires.
    x : Tensor of shape (n_variables,)
        Starting point.
    dual : Tensor of shape (m,)
        Starting multipliers.
    rng : Generator
        The only source of randomness, except for dropout in networks.
    max_iter : int or None
        Largest number of iterations. None runs until the solver ends.
    tol : float
        The run ends when the residual of an iterate is at most `tol`.
    callbacks : sequence of callables
        Each is called with every iterate. Returning True ends the run. Exceptions pass through.
    known : sequence of Baseline
        Points that the result must not be worse than, each with the difference that matters.
        Infeasible ones are moved along their offsets. The problem must be ``Sharpenable``.
    record : callable, optional
        Returns the history's entry for an iterate; default: the iterate itself.

    Returns
    -------
    Solution
        The last iterate if the run converged, otherwise the one that the solver selects. A
        baseline is better if its violation is lower by more than 0.001 or, where both are feasible,
        its hard objective by ``Baseline.by``. It replaces the result, as one more iterate
        of status ``Status.KNOWN``, if the solver takes baselines.

    Raises
    ------
    ValueError
        If a parameter of the solver is not valid, before any work.
    IncompatibleSolverError
        If the solver cannot solve this problem, before any work.
    DivergenceError
        If the variables or the objective are no longer finite.

    Examples
    --------
    Minimise (x - 2)^2 subject to x <= 1 by projected gradient descent:

    >>> import torch
    >>> from fairconstrained.solvers import Iterate, Solver, run
    >>> class Descent(Solver):
    ...     def iterate(self, problem, x, dual, tol, rng):
    ...         while True:
    ...             x = (x - 0.1 * problem(x)).clamp_max(1.0)
    ...             values = torch.stack([(x[0] - 2) ** 2, x[0] - 1])
    ...             yield Iterate(x, values, values, dual, residual=float(1 - x))
    >>> x, dual = torch.zeros(1), torch.zeros(1)
    >>> rng = torch.Generator()
    >>> solution = run(Descent(), lambda x: 2 * (x - 2), x, dual, rng, max_iter=50, tol=1e-6)
    >>> solution.status.name
    'CONVERGED'
    """
    history: list[Any] = []
    times: list[float] = []
    chosen, ended = None, Status.FINISHED
    base.check_solves(solver, problem)
    solver.check(problem)
    start = time.perf_counter()
    with one_thread():
        for iterate in solver.iterate(problem, x, dual, tol, rng):
            if solver.diverged(iterate):
                raise DivergenceError(
                    f"{solver!r} diverged at iteration {len(history) + 1}: its variables or its "
                    "objective are not finite. Scale the features, take smaller steps, or "
                    "check whether the data or your own module produce nan."
                )
            history.append(record(iterate) if record else iterate)
            converged, stop = iterate.residual <= tol, False
            candidates = [iterate] if chosen is None or converged else [chosen, iterate]
            # A converged point counts, although an earlier one may have had a smaller error by
            # chance.
            chosen = iterate if converged else solver.select(candidates)
            times.append(time.perf_counter() - start)
            for callback in callbacks:
                stop = bool(callback(iterate)) or stop
            if converged:
                ended = Status.CONVERGED
            elif stop:
                ended = Status.STOPPED
            elif max_iter is not None and len(history) >= max_iter:
                ended = Status.MAX_ITER
            else:
                continue
            break
        if chosen is None:
            raise RuntimeError(f"{solver!r} yielded no iterate.")
        better, equal = best_of_baselines(problem, chosen, known) if known else (chosen, torch.inf)
    if better is chosen or not solver.takes_known:
        equal = equal if solver.takes_known else torch.inf
        return Solution(chosen, len(history), ended, history, times, ended, better, equal)
    history.append(record(better) if record else better)
    times.append(time.perf_counter() - start)
    for callback in callbacks:
        callback(better)
    return Solution(better, len(history), Status.KNOWN, history, times, ended, None, equal)


def best_of_baselines(
    problem: Sharpenable, result: Iterate, known: Sequence[Baseline]
) -> tuple[Iterate, float]:
    """Return the result or a clearly better baseline, and the error of feasible constants."""
    rivals, equal = [(along_offsets(problem, result), ERROR_TOL)], torch.inf
    for x, by, smaller, direction, is_equal in known:
        posed = smaller or problem
        rival = _moved(posed, result, x)
        if direction is not None:
            rival = best_on_lines(posed, rival, [direction], reach=1.0)
        rival = along_offsets(posed, rival)
        rivals.append((rival, by))
        if is_equal and rival.feasible:
            equal = min(equal, float(rival.hard[0]))
    error, better = float(result.hard[0]), []
    for rival, by in rivals:
        nearer = not result.feasible and rival.excess < result.excess - ERROR_TOL
        # Removing a tiny violation may cost a little error.
        gain = -0.01 if result.excess <= base.NEARLY else -torch.inf
        gain = by if result.feasible else gain
        if nearer or (rival.feasible and float(rival.hard[0]) < error - gain):
            better.append(rival)
    return base.best_feasible(better) if better else result, equal


def best_on_lines(
    problem: Sharpenable, iterate: Iterate, directions: Iterable[Tensor], reach: float = np.inf
) -> Iterate:
    """Return the best point within `reach` on lines through an iterate, or the iterate itself."""
    candidates = [iterate]
    digits = 12  # to which equal hard values of different orders of rows agree
    for direction in directions:
        line = problem.along(iterate.x, direction, reach)
        if len(line.steps):
            steps, error = line.steps.cpu().numpy(), line.error.cpu().numpy().round(digits)
            # Prefer points strictly within the slack: values at its limit may round to more.
            excess = line.excess.cpu().numpy().clip(min=-NEGLIGIBLE).round(digits)
            # Sort by violation, then error, then distance.
            step = float(steps[np.lexsort((np.abs(steps), error, excess))[0]])
            candidates.append(_moved(problem, iterate, iterate.x + step * direction))
    return base.best_feasible(candidates)


def along_offsets(problem: Sharpenable, iterate: Iterate) -> Iterate:
    """Return the iterate if it is feasible, or the best on the lines of its offsets."""
    if iterate.feasible:
        return iterate
    return best_on_lines(problem, iterate, one_hot(problem.offsets, len(iterate.x)).to(iterate.x))


def _moved(problem: Sharpenable, iterate: Iterate, x: Tensor) -> Iterate:
    """Return another point, with the multipliers of an iterate."""
    soft, hard = problem.evaluate(x)
    return iterate._replace(x=x, soft=soft, hard=hard, residual=torch.inf)


def repair_candidates(seen: Sequence[Iterate], iterate: Iterate) -> list[Iterate]:
    """Return the iterates from which repairs start: the best, then the least violations."""
    seen = [*seen, iterate]
    return [base.best_feasible(seen), *sorted(seen[1:] or seen, key=attrgetter("excess"))[:3]]


def repair(problem: Sharpenable, seen: Sequence[Iterate]) -> Iterate:
    """Return the best point reached by line moves from the iterates of least violation."""
    best, *nearest = seen
    candidates = [best]
    # Moves along coordinates cost a sort of all rows each. Eight groups end at an error of .495
    # without them, in place of .414 (decisions: the parts of `AugmentedLagrangian`).
    moves, longest, cheap = 10, 1.0, 20_000
    for iterate in nearest:
        small = problem.n_rows * len(iterate.x) <= cheap
        for _ in range(moves if iterate.excess <= MOVABLE else 0):
            # A move must remove its share of the violation, or ten moves will not suffice.
            goal = max((1.0 - 1.0 / moves) * iterate.excess, 0.0)
            better = best_on_lines(problem, iterate, _directions(problem, iterate), longest)
            if small and better.excess > goal:
                coordinates = torch.eye(len(better.x)).to(better.x)
                better = best_on_lines(problem, better, coordinates, longest)
            stuck = better is iterate or better.excess > goal
            iterate = better
            if stuck:
                break
        candidates.append(iterate)
    return base.best_feasible(candidates)


def _directions(problem: Sharpenable, iterate: Iterate) -> list[Tensor]:
    """Return directions of the offsets, and three against the violated constraints.

    These are the gradient of the worst, a direction that changes only the worst of the nearly
    binding constraints, and one that corrects all at once.
    """
    x, hard = iterate.x, iterate.hard[1:]
    directions = list(one_hot(problem.offsets, len(x)).to(x))
    if iterate.feasible:
        return directions
    worst = hard.argsort(descending=True)[:20]  # each costs a gradient
    # A move that ignores constraints that nearly bind would violate them.
    near = worst[hard[worst] > -0.01]
    gradients = problem.linearize(x).gradients(1 + near)
    # Gradients of overlapping constraints are nearly dependent, hence the cut-off.
    inverse = torch.linalg.pinv(gradients, rtol=1e-6)
    moves = torch.stack((gradients[0], inverse[:, 0], inverse @ hard[near].clamp_min(0.0)))
    return directions + list(moves / moves.norm(dim=1, keepdim=True).clamp_min(1e-30))
