"""The base class of solvers, their iterates and results, and checks of compatibility."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from math import inf
from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple

import torch
from sklearn.base import BaseEstimator
from torch import Generator, Tensor

from fairconstrained.arrays import is_number
from fairconstrained.exceptions import IncompatibleSolverError

# A larger violation comes neither from a single row of a table of a thousand nor from limited
# accuracy.
NEARLY = 1e-3


def number(
    default: float | None,
    sign: str,
    least: float,
    *,
    below: float = inf,
    most: float = inf,
    kind: type = Real,
) -> Any:
    """Define a parameter within bounds, which may be None or infinite if that is the default."""
    return field(default=default, metadata={"range": (kind, sign, least, below, most)})


def choice(default: str, *others: str) -> Any:
    """Define a parameter that takes one of several names."""
    return field(default=default, metadata={"choices": [default, *others]})


positive, nonnegative = partial(number, sign=">", least=0), partial(number, sign=">=", least=0)
count = partial(number, sign=">", least=0, kind=Integral)


class Iterate(NamedTuple):
    """State that a solver yields after each iteration.

    Examples
    --------
    >>> import torch
    >>> from fairconstrained.solvers import Iterate
    >>> x, value = torch.zeros(2), torch.tensor([0.25, -0.5])
    >>> Iterate(x, value, value, dual=torch.zeros(1), residual=0.0).excess
    -0.5
    """

    x: Tensor  # (n_variables,)
    soft: Tensor  # (1 + m + k,): objective, constraints and measured values, as optimised
    hard: Tensor  # (1 + m + k,): error, constraints and measured values, on predictions
    dual: Tensor  # (m,): multipliers
    residual: float  # distance from a solution, as the solver measures it; <= tol ends the run

    @property
    def excess(self) -> float:
        """The largest hard value of the constraints, or 0 without constraints."""
        return violation(self.hard[: 1 + len(self.dual)])

    @property
    def feasible(self) -> bool:
        """Whether the hard constraints hold to the last digit, as users compare numbers."""
        return self.excess <= 0.0


class Status(Enum):
    """Reasons why a run ended, as texts that users see.

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
    KNOWN = "a baseline beat every iterate"
    STREAMING = "all rows of the stream so far were used; more may come"


@dataclass(frozen=True)
class Solution:
    """The selected iterate and the record of the run.

    Examples
    --------
    >>> from fairconstrained.solvers import Solution, Status
    >>> solution = Solution(None, 0, Status.STOPPED, [], [], ended=Status.STOPPED)
    >>> solution.words
    'a callback asked to stop'
    """

    iterate: Iterate
    n_iter: int
    status: Status  # KNOWN, or why the solver ended
    history: list[Any]  # the value of `record`, an argument of `run`, for each iterate
    times: list[float]
    ended: Status  # why the solver ended
    # The iterate, or a baseline that beats it if the solver takes none.
    better: Iterate | None = None
    equal: float = inf  # least hard objective of feasible constant predictions

    @property
    def words(self) -> str:
        """Status for users, followed by the reason why the solver ended if that differs."""
        return "; ".join(dict.fromkeys((self.status.value, self.ended.value)))


Callback = Callable[[Iterate], bool | None]


