"""Stochastic descent-ascent on Lagrangians."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from fairconstrained.problems.base import Linearization
from fairconstrained.solvers.base import count, nonnegative, positive
from fairconstrained.solvers.stochastic import Estimates, Memory, StochasticSolver, cosine


@dataclass(eq=False, repr=False, kw_only=True)
class SGDA(StochasticSolver):
    r"""Descent in the parameters and ascent in the multipliers, both from the same mini-batch.

    With :math:`\hat f, \hat c` estimated on a batch,

    .. math::

        x &\leftarrow x - \eta\, \nabla \Big( \hat f(x)
            + \tfrac{1}{2\rho} \lVert [\lambda + \rho\,(\hat c(x) + s)]_+ \rVert^2 \Big), \\
        \lambda &\leftarrow \Pi_{[0, \Lambda]} (\lambda + \eta_\lambda (\hat c(x) + s)),

    where :math:`\rho = 0` stands for the plain Lagrangian :math:`\hat f + \lambda' \hat c`, and the
    shift :math:`s` is the difference of hard and soft values on the full data, measured after each
    iteration: the multipliers answer to predicted labels. Both step sizes fall to zero along a
    cosine.

    Parameters
    ----------
    step_size : float, default=0.01
        First :math:`\eta`.
    dual_step_size : float, default=0.2
        First :math:`\eta_\lambda`.
    batch_size : int, default=2048
    n_steps, n_evaluations
        As in :class:`ALM`.
    penalty : float, default=1.0
        :math:`\rho`, which damps the oscillation of descent-ascent.
    max_dual : float, default=100.0
        :math:`\Lambda`, the largest multiplier.
    optimizer : callable, default=torch.optim.Adam
        ``(parameters, lr=...) -> torch.optim.Optimizer`` for the descent.

    Notes
    -----
    The feasible iterate of least error is kept.

    References
    ----------
    Lin, Jin and Jordan (2020), On gradient descent ascent for nonconvex-concave minimax problems.

    Examples
    --------
    >>> from fairconstrained import RateConstrainedClassifier
    >>> from fairconstrained.solvers import SGDA
    >>> RateConstrainedClassifier(model=(64,), solver=SGDA(batch_size=128))
    RateConstrainedClassifier(model=(64,), solver=SGDA(batch_size=128))
    """

    dual_step_size: float = positive(0.2)
    batch_size: int = count(2048)
    penalty: float = nonnegative(1.0)
    max_dual: float = positive(100.0)
    optimizer: Callable[..., Any] = torch.optim.Adam

    def step(self, estimates: Estimates, now: Memory) -> None:
        terms = estimates.problem.linearize(now.x, estimates.rows())
        self.move(now, estimates.moved(terms), cosine(now.progress), self.dual_step_size)

    def move(self, now: Memory, terms: Linearization, factor: float, dual_step_size: float) -> None:
        """Take a step in the point and one in the multipliers, both from the same estimates."""
        value = terms.value[1:]
        active = (now.dual + self.penalty * value).clamp_min(0.0) if self.penalty else now.dual
        gradient = terms.pullback(torch.cat((torch.ones_like(terms.value[:1]), active)))
        now.x = now.descent.step(now.x, gradient, factor * self.step_size)
        now.dual = (now.dual + factor * dual_step_size * value).clamp(0.0, self.max_dual)
