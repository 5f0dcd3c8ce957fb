"""The loop of the stochastic algorithms, their draws of rows, and updates."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

import torch
from torch import Generator, Tensor

from fairconstrained.numerics import VECTOR_ROWS
from fairconstrained.problems.base import Linearization, SampledProblem
from fairconstrained.solvers.base import Iterate, Solver, count, positive


def constant(progress: float) -> float:
    """Return 1, the factor of constant step sizes.

    Parameters
    ----------
    progress : float
        Fraction of the run that is done.

    Examples
    --------
    >>> from fairconstrained.solvers import constant
    >>> constant(0.9)
    1.0
    """
    return 1.0


def cosine(progress: float) -> float:
    """Return a factor that falls from 1 to 0 along half a cosine.

    Parameters
    ----------
    progress : float
        Fraction of the run that is done.

    Examples
    --------
    >>> from fairconstrained.solvers import cosine
    >>> [round(cosine(done), 2) for done in (0.0, 0.5, 1.0)]
    [1.0, 0.5, 0.0]
    """
    return 0.5 * (1.0 + math.cos(math.pi * progress))


def evaluated_steps(n_steps: int, n_evaluations: int) -> set[int]:
    """Return the steps, counted from 1, after which to evaluate, including the last."""
    return set(torch.linspace(0, n_steps, n_evaluations + 1).round().int().tolist()[1:])


class Balanced:
    """Equal numbers of rows from each stratum (n_rows,), independent and uniform within it.

    Rows of a negative stratum are never drawn, unless all are. A draw of size n holds n tuples of
    one row per stratum. Not for private training, whose batches must be Poisson samples.
    """

    def __init__(self, strata: Tensor):
        strata = strata.cpu()
        if len(strata) and int(strata.max()) < 0:
            strata = torch.zeros_like(strata)
        counts = torch.bincount(strata[strata >= 0])
        self.n_strata, self._counts = len(counts), counts
        self._order = torch.argsort(strata, stable=True)
        self._starts = len(strata) - counts.flip(0).cumsum(0).flip(0)

    def draw(self, size: int, rng: Generator) -> tuple[Tensor, Tensor]:
        """Return row indices, (size * n_strata,), and how many rows of the data each represents."""
        u = torch.rand((size, self.n_strata), generator=rng, dtype=torch.float64)
        return self._order[self._starts + (u * self._counts).long()].reshape(-1), self.scale(size)

    def batches(self, batch_size: int, rng: Generator) -> tuple[Iterator[Tensor], Tensor]:
        """Return endless draws of about `batch_size` rows, and how many each row represents."""
        size = max(1, round(batch_size / self.n_strata))
        n_rows = size * self.n_strata
        # A draw costs mostly the call: batches are cut from longer ones.
        many = size * max(1, VECTOR_ROWS // n_rows)
        return batches(n_rows, lambda: self.draw(many, rng)[0]), self.scale(size)

    def scale(self, size: int) -> Tensor:
        """Return how many rows of the data each row of a draw represents, (size * n_strata,)."""
        return (self._counts.double() / size).expand(size, -1).reshape(-1)


def batches(size: int, draw: Callable[[], Tensor]) -> Iterator[Tensor]:
    """Yield endless batches of row indices, cut from longer draws of rows, which cost less."""
    while True:
        rows = draw()
        for start in range(0, len(rows) - size + 1, size):
            yield rows[start : start + size]


def shuffled(n_rows: int, batch_size: int, rng: Generator) -> Iterator[Tensor]:
    """Return batches that visit each row once per pass, in a new order."""
    return batches(min(batch_size, n_rows), lambda: torch.randperm(n_rows, generator=rng))


class Estimates:
    """Estimates of a problem's values and gradients, from new rows in each call.

    The objective comes from uniform rows (every pass visits each row once), the constraints from
    equal numbers of rows of each part. They are moved by `shift`, the latest difference of hard
    and soft values, so that algorithms follow predicted labels. The second of two
    independent draws for constraints has `constraint_batch_size` rows.
    """

    def __init__(
        self,
        problem: SampledProblem,
        batch_size: int,
        rng: Generator,
        constraint_batch_size: int | None = None,
        held_out: Tensor | None = None,
    ):
        self.problem, self.rng = problem, rng
        self.held_out = held_out  # rows that the problem does not draw from
        self.balanced = Balanced(problem.strata)
        self.shift: Tensor | float = 0.0
        first, self._scale = self.balanced.batches(batch_size, rng)
        second, self._second_scale = self.balanced.batches(constraint_batch_size or batch_size, rng)
        self._streams = shuffled(problem.n_rows, batch_size, rng), first, second

    def rows(self) -> Tensor:
        """Return the next uniform draw of rows."""
        return next(self._streams[0])

    def balanced_rows(self) -> tuple[Tensor, Tensor]:
        """Return rows for constraints, and how many rows of the data each represents."""
        return next(self._streams[1]), self._scale

    def independent(self, x: Tensor) -> tuple[Tensor, Tensor, Callable[[float, Tensor], Tensor]]:
        """Estimate the constraints, (m,), twice from independent rows.

        Also return the map from weights of the objective and the first estimates to a gradient.
        """
        rows, first = self.rows(), self.balanced_rows()
        second = next(self._streams[2]), self._second_scale
        terms = self.problem.estimates(x, rows, first, second)
        c_1, c_2 = terms.value[1:].tensor_split(2)

        def gradient(objective: float, constraints: Tensor) -> Tensor:
            weight, unused = constraints.new_full((1,), objective), torch.zeros_like(constraints)
            return terms.pullback(torch.cat((weight, constraints, unused)))

        # Paper (Kliachkin et al., Algorithms 2 and 3): c as it is; here: moved by the shift, which
        # is 0 for losses, because rates are judged on predicted labels.
        return c_1 + self.shift, c_2 + self.shift, gradient

    def moved(self, terms: Linearization) -> Linearization:
        """Add the shift to the constraints."""
        value = terms.value.clone()
        value[1:] += self.shift
        return terms._replace(value=value)


class Descent:
    """Gradient descent steps, plain or with the update rule of a torch optimiser."""

    def __init__(self, x: Tensor, optimizer: Callable[..., Any] | None, step_size: float):
        self._x = x.clone()
        self._optimizer = None if optimizer is None else optimizer([self._x], lr=step_size)

    def step(self, x: Tensor, gradient: Tensor, step_size: float) -> Tensor:
        """Return the next point as a new tensor."""
        if self._optimizer is None:
            return x.add(gradient, alpha=-step_size)
        # The solver, not the optimiser, schedules step sizes.
        for group in self._optimizer.param_groups:
            group["lr"] = step_size
        self._x.copy_(x)
        self._x.grad = gradient
        self._optimizer.step()
        return self._x.clone()


class Memory(SimpleNamespace):
    """State of an algorithm between steps: the point, multipliers and further attributes."""

    x: Tensor
    dual: Tensor
    step: int  # number of steps made
    n_steps: int
    descent: Descent
    output: Any = None  # the result, if it is not the last point

    @property
    def progress(self) -> float:
        """Fraction of the run that is done."""
        return self.step / self.n_steps


@dataclass(eq=False, repr=False, kw_only=True)
class StochasticSolver(Solver):
    """Base of stochastic solvers: subclasses implement :meth:`step`, evaluations end the run."""

    requires: ClassVar[tuple[str, ...]] = ("draws",)
    takes_known = True
    scope = "problems with constraints whose rows can be drawn, without privacy (epsilon=None)"
    _least_steps, _passes = 1000, 10  # the larger of both is the default of n_steps
    _evaluates_start = False

    step_size: float = positive(0.01)
    batch_size: int = count(128)
    n_steps: int | None = count(None)
    n_evaluations: int = count(30)

    @property
    def length(self) -> int:  # type: ignore[override]
        """Number of iterations."""
        return self.n_evaluations + self._evaluates_start

    def check(self, problem: Any) -> None:
        super().check(problem)
        for name in ("optimizer", "schedule"):
            value, default = getattr(self, name, None), getattr(type(self), name, None)
            if value is not default and not callable(value):
                raise ValueError(f"{type(self).__name__}.{name} must be callable; got {value!r}.")

    def estimates(self, problem: Any, rng: Generator) -> Estimates:
        """Return the estimates that steps use."""
        return Estimates(problem, self.batch_size, rng)

    def prepare(self, estimates: Estimates, now: Memory) -> None:
        """Add the algorithm's state to the memory."""

    def step(self, estimates: Estimates, now: Memory) -> None:
        """Advance `now` by one step."""
        raise NotImplementedError

    def evaluated(self, problem: Any, estimates: Estimates, now: Memory) -> Iterate:
        """Return the point as an iterate, and shift constraints to predicted labels there."""
        point = now.output if now.step == now.n_steps and now.output is not None else now.x
        soft, hard = problem.evaluate(point)
        estimates.shift = hard[1:] - soft[1:]
        return Iterate(point, soft, hard, now.dual, torch.inf)

    def begin(self, estimates: Estimates, x: Tensor, dual: Tensor, n_steps: int) -> Memory:
        """Return the memory before the first step."""
        descent = Descent(x, getattr(self, "optimizer", None), self.step_size)
        now = Memory(x=x, dual=dual, step=0, n_steps=n_steps, descent=descent)
        self.prepare(estimates, now)
        return now

    def iterate(
        self, problem: Any, x: Tensor, dual: Tensor, tol: float, rng: Generator
    ) -> Iterator[Iterate]:
        estimates = self.estimates(problem, rng)
        least = max(self._least_steps, self._passes * estimates.problem.n_rows // self.batch_size)
        now = self.begin(estimates, x, dual, self.n_steps or least)
        ends = evaluated_steps(now.n_steps, self.n_evaluations)
        if self._evaluates_start:
            yield self.evaluated(problem, estimates, now)
        while now.step < now.n_steps:
            self.step(estimates, now)
            now.step += 1
            if now.step in ends:
                yield self.evaluated(problem, estimates, now)