class Solver(BaseEstimator):  # type: ignore[misc]
    """Base of all solvers, with parameters in ``__init__`` and the algorithm in :meth:`iterate`.

    It can be cloned, printed and searched as a scikit-learn estimator:
    ``GridSearchCV(..., {"clf__solver__step_size": [...]})``.

    Attributes
    ----------
    requires : tuple of str
        Capabilities that a problem must have (``offers``), such as ``("exact",)``, which
        ``fairconstrained.problems.base`` lists. A solver that requires nothing tries any problem.
    assumes : str or None
        Attribute of such problems that must be true, such as ``"is_quadratic"``.
    keeps_last : bool
        Whether the last iterate is the result, instead of the best feasible one.
    takes_known : bool
        Whether a better baseline, such as constant predictions, replaces the result, as for the
        solvers of this package. Otherwise estimators warn about it.
    length : int or None
        Number of iterations of a full run, if it is known in advance.
    scope : str
        Problems that the solver can solve, for messages.

    Examples
    --------
    >>> from sklearn.base import clone
    >>> from fairconstrained.solvers import SGDA, Solver
    >>> isinstance(clone(SGDA(step_size=0.1)), Solver)
    True
    """

    requires: ClassVar[tuple[str, ...]] = ()
    assumes: ClassVar[str | None] = None
    keeps_last: ClassVar[bool] = False
    takes_known: ClassVar[bool] = False
    length: int | None = None
    scope = "other problems"

    def check(self, problem: Any) -> None:
        """Raise ValueError for an invalid parameter."""
        for parameter in getattr(self, "__dataclass_fields__", {}).values():
            value, choices = getattr(self, parameter.name), parameter.metadata.get("choices")
            name = f"{type(self).__name__}.{parameter.name}"
            if choices and not (isinstance(value, str) and value in choices):
                raise ValueError(f"{name} must be one of {choices}; got {value!r}.")
            if value is None and parameter.default is None:
                continue
            kind = parameter.metadata.get("kind", object)
            if not isinstance(value, kind):
                raise ValueError(f"{name} must be a {kind.__name__} object; got {value!r}.")
            if "range" not in parameter.metadata:
                continue
            kind, sign, least, below, most = parameter.metadata["range"]
            inside = is_number(value, kind) and least <= value < below and value <= most
            inside = inside or (is_number(value) and value == parameter.default)
            if not inside or (sign == ">" and value == least):
                what = "an integer" if kind is Integral else "a finite number"
                end = f" and below {below:g}" if below < inf else ""
                end = f" and at most {most:g}" if most < inf else end
                raise ValueError(f"{name} must be {what} {sign} {least:g}{end}; got {value!r}.")

    @classmethod
    def suits(cls, problem: Any) -> bool:
        """Return whether a problem that has the required capabilities meets the assumptions."""
        return cls.assumes is None or bool(getattr(problem, cls.assumes))

    def iterate(
        self, problem: Any, x: Tensor, dual: Tensor, tol: float, rng: Generator
    ) -> Iterator[Iterate]:
        """Yield iterates from `x` and multipliers `dual`; state is in local variables."""
        raise NotImplementedError

    def diverged(self, iterate: Iterate) -> bool:
        """Return whether the run has diverged at this iterate."""
        return not bool(iterate.x.isfinite().all() and iterate.soft.isfinite().all())

    def select(self, iterates: Sequence[Iterate]) -> Iterate:
        """Choose between the previous choice and a new iterate of an unconverged run."""
        return iterates[-1] if self.keeps_last else best_feasible(iterates)


def solves(solver: Solver | type[Solver], problem: Any, *, in_memory: bool = True) -> bool | None:
    """Return whether a solver can solve a problem, or None if either does not say.

    A problem, or its class before there is an object, must offer all that the solver requires; it
    offers less for rows that are not `in_memory`. An object must suit the solver as well.
    """
    if not solver.requires or not hasattr(problem, "offers"):
        return None
    missing: Any = () if in_memory else getattr(problem, "in_memory_only", ())
    offered = set(solver.requires) <= set(problem.offers).difference(missing)
    return offered and (isinstance(problem, type) or solver.suits(problem))


def check_solves(solver: Solver, problem: Any, *, in_memory: bool = True) -> None:
    """Raise IncompatibleSolverError, naming alternatives, if a solver cannot solve a problem."""
    if solves(solver, problem, in_memory=in_memory) is not False:
        return
    from fairconstrained import solvers  # which imports this module

    kind = problem if isinstance(problem, type) else type(problem)
    public = [getattr(solvers, name) for name in sorted(solvers.__all__)]
    classes = [other for other in public if isinstance(other, type) and issubclass(other, Solver)]
    others = [one.__name__ for one in classes if solves(one, problem, in_memory=in_memory)]
    # Before there is a problem, nobody knows whether it meets their assumptions.
    problems = "some problems of this kind" if kind is problem else "this problem"
    advice = f"Solvers for {problems}: {', '.join(others)}." if others else ""
    where = "" if in_memory else " on rows in blocks or shards"
    raise IncompatibleSolverError(
        f"{type(solver).__name__} cannot solve {kind.__name__}{where}: it is for {solver.scope}. "
        f"{advice}"
    )


def best_feasible(iterates: Sequence[Iterate]) -> Iterate:
    """Choose the feasible iterate of least error, or the least violation if there is none."""
    best, least = iterates[0], (inf, inf)
    for iterate in iterates:
        merit = max(iterate.excess, 0.0), float(iterate.hard[0])
        if merit < least:
            best, least = iterate, merit
    return best


def violation(values: Tensor) -> float:
    """Return the largest constraint value in (f, c_1, ..., c_m), or 0 without constraints."""
    return float(values[1:].max()) if len(values) > 1 else 0.0


def not_complementary(dual: Tensor, value: Tensor) -> float:
    """Return the largest violation of feasibility and complementarity."""
    return float(torch.minimum(dual, -value).abs().max()) if len(dual) else 0.0
