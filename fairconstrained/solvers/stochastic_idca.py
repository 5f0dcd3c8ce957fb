r"""IDCA on mini-batches, for any model: convex subproblems by a stochastic primal-dual method."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from fairconstrained.solvers.base import count, positive
from fairconstrained.solvers.stochastic import (
    Descent,
    Estimates,
    Memory,
    StochasticSolver,
    cosine,
)


@dataclass(eq=False, repr=False, kw_only=True)
class StochasticIDCA(StochasticSolver):
    r"""Inexact difference-of-convex algorithm with primal-dual stochastic gradients inside.

    From an anchor, with the convex bounds :math:`g \ge c` on the constraints there (their concave
    parts linearised), `inner_steps` steps of

    .. math::

        x^+ &= x - \eta\, \big( \nabla f(x; \xi) + \nabla g(x; \zeta)' \lambda \big), \\
        \lambda &\leftarrow [\, \lambda + \eta_\lambda\, (g(x^+; \zeta) + s) \,]_+

    on rows :math:`\xi` and :math:`\zeta` of their own; their mean is the next anchor. The shift s
    is the difference of hard and soft values on the full data, measured after each iteration.

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
    n_steps : int, optional
        Steps in all; default: 1000, or ten passes over the data if that is more.
    n_evaluations : int, default=30
        Iterations: evaluations on all the data, evenly spread over the steps. Each is a pass.
    optimizer : callable, optional
        ``(parameters, lr=...) -> torch.optim.Optimizer``, whose update rule takes the place of the
        plain step in x, such as ``torch.optim.Adam``.
    schedule : callable, default=cosine
        From the fraction of the run that is done to the factor of both step sizes.

    Notes
    -----
    A step costs three forward passes over its rows for constraints and one backward pass; memory
    does not grow with the data. An iteration ends with an evaluation; the iterate of least
    error among the feasible ones is kept.

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
    >>> data = make_biased_classification(1000, random_state=0)
    >>> network, solver = Network((8,), n_bins=None), StochasticIDCA(n_steps=100)
    >>> clf = PartialParityClassifier(slack=0.2, model=network, solver=solver, random_state=0)
    >>> clf.fit(data.data, data.target, sensitive_features=data.sensitive_features).status_
    'the solver came to the end of its schedule'
    """

    requires = ("draws", "convex_bounds")
    scope = (
        "constraints that are differences of convex functions of the scores, as the partial "
        "notions but group_auc are, without privacy (epsilon=None)"
    )

    step_size: float = positive(0.1)
    dual_step_size: float = positive(0.05)
    inner_steps: int = positive(50)
    max_dual: float = positive(100.0)
    batch_size: int = count(64)
    n_steps: int | None = count(None)
    n_evaluations: int = count(30)
    optimizer: Callable[..., Any] | None = None
    schedule: Callable[[float], float] = cosine

    @classmethod
    def suits(cls, problem: Any) -> bool:
        """Whether the constraints are known differences of convex functions of the scores."""
        return bool(problem.has_convex_bounds)

    def prepare(self, estimates: Estimates, now: Memory) -> None:
        """Let the point be the first anchor."""
        now.anchor, now.total, now.inner = now.x, torch.zeros_like(now.x), 0
        now.descent = Descent(now.x, self.optimizer, self.step_size)

    def step(self, estimates: Estimates, now: Memory) -> None:
        """Take one step on the subproblem; after the last of them the anchor moves."""
        factor = self.schedule(now.progress)
        if not len(now.dual):
            gradient = estimates.objective(now.x)
            now.x = now.descent.step(now.x, gradient, factor * self.step_size)
            return
        draw = estimates.balanced_rows()
        # Paper: concave parts linearised in the parameters; here: in the scores, because for
        # networks only that is a bound on the constraints (for linear models both are the same).
        problem: Any = estimates.problem
        gradient = estimates.objective(now.x)
        gradient = gradient + problem.convex_bounds(now.x, now.anchor, *draw).pullback(now.dual)
        now.x = now.descent.step(now.x, gradient, factor * self.step_size)
        # Yu et al.: g + grad g' (x+ - x); here: g(x+), the same to first order and one pass.
        excess = problem.convex_bounds(now.x, now.anchor, *draw).value + estimates.shift
        # Yu et al.: multipliers start at 0; here: at the last ones, as subproblems are alike.
        now.dual = (now.dual + factor * self.dual_step_size * excess).clamp(0.0, self.max_dual)
        now.total, now.inner = now.total + now.x, now.inner + 1
        if now.inner == self.inner_steps:
            now.x = now.anchor = now.total / now.inner
            now.total, now.inner = torch.zeros_like(now.total), 0
