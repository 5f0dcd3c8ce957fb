"""The loop that runs every solver, records its iterates and selects the result."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from torch import Generator, Tensor

from fairconstrained.exceptions import DivergenceError
from fairconstrained.problems.known import Known
from fairconstrained.process import one_thread
from fairconstrained.solvers.base import (
    Callback,
    Iterate,
    Solution,
    Solver,
    Status,
    check_solves,
)
from fairconstrained.solvers.repair import not_worse


def run(
    solver: Solver,
    problem: Any,
    x: Tensor,
    dual: Tensor,
    rng: Generator,
    *,
    max_iter: int | None,
    tol: float,
    callbacks: Sequence[Callback] = (),
    known: Sequence[Known] = (),
    record: Callable[[Iterate], Any] = lambda iterate: iterate,
) -> Solution:
    """Run `solver` on `problem` until it converges, ends, or is stopped.

    Parameters
    ----------
    solver : Solver
    problem : object
        A problem that offers what the solver requires.
    x : Tensor of shape (n_variables,)
        Starting point.
    dual : Tensor of shape (m,)
        Starting multipliers.
    rng : Generator
        The only source of randomness, except for dropout in networks.
    max_iter : int or None
        Largest number of iterations. None runs until the solver ends, as all solvers of this
        package do.
    tol : float
        The run ends when the residual of an iterate is at most `tol`.
    callbacks : sequence of callables
        Each is called with every iterate. A true answer ends the run. Exceptions pass through.
    known : sequence of Known
        Points that the result must not be worse than, such as those of equal predictions, each with
        the difference that matters. A known point that is infeasible is moved along its offsets
        first. The problem must then be ``Sharpenable``.
    record : callable, optional
        What the history keeps of an iterate; default: the iterate itself. An iterate has a point
        and three values for each constraint, which many iterations of many constraints add up.

    Returns
    -------
    Solution
        The last iterate if the run converged, otherwise the one that the solver selects. A known
        point takes its place, as one more iterate, if its violation is lower by more than 0.001 or,
        where both are feasible, its hard objective by more than ``Known.by``. The status is then
        ``Status.KNOWN``, and ``ended`` says why the solver ended.

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
    chosen: Iterate | None = None
    ended = Status.FINISHED
    check_solves(solver, problem)
    solver.check(problem)
    start = time.perf_counter()
    with one_thread():
        for iterate in solver.iterate(problem, x, dual, tol, rng):
            if solver.diverged(iterate):
                raise DivergenceError(
                    f"{solver!r} diverged at iteration {len(history) + 1}: its variables or its "
                    "objective are not finite. Scale the features or take smaller steps."
                )
            history.append(record(iterate))
            converged = iterate.residual <= tol
            candidates = [iterate] if chosen is None or converged else [chosen, iterate]
            chosen = iterate if converged else solver.select(candidates)
            times.append(time.perf_counter() - start)
            asked = [callback(iterate) for callback in callbacks]
            if converged:
                ended = Status.CONVERGED
            elif any(asked):
                ended = Status.STOPPED
            elif max_iter is not None and len(history) >= max_iter:
                ended = Status.MAX_ITER
            else:
                continue
            break
        if chosen is None:
            raise RuntimeError(f"{solver!r} yielded no iterate.")
        better = not_worse(problem, chosen, known) if known else chosen
    if better is chosen:
        return Solution(chosen, len(history), ended, history, times, ended)
    history.append(record(better))
    times.append(time.perf_counter() - start)
    for callback in callbacks:
        callback(better)
    return Solution(better, len(history), Status.KNOWN, history, times, ended)
