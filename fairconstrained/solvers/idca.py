r"""Difference-of-convex constraints: IDCA, its mini-batch version, and its inner method.

They solve min f s.t. c = c^+ - c^- <= 0 with convex f, c^+ and c^-. Concave parts are linearised,
so subproblems are convex, and their feasible sets lie inside the problem's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Generator, Tensor

from fairconstrained.exceptions import InfeasibleError
from fairconstrained.problems.base import Linearization, Problem
from fairconstrained.solvers.base import Iterate, Solver, count, positive, violation
from fairconstrained.solvers.stochastic import Estimates, Memory, StochasticSolver, cosine

Terms = Callable[[Tensor], Linearization]


class FromFeasible(Solver):
    """Base of methods that stay nearly feasible, so that the last iterate is the result."""

    epsilon: float
    keeps_last = True  # these methods do not use hard values
    takes_known = True

    def _check_feasible(self, value: Tensor) -> None:
        """Raise InfeasibleError if the last point is not nearly feasible."""
        if violation(value) > self.epsilon:
            raise InfeasibleError(
                f"{type(self).__name__} found no point that meets its constraints: the surrogates "
                f"are violated by {violation(value):.3g} > epsilon={self.epsilon:g}. Constant "
                "scores meet them if all groups have the same interval. Use a larger slack, more "
                "steps, or another solver."
            )


@dataclass(eq=False, repr=False, kw_only=True)
class IDCA(FromFeasible):
    r"""Inexact difference-of-convex algorithm (Algorithm 1) with switching subgradients inside.

    From a feasible point x, each iteration solves, to a tolerance :math:`\epsilon`, the convex

    .. math:: \min_v f(v) \quad \text{s.t.} \quad
        g_i(v) = c_i^+(v) - c_i^-(x) - \nabla c_i^-(x)' (v - x) \le 0

    by `inner_steps` steps of Algorithm 2 (see :class:`DirectSwitching`) from x. As
    :math:`c \le g`, the surrogate constraints hold up to :math:`\epsilon` from the first iterate
    on. True gaps are not used.

    Constant scores are feasible if all groups have the same interval. From any other start the same
    steps first reduce the largest :math:`g_i`, until all are at most :math:`\epsilon`. If
    that takes more than `max_outer` iterations, an
    :class:`~fairconstrained.exceptions.InfeasibleError` is raised.

    Parameters
    ----------
    epsilon : float, default=1e-3
        The tolerance and the size of steps, in the units of objective and constraints.
    inner_steps : int, default=200
        T, steps in one subproblem: a pass over the data each.
    max_outer : int, default=100
        K, subproblems.

    Notes
    -----
    The paper takes T from 150 to 200, K from 100 to 400 and :math:`\epsilon` from 5e-4 to 5e-3.

    References
    ----------
    The partial-parity paper, Algorithms 1 and 2.

    Examples
    --------
    >>> from fairconstrained.solvers import IDCA
    >>> IDCA(inner_steps=150)
    IDCA(inner_steps=150)
    """

    requires = ("convex_parts",)
    assumes = "difference_of_convex"
    scope = (
        "linear models under constraints that are differences of convex functions: the partial "
        "criteria but group_auc"
    )

    epsilon: float = positive(1e-3)
    inner_steps: int = count(200)
    max_outer: int = count(100)

    @property
    def length(self) -> int:  # type: ignore[override]
        """Number of subproblems."""
        return self.max_outer

    def iterate(
        self, problem: Any, x: Tensor, dual: Tensor, tol: float, rng: Generator
    ) -> Iterator[Iterate]:
        """Solve one subproblem after another; deterministic."""
        # Paper: from a feasible point; here: from any, because constant scores are not feasible
        # for intervals that differ between groups.
        for _ in range(self.max_outer):
            path = subgradient_path(convex_subproblem(problem, x), x, self.epsilon)
            x = best_of(islice(path, self.inner_steps), self.epsilon)
            soft, hard = problem.evaluate(x)
            yield Iterate(x, soft, hard, torch.zeros_like(dual), torch.inf)
        self._check_feasible(problem.linearize(x).value)


@dataclass(eq=False, repr=False, kw_only=True)
class DirectSwitching(FromFeasible):
    r"""Switching subgradients on the problem itself (Algorithm 3): the paper's comparison.

    .. math::

        x \leftarrow x - \frac{\epsilon}{\lVert \nabla f \rVert^2} \nabla f
        \;\text{ where } \max_i c_i(x) \le \epsilon, \quad
        x \leftarrow x - \frac{c_i(x)}{\lVert \nabla c_i \rVert^2} \nabla c_i
        \;\text{ else, for the largest } c_i .

    The result is the best nearly feasible point; if there is none, an
    :class:`~fairconstrained.exceptions.InfeasibleError` is raised. Nothing is guaranteed if the
    problem is not convex.

    Parameters
    ----------
    epsilon : float, default=1e-3
    n_steps : int, default=10000
        A pass over the data each; an iteration reports a hundredth of them.

    Examples
    --------
    >>> from fairconstrained.solvers import DirectSwitching
    >>> DirectSwitching()
    DirectSwitching()
    """

    length = 100
    requires = ("exact",)
    scope = "problems with constraints, without privacy (epsilon=None)"

    epsilon: float = positive(1e-3)
    n_steps: int = count(10_000)

    def iterate(
        self, problem: Problem, x: Tensor, dual: Tensor, tol: float, rng: Generator
    ) -> Iterator[Iterate]:
        """Yield the best nearly feasible point so far, a hundred times; deterministic."""
        # Paper: a constant tolerance or c / (t + 1), whichever validates better; here: the constant
        # one, because it also defines nearly feasible results.
        path = subgradient_path(problem.linearize, x, self.epsilon)
        best = merit(problem.linearize(x).value, self.epsilon)
        for _ in range(self.length):
            candidate = best_of(islice(path, -(-self.n_steps // self.length)), self.epsilon)
            reached = merit(problem.linearize(candidate).value, self.epsilon)
            if reached <= best:
                x, best = candidate, reached
            yield Iterate(x, *problem.evaluate(x), torch.zeros_like(dual), torch.inf)
        self._check_feasible(problem.linearize(x).value)


@dataclass(eq=False, repr=False, kw_only=True)
class StochasticIDCA(StochasticSolver):
    r"""Inexact difference-of-convex algorithm with primal-dual stochastic gradients inside.

    From an anchor, with the convex bounds :math:`g \ge c` on the constraints there (their concave
    parts linearised), `inner_steps` steps of

    .. math::

        x^+ &= x - \eta\, \big( \nabla f(x; \xi) + \nabla g(x; \zeta)' \lambda \big), \\
        \lambda &\leftarrow [\, \lambda + \eta_\lambda\, (g(x^+; \zeta) + s) \,]_+

    on independent rows :math:`\xi` and :math:`\zeta`; their mean is the next anchor. The shift s is
    the difference of hard and soft values on the full data, measured after each iteration.

    Parameters
    ----------
    step_size : float, default=0.1
        First :math:`\eta`.
    dual_step_size : float, default=0.05
        First :math:`\eta_\lambda`.
    inner_steps : int, default=50
        T, steps in one subproblem.
    max_dual : float, default=100.0
        Largest multiplier.
    batch_size : int, default=64
        Rows of each of the two draws; those for constraints are equally many from each part.
    n_steps, n_evaluations, optimizer, schedule
        As in :class:`ALM`; by default the step sizes fall along a :func:`cosine`.

    Notes
    -----
    A step costs three forward passes over its rows for constraints and one backward pass; memory
    does not grow with the data. The feasible iterate of least error is kept.

    References
    ----------
    The partial-parity paper, Algorithm 1 and Section G.9; Yu, Neely and Wei (2017), Online convex
    optimization with stochastic constraints.

    Examples
    --------
    >>> from fairconstrained import PartialParityClassifier
    >>> from fairconstrained.datasets import make_biased_classification
    >>> from fairconstrained.models import Network
    >>> from fairconstrained.solvers import StochasticIDCA
    >>> data = make_biased_classification(500, random_state=0)
    >>> network, solver = Network((8,), n_bins=None), StochasticIDCA(n_steps=30)
    >>> clf = PartialParityClassifier(slack=0.2, model=network, solver=solver, random_state=0)
    >>> clf.fit(data.data, data.target, sensitive_features=data.sensitive_features).status_
    'the solver came to the end of its schedule'
    """

    requires = ("draws", "convex_bounds")
    assumes = "has_convex_bounds"
    scope = (
        "constraints that are differences of convex functions of the scores, as the partial "
        "criteria but group_auc are, without privacy (epsilon=None)"
    )

    step_size: float = positive(0.1)
    dual_step_size: float = positive(0.05)
    inner_steps: int = count(50)
    max_dual: float = positive(100.0)
    batch_size: int = count(64)
    optimizer: Callable[..., Any] | None = None
    schedule: Callable[[float], float] = cosine

    def prepare(self, estimates: Estimates, now: Memory) -> None:
        now.anchor, now.total, now.inner = now.x, torch.zeros_like(now.x), 0

    def step(self, estimates: Estimates, now: Memory) -> None:
        factor = self.schedule(now.progress)
        problem: Any = estimates.problem
        draw = estimates.balanced_rows() if len(now.dual) else ()
        terms = problem.estimates(now.x, estimates.rows())
        gradient = terms.pullback(torch.ones_like(terms.value))
        # Paper: concave parts linearised in the parameters; here: in the scores, because for
        # networks only that is a bound on the constraints (for linear models both are the same).
        if draw:
            bounds = problem.convex_bounds(now.x, now.anchor, *draw)
            gradient = gradient + bounds.pullback(now.dual)
        now.x = now.descent.step(now.x, gradient, factor * self.step_size)
        if not draw:
            return
        # Yu et al.: g + grad g' (x+ - x); here: g(x+), the same to first order and one pass.
        excess = problem.convex_bounds(now.x, now.anchor, *draw).value + estimates.shift
        # Yu et al.: multipliers start at 0; here: at the last ones, as subproblems are alike.
        now.dual = (now.dual + factor * self.dual_step_size * excess).clamp(0.0, self.max_dual)
        now.total, now.inner = now.total + now.x, now.inner + 1
        if now.inner == self.inner_steps:
            now.x = now.anchor = now.total / now.inner
            now.total, now.inner = torch.zeros_like(now.total), 0


def convex_subproblem(problem: Any, x: Tensor) -> Terms:
    """Return (f, g) with the concave parts of the constraints linearised at x (31)."""
    m, at_x = problem.n_constraints, problem.convex_parts(x)
    concave, units = at_x.value[1 + m :], torch.eye(1 + 2 * m).to(x)[1 + m :]
    slopes = at_x.pullbacks(units) if m else x.new_zeros((0, len(x)))

    def terms(v: Tensor) -> Linearization:
        parts = problem.convex_parts(v)
        value = parts.value[: 1 + m].clone()
        value[1:] -= concave + slopes @ (v - x)

        def pullback(weights: Tensor) -> Tensor:
            padded = torch.cat((weights, torch.zeros_like(concave)))
            gradient: Tensor = parts.pullback(padded) - weights[1:] @ slopes
            return gradient

        return Linearization(value, pullback)

    return terms


def subgradient_path(terms: Terms, x: Tensor, epsilon: float) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield points of the switching subgradient method with Polyak steps, and (f, c) there."""
    while True:
        at_x = terms(x)
        yield x, at_x.value
        excess, unit = violation(at_x.value), torch.zeros_like(at_x.value)
        feasible = excess <= epsilon
        unit[0 if feasible else 1 + int(at_x.value[1:].argmax())] = 1.0
        subgradient = at_x.pullback(unit)
        # Polyak: for a linear function this step removes the violation, or epsilon of f.
        step = (epsilon if feasible else excess) / (subgradient @ subgradient).clamp_min(1e-30)
        x = x - subgradient * step


def best_of(path: Iterable[tuple[Tensor, Tensor]], epsilon: float) -> Tensor:
    """Return the nearly feasible point of least objective, or the point of least violation."""
    return min(path, key=lambda there: merit(there[1], epsilon))[0]


def merit(value: Tensor, epsilon: float) -> tuple[float, float]:
    """Return the violation, at least `epsilon`, and the objective: less is better."""
    return max(violation(value), epsilon), float(value[0])
