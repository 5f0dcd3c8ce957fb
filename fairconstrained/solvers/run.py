"""The one loop: it stops, selects, records and reports; solvers only say what a step is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from numbers import Integral, Real
from typing import NamedTuple

import torch
from sklearn.base import BaseEstimator
from threadpoolctl import threadpool_limits
from torch import Generator, Tensor

from fairconstrained.exceptions import DivergenceError
from fairconstrained.problems import Problem

__all__ = [
    "Callback",
    "Iterate",
    "Solution",
    "Solver",
    "Status",
    "best_feasible",
    "check_numbers",
    "last",
    "run",
    "violation",
]

# A hard constraint exceeded by no more than this counts as met.
FEASIBILITY_TOL = 1e-3


class Iterate(NamedTuple):
    """What a solver yields after each iteration.

    Examples
    --------
    >>> from fairconstrained import RateConstrainedClassifier
    >>> from fairconstrained.datasets import make_biased_classification
    >>> data, seen = make_biased_classification(300, random_state=0), []
    >>> clf = RateConstrainedClassifier(callbacks=seen.append)
    >>> clf = clf.fit(data.data, data.target, sensitive_features=data.sensitive_features)
    >>> type(seen[-1]).__name__, len(seen) == clf.n_iter_
    ('Iterate', True)
    """

    x: Tensor  # (n_variables,)
    soft: Tensor  # (1 + m,): objective and constraint values, as optimised
    hard: Tensor  # (1 + m,): error and constraint values, as measured on predictions
    dual: Tensor  # (m,): multipliers
    residual: float  # how far from solved, by the solver's own measure; <= tol ends the run


class Status(Enum):
    """Why a run ended; the values are for people.

    Examples
    --------
    >>> from fairconstrained.solvers import Status
    >>> Status.CONVERGED.value
    'the residual fell below tol'
    """

    CONVERGED = "the residual fell below tol"
    STOPPED = "a callback asked to stop"
    FINISHED = "the solver came to the end of its schedule"
    MAX_ITER = "max_iter iterations were made without reaching tol"
    STREAMING = "all rows of the stream so far were used; more may come"


@dataclass(frozen=True)
class Solution:
    """The selected iterate and the story of the run.

    Examples
    --------
    Minimise (x - 2)^2 subject to x <= 1, by plain steps:

    >>> import torch
    >>> from fairconstrained.solvers import Iterate, Solver, run
    >>> class Walk(Solver):
    ...     def iterate(self, problem, x, dual, tol, rng):
    ...         while True:
    ...             x = (x - 0.1 * problem(x)).clamp_max(1.0)
    ...             values = torch.stack([(x[0] - 2) ** 2, x[0] - 1])
    ...             yield Iterate(x, values, values, dual, residual=float(1 - x))
    >>> x, dual = torch.zeros(1), torch.zeros(1)
    >>> rng = torch.Generator()
    >>> solution = run(Walk(), lambda x: 2 * (x - 2), x, dual, rng, max_iter=50, tol=1e-6)
    >>> solution.iterate.x
    tensor([1.])
    """

    iterate: Iterate
    n_iter: int
    status: Status
    history: list[Iterate]
    times: list[float]


Callback = Callable[[Iterate], bool | None]
Select = Callable[[Sequence[Iterate]], Iterate]


class Solver(BaseEstimator):  # type: ignore[misc]
    """Base of all solvers: parameters in ``__init__``, an algorithm in :meth:`iterate`.

    Being a scikit-learn estimator in form only, a solver can be cloned, printed and searched:
    ``GridSearchCV(..., {"clf__solver__step_size": [...]})``.

    Examples
    --------
    >>> from sklearn.base import clone
    >>> from fairconstrained.solvers import SGDA, Solver
    >>> isinstance(clone(SGDA(step_size=0.1)), Solver)
    True
    """

    length: int | None = None  # iterations of a full run, where they are known beforehand
    starts_feasible = False  # whether x must meet the constraints from the start
    private = False  # whether it sees noisy releases only, and no objective
    keeps_budget = True  # whether a private run spends no more than the budget it is given
    penalises = False  # whether it is for penalties in the objective, without constraints
    needs_rows = True  # whether it draws rows, or passes over the data are all it asks for
    in_place = False  # whether partial_fit may go on from its state: see level_set_stream

    def check(self, problem: Problem) -> None:
        """Raise ValueError for a bad parameter, IncompatibleSolverError for a wrong problem."""

    def iterate(
        self, problem: Problem, x: Tensor, dual: Tensor, tol: float, rng: Generator
    ) -> Iterator[Iterate]:
        """Yield iterates from `x` and multipliers `dual` on; state lives in local variables."""
        raise NotImplementedError

    def select(self, iterates: Sequence[Iterate]) -> Iterate:
        """Which iterate of an unfinished run to keep."""
        return best_feasible(iterates)


def check_numbers(
    solver: Solver,
    *,
    positive: Sequence[str] = (),
    nonnegative: Sequence[str] = (),
    kind: type = Real,
) -> None:
    """Raise ValueError unless these parameters are finite numbers of this kind and sign."""
    for name in (*positive, *nonnegative):
        value, sign = getattr(solver, name), ">" if name in positive else ">="
        number = isinstance(value, kind) and not isinstance(value, bool)
        if not (number and 0 <= value < float("inf") and (value > 0 or name in nonnegative)):
            what = "an integer" if kind is Integral else "a finite number"
            raise ValueError(
                f"{type(solver).__name__}.{name} must be {what} {sign} 0; got {value!r}."
            )


def last(iterates: Sequence[Iterate]) -> Iterate:
    """Keep the last iterate."""
    return iterates[-1]


def best_feasible(iterates: Sequence[Iterate]) -> Iterate:
    """Keep the least error among feasible iterates, or the least violation if there are none."""
    return min(iterates, key=_merit)


def violation(values: Tensor) -> float:
    """Largest constraint value of (f, c_1, ..., c_m), if there is any, else 0."""
    return max(values[1:].tolist(), default=0.0)


def _merit(iterate: Iterate) -> tuple[float, float]:
    return max(violation(iterate.hard), FEASIBILITY_TOL), float(iterate.hard[0])


def run(
    solver: Solver,
    problem: Problem,
    x: Tensor,
    dual: Tensor,
    rng: Generator,
    *,
    max_iter: int | None,
    tol: float,
    callbacks: Sequence[Callback] = (),
) -> Solution:
    """Iterate `solver` on `problem` until it is solved, stopped or at its end.

    Parameters
    ----------
    solver : Solver
    problem : Problem
    x : Tensor of shape (n_variables,)
    dual : Tensor of shape (m,)
        Starting point and multipliers.
    rng : Generator
        The only source of randomness, but for a network's own (dropout).
    max_iter : int or None
        None: until the solver ends by itself, as all solvers of this package do.
    tol : float
        The run ends when an iterate's residual is at most `tol`.
    callbacks : sequence of callables
        Each is called with every iterate; a true answer ends the run, an exception passes through.

    Returns
    -------
    Solution
        With the last iterate if the run converged, else with the solver's selection.

    Raises
    ------
    ValueError
        If a parameter of the solver is not valid; before any work.
    IncompatibleSolverError
        If the solver cannot solve this problem; before any work.
    DivergenceError
        If the variables or the objective are no longer finite.

    Examples
    --------
    Minimise (x - 2)^2 subject to x <= 1, by plain steps:

    >>> import torch
    >>> from fairconstrained.solvers import Iterate, Solver, run
    >>> class Walk(Solver):
    ...     def iterate(self, problem, x, dual, tol, rng):
    ...         while True:
    ...             x = (x - 0.1 * problem(x)).clamp_max(1.0)
    ...             values = torch.stack([(x[0] - 2) ** 2, x[0] - 1])
    ...             yield Iterate(x, values, values, dual, residual=float(1 - x))
    >>> x, dual = torch.zeros(1), torch.zeros(1)
    >>> rng = torch.Generator()
    >>> solution = run(Walk(), lambda x: 2 * (x - 2), x, dual, rng, max_iter=50, tol=1e-6)
    >>> solution.status.name
    'CONVERGED'
    """
    history: list[Iterate] = []
    times: list[float] = []
    status = Status.FINISHED
    solver.check(problem)
    start = time.perf_counter()
    with one_thread():
        for iterate in solver.iterate(problem, x, dual, tol, rng):
            values = iterate.soft[1:] if solver.private else iterate.soft
            if not (iterate.x.isfinite().all() and values.isfinite().all()):
                raise DivergenceError(
                    f"{solver!r} diverged at iteration {len(history) + 1}: its variables or its "
                    "objective are not finite. Scale the features or take smaller steps."
                )
            history.append(iterate)
            times.append(time.perf_counter() - start)
            asked = [callback(iterate) for callback in callbacks]
            if iterate.residual <= tol:
                status = Status.CONVERGED
            elif any(asked):
                status = Status.STOPPED
            elif max_iter is not None and len(history) >= max_iter:
                status = Status.MAX_ITER
            else:
                continue
            break
    if not history:
        raise RuntimeError(f"{solver!r} yielded no iterate.")
    chosen = history[-1] if status is Status.CONVERGED else solver.select(history)
    return Solution(chosen, len(history), status, history, times)


@contextmanager
def one_thread() -> Iterator[None]:
    """Pin torch and BLAS to one thread: small operations lose more than they gain from two."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(limits=1, user_api="blas"):
            yield
    finally:
        torch.set_num_threads(threads)
