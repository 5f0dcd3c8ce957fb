"""Descent-ascent whose averaged iterates are judged by rows held out from training."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from numbers import Integral
from typing import Any

import torch
from torch import Generator, Tensor

from fairconstrained.problems import Divisible
from fairconstrained.solvers.base import (
    FEASIBILITY_TOL,
    Iterate,
    Solver,
    check_numbers,
)
from fairconstrained.solvers.stochastic.base import (
    Descent,
    Estimates,
    Memory,
    cosine,
    evaluated_steps,
)

_WARM_UP = 0.05  # fraction of the steps in which step sizes grow to the given ones
_GAIN = 0.2  # how much of a violation the shift takes up after each evaluation
_LEAST_STEPS, _PASSES = 2000, 25
_FROM_HERE, _FROM_SIMPLER = 0.05, 0.2  # step sizes of multipliers


class EarlyStoppedSGDA(Solver):
    r"""Descent-ascent with averaged weights, stopped early: the default for networks.

    Of each label in each group one row in `held_out` is held out. On a batch of the others and on
    equal numbers of their rows from each part of the constraints,

    .. math::

        x &\leftarrow \text{AdamW step on } \hat f(x)
            + \tfrac{1}{2\rho} \lVert [\lambda + \rho\,(\hat c(x) + s)]_+ \rVert^2 , \\
        \lambda &\leftarrow \Pi_{[0, \Lambda]} (\lambda + \eta_\lambda (\hat c(x) + s)), \qquad
        \bar x \leftarrow \gamma\, \bar x + (1 - \gamma)\, x .

    The first iterate is the start. A perceptron starts at the constrained linear model of the rows
    that train, so that this model is the result where rows held out prefer it.
    Step sizes grow linearly at first and then fall to zero along a cosine. After each of
    `n_evaluations` equal numbers of steps the average :math:`\bar x` is an iterate. Its constraints
    are measured on all rows, and the shift s is the difference of their hard and soft values: the
    multipliers answer to predicted labels. The average may keep a distance from the points where
    multipliers settle, so a fifth of each violation is added to s, and taken back where labels
    leave slack. The error of an iterate is that of the rows held out. Its objective is the loss of
    these rows, plus by how much its error exceeds that of the start: a network that predicts worse
    labels than the linear model has to have a much smaller loss. The result is the feasible iterate
    of least objective. Training ends when `patience` iterates in a row had no smaller sum of
    objective and violation, and one was feasible.

    Parameters
    ----------
    step_size : float, default=0.003
        Largest step size of the descent.
    dual_step_size : float, optional
        Largest :math:`\eta_\lambda`; default: 0.2 from a simpler model, whose multipliers are near
        the final ones, else 0.05. A network that starts at random follows larger steps to constant
        predictions and back.
    batch_size : int, default=256
        Rows of each of the two draws.
    n_steps : int, optional
        Steps in all, if training is not stopped; default: 2000, or 25 passes over the data if that
        is more.
    n_evaluations : int, default=40
        Iterations after the first: evaluations on all the data, evenly spread over the steps.
    patience : int, default=10
        Iterations without a better one after which training ends.
    held_out : int, default=7
        One row in so many is held out. If a label has fewer rows in all groups, none is held out.
    averaging : float, default=0.995
        :math:`\gamma`, smaller in the first steps.
    penalty : float, default=1.0
        :math:`\rho`.
    max_dual : float, default=100.0
        :math:`\Lambda`, the largest multiplier.
    optimizer : callable, default=torch.optim.AdamW
        ``(parameters, lr=...) -> torch.optim.Optimizer`` for the descent.

    Notes
    -----
    The residual is infinite: a run ends with its steps, or early.

    References
    ----------
    Holzmueller, Grinsztajn and Steinwart, "Better by Default: Strong Pre-Tuned MLPs and Boosted
    Trees on Tabular Data", 2024, for schedules and validation on tables. Cotter et al., "Training
    Well-Generalizing Classifiers for Fairness Metrics and Other Data-Dependent Constraints", 2019.

    Examples
    --------
    >>> from fairconstrained import RateConstrainedClassifier
    >>> from fairconstrained.datasets import make_biased_classification
    >>> from fairconstrained.solvers import EarlyStoppedSGDA
    >>> data = make_biased_classification(500, random_state=0)
    >>> solver = EarlyStoppedSGDA(patience=5)
    >>> clf = RateConstrainedClassifier(slack=0.1, model=(8,), solver=solver, random_state=0)
    >>> clf.fit(data.data, data.target, sensitive_features=data.sensitive_features).feasible_
    True
    """

    requires = ("draws", "held_out")
    scope = "problems whose rows can be held out, without privacy (epsilon=None)"

    def __init__(
        self,
        *,
        step_size: float = 0.003,
        dual_step_size: float | None = None,
        batch_size: int = 256,
        n_steps: int | None = None,
        n_evaluations: int = 40,
        patience: int = 10,
        held_out: int = 7,
        averaging: float = 0.995,
        penalty: float = 1.0,
        max_dual: float = 100.0,
        optimizer: Callable[..., Any] = torch.optim.AdamW,
    ):
        self.step_size = step_size
        self.dual_step_size = dual_step_size
        self.batch_size = batch_size
        self.n_steps = n_steps
        self.n_evaluations = n_evaluations
        self.patience = patience
        self.held_out = held_out
        self.averaging = averaging
        self.penalty = penalty
        self.max_dual = max_dual
        self.optimizer = optimizer

    @property
    def length(self) -> int:  # type: ignore[override]
        """Largest number of iterations."""
        return 1 + self.n_evaluations

    def check(self, problem: Divisible) -> None:
        """Raise ValueError for a bad parameter."""
        rates = ["step_size", "max_dual"] + ["dual_step_size"] * (self.dual_step_size is not None)
        check_numbers(self, positive=rates, nonnegative=["penalty", "averaging"])
        lengths = ["batch_size", "n_evaluations", "patience", "held_out"]
        lengths += ["n_steps"] * (self.n_steps is not None)
        check_numbers(self, positive=lengths, kind=Integral)
        if self.averaging >= 1 or self.held_out < 2:
            raise ValueError(
                "EarlyStoppedSGDA.averaging must be below 1 and held_out at least 2; got "
                f"{self.averaging!r} and {self.held_out!r}."
            )
        if not callable(self.optimizer):
            raise ValueError(
                f"EarlyStoppedSGDA.optimizer must be callable; got {self.optimizer!r}."
            )

    def select(self, iterates: Sequence[Iterate]) -> Iterate:
        """Choose the feasible iterate of least objective, or the least violation."""
        return min(iterates, key=_merit)

    def iterate(
        self, problem: Divisible, x: Tensor, dual: Tensor, tol: float, rng: Generator
    ) -> Iterator[Iterate]:
        """Yield the average after each evaluation."""
        for iterate, _ in self.resumable(problem, x, dual, rng, {}):
            yield iterate

    def resumable(
        self, problem: Divisible, x: Tensor, dual: Tensor, rng: Generator, saved: dict[str, Any]
    ) -> Iterator[tuple[Iterate, dict[str, Any]]]:
        """Iterates, each with all that a later call needs to go on from there, as `saved`."""
        part, held = problem.divided(self.held_out, rng)
        n_steps = self.n_steps or max(_LEAST_STEPS, _PASSES * part.n_rows // self.batch_size)
        ends = evaluated_steps(n_steps, self.n_evaluations)
        estimates, first = Estimates(part, self.batch_size, rng), 0
        start, multipliers = part.begun(x, dual)
        dual_step_size = _FROM_HERE if start is x else _FROM_SIMPLER
        now = self.begin(start, multipliers, self.dual_step_size or dual_step_size)
        if saved:
            now.restore(saved["now"])
            estimates.state, first = saved["estimates"], saved["step"]
        else:
            yield self._judged(problem, held, estimates, now), _state(0, now, estimates)
        for step in range(first + 1, n_steps + 1):
            if now.feasible and now.waited >= self.patience:
                return
            warm_up = min(1.0, step / (_WARM_UP * n_steps))
            self.step(estimates, now, step, warm_up * cosine((step - 1) / n_steps))
            if step in ends:
                iterate = self._judged(problem, held, estimates, now)
                yield iterate, _state(step, now, estimates)

    def begin(self, x: Tensor, dual: Tensor, dual_step_size: float) -> Memory:
        """What the first step starts from; each step then changes it."""
        return Memory(
            x=x,
            dual=dual,
            dual_step_size=dual_step_size,
            average=x,
            descent=Descent(x, self.optimizer, self.step_size),
            excess=torch.zeros_like(dual),
            error_of_start=None,
            best=torch.inf,
            waited=0,
            feasible=False,
        )

    def step(self, estimates: Estimates, now: Memory, step: int, factor: float) -> None:
        """Take step number `step`, with step sizes times `factor`."""
        terms = estimates.both(now.x) if len(now.dual) else estimates.all(now.x)
        value = terms.value[1:]
        active = (now.dual + self.penalty * value).clamp_min(0.0) if self.penalty else now.dual
        gradient = terms.pullback(torch.cat((torch.ones_like(terms.value[:1]), active)))
        now.x = now.descent.step(now.x, gradient, factor * self.step_size)
        now.dual = (now.dual + factor * now.dual_step_size * value).clamp(0.0, self.max_dual)
        now.average = now.average.lerp(now.x, 1.0 - min(self.averaging, step / (step + 9.0)))

    def _judged(
        self, problem: Divisible, held: Tensor, estimates: Estimates, now: Memory
    ) -> Iterate:
        """The average as an iterate; `now` remembers the best one so far."""
        # This also gives a network the batch statistics with which it is judged.
        soft, hard = problem.evaluate(now.average)
        loss, error = problem.risks(now.average, held)
        if now.error_of_start is None:
            now.error_of_start = error
        objective = loss + (error - now.error_of_start).clamp_min(0.0)
        now.excess = (now.excess + _GAIN * hard[1:]).clamp_min(0.0)
        estimates.shift = hard[1:] - soft[1:] + now.excess
        soft, hard = torch.cat((objective[None], soft[1:])), torch.cat((error[None], hard[1:]))
        iterate = Iterate(now.average, soft, hard, now.dual, torch.inf)
        merit = sum(_merit(iterate))
        now.waited = 0 if merit < now.best else now.waited + 1
        now.best = min(merit, now.best)
        now.feasible = now.feasible or iterate.excess <= FEASIBILITY_TOL
        return iterate


def _state(step: int, now: Memory, estimates: Estimates) -> dict[str, Any]:
    return {"step": step, "now": now.saved(), "estimates": estimates.state}


def _merit(iterate: Iterate) -> tuple[float, float]:
    """What is least for the best iterate: the violation beyond the tolerance, the objective."""
    return max(iterate.excess, FEASIBILITY_TOL), float(iterate.soft[0])
