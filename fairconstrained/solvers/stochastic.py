"""What the stochastic algorithms share: step sizes, update rules, evaluations in between."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import islice
from numbers import Integral
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor

from fairconstrained.problem import Linearization, Problem
from fairconstrained.solvers.run import Iterate, Solver, check_numbers
from fairconstrained.solvers.sampling import Balanced, shuffled_batches

__all__ = ["Descent", "Estimates", "StochasticSolver", "constant", "cosine"]

_ITERATIONS = 30  # evaluations on the full data in one run


def constant(progress: float) -> float:
    """Steps of the same size throughout.

    Parameters
    ----------
    progress : float
        Share of the run that is done.

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
        Share of the run that is done.

    Returns
    -------
    float
        Factor of the step sizes.

    Examples
    --------
    >>> from fairconstrained.solvers import cosine
    >>> [round(cosine(share), 2) for share in (0.0, 0.5, 1.0)]
    [1.0, 0.5, 0.0]
    """
    return 0.5 * (1.0 + math.cos(math.pi * progress))


class Descent:
    """Steps against gradients by the update rule of a torch optimiser, then projected."""

    def __init__(
        self, problem: Problem, x: Tensor, optimizer: Callable[..., Any], step_size: float
    ):
        self._problem = problem
        self._x = x.clone()
        self._optimizer = optimizer([self._x], lr=step_size)

    def step(self, x: Tensor, gradient: Tensor, step_size: float) -> Tensor:
        """The next point, as a tensor of its own."""
        for group in self._optimizer.param_groups:
            group["lr"] = step_size
        self._x.copy_(x)
        self._x.grad = gradient
        self._optimizer.step()
        return self._problem.project(self._x.clone())


class Estimates:
    """A problem's values and gradients, each call from rows of its own.

    The objective comes from uniform rows (every pass visits each row once), the constraints from
    equal numbers of rows of each part, moved by `shift`: the difference of hard and soft values
    where it was measured last, so that algorithms answer to predicted labels.
    """

    def __init__(self, problem: Problem, batch_size: int, rng: Generator):
        self.problem = problem
        self.balanced = Balanced(problem.strata)
        self.shift: Tensor | float = 0.0
        self._batch_size = batch_size
        self._rng = rng
        self._batches = shuffled_batches(problem.n_rows, batch_size, rng)

    def objective(self, x: Tensor) -> Tensor:
        """Gradient of the objective."""
        terms = self.problem.objective(x, next(self._batches))
        return terms.pullback(torch.ones_like(terms.value))

    def independent(self, x: Tensor, size: int | None = None) -> Draws:
        """The objective and, twice, the constraints, all from rows of their own.

        `size` is that of the second draw for constraints, if not the batch size.
        """
        first = self.balanced.batch(self._batch_size, self._rng)
        second = self.balanced.batch(size or self._batch_size, self._rng)
        value, pullback = self.problem.estimates(x, next(self._batches), first, second)
        c_1, c_2 = value[1:].tensor_split(2)
        return Draws(c_1 + self.shift, c_2 + self.shift, pullback)

    def all(self, x: Tensor) -> Linearization:
        """Objective and constraints from the same uniform rows."""
        terms = self.problem.linearize(x, next(self._batches))
        value = terms.value.clone()
        value[1:] += self.shift
        return terms._replace(value=value)


class Draws(NamedTuple):
    """Constraint values from two draws, and the gradient of the objective plus weights times C."""

    first: Tensor  # (m,)
    second: Tensor  # (m,)
    pullback: Callable[[Tensor], Tensor]

    def gradient(self, objective: float, constraints: Tensor) -> Tensor:
        """Gradient of the objective times a number plus weights times the first constraints."""
        unused = torch.zeros_like(constraints)
        weight = constraints.new_full((1,), objective)
        return self.pullback(torch.cat((weight, constraints, unused)))


class StochasticSolver(Solver):
    """Base: a subclass says in :meth:`steps` what a step is; the rest is common.

    Subclasses have the parameters ``step_size``, ``batch_size`` and ``n_steps`` and name further
    ones to check in ``_positive`` and ``_nonnegative``.

    An iteration is a thirtieth of the steps and one evaluation on the full data. The residual is
    infinite: a run ends with its steps.
    """

    length = _ITERATIONS
    step_size: float
    batch_size: int
    n_steps: int | None
    _positive: tuple[str, ...] = ()
    _nonnegative: tuple[str, ...] = ()
    _callable: tuple[str, ...] = ("optimizer", "schedule")

    def steps(
        self, estimates: Estimates, x: Tensor, dual: Tensor, n_steps: int, rng: Generator
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the point and the multipliers after each of `n_steps` steps."""
        raise NotImplementedError

    def check(self, problem: Problem) -> None:
        """Raise ValueError for a bad parameter."""
        check_numbers(self, positive=["step_size", *self._positive], nonnegative=self._nonnegative)
        lengths = ["batch_size"] if self.n_steps is None else ["batch_size", "n_steps"]
        check_numbers(self, positive=lengths, kind=Integral)
        for name in self._callable:
            if not callable(getattr(self, name)):
                raise ValueError(
                    f"{type(self).__name__}.{name} must be callable; got {getattr(self, name)!r}."
                )

    def iterate(
        self, problem: Problem, x: Tensor, dual: Tensor, tol: float, rng: Generator
    ) -> Iterator[Iterate]:
        """Yield after every thirtieth of the steps."""
        n_steps = self.n_steps or max(1000, 10 * problem.n_rows // self.batch_size)
        ends = set(torch.linspace(0, n_steps, _ITERATIONS + 1).round().int().tolist()[1:])
        estimates = Estimates(problem, self.batch_size, rng)
        steps = self.steps(estimates, x, dual, n_steps, rng)
        for step, (point, multipliers) in enumerate(islice(steps, n_steps), 1):
            if step in ends:
                soft, hard = problem.evaluate(point)
                estimates.shift = hard[1:] - soft[1:]
                yield Iterate(point, soft, hard, multipliers, torch.inf)
