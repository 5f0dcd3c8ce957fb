"""Stochastic augmented Lagrangians with slack variables: ALM, and smoothed SSL-ALM."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from fairconstrained.solvers.base import count, nonnegative, positive
from fairconstrained.solvers.stochastic import (
    Estimates,
    Memory,
    StochasticSolver,
    constant,
)


@dataclass(eq=False, repr=False, kw_only=True)
class ALM(StochasticSolver):
    r"""Stochastic linearised augmented Lagrangian, with slack variables for the inequalities.

    With slack :math:`s \ge 0`, :math:`C(x, s) = c(x) + s`, and estimates from independent rows
    :math:`\xi, \zeta_1, \zeta_2`,

    .. math::

        y &\leftarrow y + \eta\, C(x, s; \zeta_1), \quad y \leftarrow 0
            \text{ if } \lVert y \rVert \ge M, \\
        v &= y + \rho\, C(x, s; \zeta_2), \\
        x &\leftarrow x - \tau \big( \nabla f(x; \xi) + \nabla c(x; \zeta_1)' v \big),
        \qquad s \leftarrow [\, s - \tau v \,]_+ .

    Parameters
    ----------
    step_size : float, default=0.01
        :math:`\tau`.
    dual_step_size : float, default=0.05
        :math:`\eta`.
    penalty : float, default=1.0
        :math:`\rho`.
    max_dual : float, default=10.0
        :math:`M`.
    batch_size : int, default=128
        Rows of each of the three draws; those for constraints are equally many from each part.
    n_steps : int, optional
        Default: 1000, or ten passes over the data if that is more.
    n_evaluations : int, default=30
        Iterations: evaluations on all the data, evenly spread over the steps. Each is a pass.
    optimizer : callable, optional
        ``(parameters, lr=...) -> torch.optim.Optimizer``, whose update rule takes the place of the
        plain step in x, such as ``torch.optim.Adam``.
    schedule : callable, default=constant
        From the fraction of the run that is done to the factor of all step sizes, such as
        :func:`fairconstrained.solvers.cosine`.

    Notes
    -----
    Slack starts at :math:`[-c(x)]_+` of the full data: a constraint that stays inactive keeps
    :math:`C = 0` and exerts no force. Constraints are moved by the difference of hard and soft
    values on the full data, measured after each iteration: the multipliers answer to predicted
    labels. The feasible iterate of least error is kept.

    References
    ----------
    Kliachkin et al., "Benchmarking Stochastic Approximation Algorithms for Fairness-Constrained
    Training of Deep Neural Networks", Algorithm 2 with mu = 0.

    Examples
    --------
    >>> from fairconstrained import RateConstrainedClassifier
    >>> from fairconstrained.datasets import make_biased_classification
    >>> from fairconstrained.solvers import ALM
    >>> data = make_biased_classification(1000, random_state=0)
    >>> clf = RateConstrainedClassifier(slack=0.1, solver=ALM(step_size=0.1), random_state=0)
    >>> clf.fit(data.data, data.target, sensitive_features=data.sensitive_features).feasible_
    True
    """

    step_size: float = positive(0.01)
    dual_step_size: float = positive(0.05)
    penalty: float = nonnegative(1.0)
    max_dual: float = positive(10.0)
    batch_size: int = count(128)
    n_steps: int | None = count(None)
    n_evaluations: int = count(30)
    optimizer: Callable[..., Any] | None = None
    schedule: Callable[[float], float] = constant

    smoothing = averaging = 0.0  # of SSLALM

    def prepare(self, estimates: Estimates, now: Memory) -> None:
        """Add the slack, and the first centre: the point with its slack."""
        now.y = now.dual
        now.slack = (-estimates.problem.evaluate(now.x).soft[1:]).clamp_min(0.0)
        now.centre = torch.cat((now.x, now.slack))

    def step(self, estimates: Estimates, now: Memory) -> None:
        """Take a step in y, then in x and the slack, and then move the centre."""
        factor = self.schedule(now.progress)
        step_size = factor * self.step_size
        first, second, weighted = estimates.independent(now.x)
        y = now.y.add(first + now.slack, alpha=factor * self.dual_step_size)
        if float(torch.linalg.vector_norm(y)) >= self.max_dual:
            y = torch.zeros_like(y)
        force = y.add(second + now.slack, alpha=self.penalty)
        difference = torch.cat((now.x, now.slack)) - now.centre
        gradient = torch.cat((weighted(1.0, force), force))
        gradient = gradient.add(difference, alpha=self.smoothing)
        on_x, on_slack = gradient[: len(now.x)], gradient[len(now.x) :]
        now.centre = now.centre.add(difference, alpha=self.averaging)
        now.x = now.descent.step(now.x, on_x, step_size)
        now.slack = now.slack.add(on_slack, alpha=-step_size).clamp_min(0.0)
        now.y, now.dual = y, y.clamp_min(0.0)


@dataclass(eq=False, repr=False, kw_only=True)
class SSLALM(ALM):
    r"""Stochastic smoothed and linearised augmented Lagrangian.

    The steps of :class:`ALM` on the augmented Lagrangian plus
    :math:`\tfrac{\mu}{2} \lVert (x, s) - z \rVert^2`, whose centre follows:
    :math:`z \leftarrow z + \beta\, ((x, s) - z)`, with the point before the step.

    Parameters
    ----------
    step_size, dual_step_size, penalty, max_dual, batch_size, n_steps, n_evaluations, optimizer,
    schedule
        As in :class:`ALM`.
    smoothing : float, default=2.0
        :math:`\mu`.
    averaging : float, default=0.5
        :math:`\beta`, at most 1.

    References
    ----------
    Kliachkin et al., "Benchmarking Stochastic Approximation Algorithms for Fairness-Constrained
    Training of Deep Neural Networks", Algorithm 2; the defaults are those of its experiments, but
    for the batch (there 8).

    Examples
    --------
    >>> from fairconstrained.solvers import SSLALM
    >>> SSLALM(smoothing=1.0)
    SSLALM(smoothing=1.0)
    """

    smoothing: float = nonnegative(2.0)
    averaging: float = positive(0.5)
