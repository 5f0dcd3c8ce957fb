"""Common parts of the stochastic algorithms: step sizes, update rules, evaluations between."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from numbers import Integral
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Generator, Tensor

from fairconstrained.problems import Linearization, SampledProblem
from fairconstrained.solvers.base import Iterate, Solver, check_numbers
from fairconstrained.solvers.stochastic.sampling import Balanced, BalancedBatches, ShuffledBatches


def constant(progress: float) -> float:
    """Steps of the same size throughout.

    Parameters
    ----------
    progress : float
        Fraction of the run that is done.

    Returns
    -------
    float
        Factor of the step sizes.

    Examples
    --------
    >>> from fairconstrained.solvers import constant
    >>> constant(0.9)
    1.0
    """
    return 1.0


def cosine(progress: float) -> float:
    """Steps that fall to zero along half a cosine.

    Parameters
    ----------
    progress : float
        Fraction of the run that is done.

    Returns
    -------
    float
        Factor of the step sizes.

    Examples
    --------
    >>> from fairconstrained.solvers import cosine
    >>> [round(cosine(done), 2) for done in (0.0, 0.5, 1.0)]
    [1.0, 0.5, 0.0]
    """
    return 0.5 * (1.0 + math.cos(math.pi * progress))


def evaluated_steps(n_steps: int, n_evaluations: int) -> set[int]:
    """The numbers of the steps, from 1, that are followed by an evaluation; the last one is."""
    return set(torch.linspace(0, n_steps, n_evaluations + 1).round().int().tolist()[1:])


class Descent:
    """Steps against gradients, plain or by the update rule of a torch optimiser."""

    def __init__(self, x: Tensor, optimizer: Callable[..., Any] | None, step_size: float):
        self._x = x.clone()
        self._optimizer = None if optimizer is None else optimizer([self._x], lr=step_size)

    @property
    def state(self) -> Any:
        """What the update rule remembers; may be set."""
        return None if self._optimizer is None else self._optimizer.state_dict()

    @state.setter
    def state(self, state: Any) -> None:
        if self._optimizer is not None:
            self._optimizer.load_state_dict(state)

    def step(self, x: Tensor, gradient: Tensor, step_size: float) -> Tensor:
        """The next point, as a tensor of its own."""
        if self._optimizer is None:
            return x.add(gradient, alpha=-step_size)
        for group in self._optimizer.param_groups:
            group["lr"] = step_size
        self._x.copy_(x)
        self._x.grad = gradient
        self._optimizer.step()
        return self._x.clone()


class Estimates:
    """A problem's values and gradients, each call from rows of its own.

    The objective comes from uniform rows (every pass visits each row once), the constraints from
    equal numbers of rows of each part, moved by `shift`: the difference of hard and soft values
    where it was measured last, so that algorithms answer to predicted labels.

    Parameters
    ----------
    problem : SampledProblem
    batch_size : int
        Rows for an estimate.
    rng : Generator
    constraint_batch_size : int, optional
        Rows for the second of two independent draws for constraints; default: `batch_size`.
    """

    def __init__(
        self,
        problem: SampledProblem,
        batch_size: int,
        rng: Generator,
        constraint_batch_size: int | None = None,
    ):
        self.problem = problem
        self.balanced = Balanced(problem.strata)
        self.shift: Tensor | float = 0.0
        self._rng = rng
        self._batches = ShuffledBatches(problem.n_rows, batch_size, rng)
        self._first = BalancedBatches(self.balanced, batch_size, rng)
        second_size = constraint_batch_size or batch_size
        self._second = BalancedBatches(self.balanced, second_size, rng)

    @property
    def state(self) -> dict[str, Any]:
        """What determines the next draws; may be set."""
        streams = (self._batches.state, self._first.state, self._second.state)
        return {"streams": streams, "shift": self.shift, "rng": self._rng.get_state()}

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self._batches.state, self._first.state, self._second.state = state["streams"]
        self.shift = state["shift"]
        self._rng.set_state(state["rng"])

    def objective(self, x: Tensor) -> Tensor:
        """Gradient of the objective."""
        terms = self.problem.estimates(x, next(self._batches))
        return terms.pullback(torch.ones_like(terms.value))

    def balanced_rows(self) -> tuple[Tensor, Tensor]:
        """The next draw of rows for constraints, and how many rows of the data each stands for."""
        return next(self._first)

    def independent(self, x: Tensor) -> Draws:
        """The objective and, twice, the constraints, all from rows of their own."""
        terms = self.problem.estimates(
            x, next(self._batches), next(self._first), next(self._second)
        )
        c_1, c_2 = terms.value[1:].tensor_split(2)
        # Paper (Kliachkin et al., Algorithms 2 and 3): c as it is; here: moved by the shift, which
        # is 0 for losses, because rates are judged on predicted labels.
        return Draws(c_1 + self.shift, c_2 + self.shift, terms.pullback)

    def all(self, x: Tensor) -> Linearization:
        """Objective and constraints from the same uniform rows."""
        return self._moved(self.problem.linearize(x, next(self._batches)))

    def both(self, x: Tensor) -> Linearization:
        """The objective, and the constraints from rows of their own."""
        return self._moved(self.problem.estimates(x, next(self._batches), next(self._first)))

    def _moved(self, terms: Linearization) -> Linearization:
        value = terms.value.clone()
        value[1:] += self.shift
        return terms._replace(value=value)


class Draws(NamedTuple):
    """Constraint values from two draws, and gradients of the objective and the constraints."""

    first: Tensor  # (m,)
    second: Tensor  # (m,)
    pullback: Callable[[Tensor], Tensor]

    def gradient(self, objective: float, constraints: Tensor) -> Tensor:
        """Gradient of the objective times a number plus weights times the first constraints."""
        unused = torch.zeros_like(constraints)
        weight = constraints.new_full((1,), objective)
        return self.pullback(torch.cat((weight, constraints, unused)))


class Memory(SimpleNamespace):
    """The state of an algorithm between steps: the point, multipliers and whatever it keeps."""

    x: Tensor
    dual: Tensor

    def saved(self) -> dict[str, Any]:
        """Copy the state as tensors, numbers and states of update rules."""
        return {name: _saved(value) for name, value in vars(self).items()}

    def restore(self, saved: dict[str, Any]) -> None:
        """Return to a saved state."""
        for name, value in saved.items():
            own = getattr(self, name)
            if isinstance(own, Descent):
                own.state = value
            else:
                setattr(self, name, value)


def _saved(value: Any) -> Any:
    return copy.deepcopy(value.state) if isinstance(value, Descent) else value


@runtime_checkable
class Resumable(Protocol):
    """A solver whose runs can be stored and resumed."""

    def resumable(
        self, problem: Any, x: Tensor, dual: Tensor, rng: Generator, saved: dict[str, Any]
    ) -> Iterator[tuple[Iterate, dict[str, Any]]]:
        """Iterates, each with all that a later call needs to go on from there, as `saved`."""


class StochasticSolver(Solver):
    """Base: a subclass says in :meth:`begin` and :meth:`step` what a step is; the rest is common.

    Subclasses have the parameters ``step_size``, ``batch_size`` and ``n_steps`` and name further
    ones to check in ``_positive`` and ``_nonnegative``.

    An iteration is a part of the steps and one evaluation on the full data; there are
    ``n_evaluations`` of them. The residual is infinite: a run ends with its steps.
    """

    requires: ClassVar[tuple[str, ...]] = ("draws",)
    scope = "problems with constraints whose rows can be drawn, without privacy (epsilon=None)"
    step_size: float
    batch_size: int
    n_steps: int | None
    n_evaluations: int = 30
    _positive: tuple[str, ...] = ()
    _nonnegative: tuple[str, ...] = ()
    _callable: tuple[str, ...] = ("schedule",)

    @property
    def length(self) -> int:  # type: ignore[override]
        """Number of iterations."""
        return self.n_evaluations

    def begin(self, estimates: Estimates, x: Tensor, dual: Tensor) -> Memory:
        """What the first step starts from; each step then changes it."""
        raise NotImplementedError

    def step(self, estimates: Estimates, now: Memory, progress: float, rng: Generator) -> None:
        """Take `now` one step on; `progress` is the fraction of the run that is done."""
        raise NotImplementedError

    def result(self, now: Memory) -> Tensor:
        """The point to give back after the last step."""
        return now.x

    def steps(
        self, estimates: Estimates, x: Tensor, dual: Tensor, n_steps: int, rng: Generator
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the point and the multipliers after each of `n_steps` steps."""
        return self._steps_from(0, n_steps, estimates, self.begin(estimates, x, dual), rng)

    def _steps_from(
        self, first: int, n_steps: int, estimates: Estimates, now: Memory, rng: Generator
    ) -> Iterator[tuple[Tensor, Tensor]]:
        for k in range(first, n_steps):
            self.step(estimates, now, k / n_steps, rng)
            yield (now.x if k < n_steps - 1 else self.result(now)), now.dual

    def check(self, problem: SampledProblem) -> None:
        """Raise ValueError for a bad parameter."""
        check_numbers(self, positive=["step_size", *self._positive], nonnegative=self._nonnegative)
        lengths = ["batch_size", "n_evaluations"] + ["n_steps"] * (self.n_steps is not None)
        check_numbers(self, positive=lengths, kind=Integral)
        given = [name for name in ("optimizer",) if getattr(self, name, None) is not None]
        for name in (*self._callable, *given):
            if not callable(getattr(self, name)):
                raise ValueError(
                    f"{type(self).__name__}.{name} must be callable; got {getattr(self, name)!r}."
                )

    def iterate(
        self, problem: SampledProblem, x: Tensor, dual: Tensor, tol: float, rng: Generator
    ) -> Iterator[Iterate]:
        """Yield after each evaluation."""
        for iterate, _ in self.resumable(problem, x, dual, rng, {}):
            yield iterate

    def resumable(
        self,
        problem: SampledProblem,
        x: Tensor,
        dual: Tensor,
        rng: Generator,
        saved: dict[str, Any],
    ) -> Iterator[tuple[Iterate, dict[str, Any]]]:
        """Iterates, each with all that a later call needs to go on from there, as `saved`."""
        n_steps = self.n_steps or max(1000, 10 * problem.n_rows // self.batch_size)
        ends = evaluated_steps(n_steps, self.n_evaluations)
        constraint_batch_size = getattr(self, "constraint_batch_size", None)
        estimates = Estimates(problem, self.batch_size, rng, constraint_batch_size)
        now, first = self.begin(estimates, x, dual), 0
        if saved:
            now.restore(saved["now"])
            estimates.state, first = saved["estimates"], saved["step"]
        steps = self._steps_from(first, n_steps, estimates, now, rng)
        for step, (point, multipliers) in enumerate(steps, first + 1):
            if step in ends:
                soft, hard = problem.evaluate(point)
                estimates.shift = hard[1:] - soft[1:]
                state = {"step": step, "now": now.saved(), "estimates": estimates.state}
                yield Iterate(point, soft, hard, multipliers, torch.inf), state
