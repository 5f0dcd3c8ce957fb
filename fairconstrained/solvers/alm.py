"""Stochastic augmented Lagrangians with slack variables, and switching subgradients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator

from fairconstrained.problems.base import SampledProblem
from fairconstrained.solvers import stochastic
from fairconstrained.solvers.base import count, nonnegative, positive
from fairconstrained.solvers.stochastic import Estimates, Memory, StochasticSolver


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
        Rows of each of the three draws; draws for constraints take equally many from each part.
    n_steps : int, optional
        Default: 1000, or ten passes over the data if that is more.
    n_evaluations : int, default=30
        Iterations: evaluations on all the data, evenly spread over the steps. Each is a pass.
    optimizer : callable, optional
        ``(parameters, lr=...) -> torch.optim.Optimizer``, such as ``torch.optim.Adam``, whose
        update rule takes the place of the plain step in x.
    schedule : callable, default=constant
        Maps the completed fraction of the run to the factor of all step sizes, such as
        :func:`fairconstrained.solvers.cosine`.

    Notes
    -----
    Slack starts at :math:`[-c(x)]_+` of the full data: a constraint that stays inactive keeps
    :math:`C = 0` and exerts no force. Constraints are shifted by the difference of hard and
    soft values on all rows, measured after each iteration: multipliers follow predicted labels.
    The feasible iterate with the smallest error is kept.

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

    dual_step_size: float = positive(0.05)
    penalty: float = nonnegative(1.0)
    max_dual: float = positive(10.0)
    optimizer: Callable[..., Any] | None = None
    schedule: Callable[[float], float] = stochastic.constant

    smoothing = averaging = 0.0  # SSLALM sets them

    def prepare(self, estimates: Estimates, now: Memory) -> None:
        now.y = now.dual
        # Slack fills inactive constraints, so that these exert no force at the start.
        now.slack = (-estimates.problem.evaluate(now.x).soft[1:]).clamp_min(0.0)
        now.centre = torch.cat((now.x, now.slack))

    def step(self, estimates: Estimates, now: Memory) -> None:
        factor = self.schedule(now.progress)
        step_size = factor * self.step_size
        first, second, weighted = estimates.independent(now.x)
        y = now.y.add(first + now.slack, alpha=factor * self.dual_step_size)
        # Paper: the multipliers restart at zero instead of being clipped, which keeps them bounded.
        if float(torch.linalg.vector_norm(y)) >= self.max_dual:
            y = torch.zeros_like(y)
        force = y.add(second + now.slack, alpha=self.penalty)
        difference = torch.cat((now.x, now.slack)) - now.centre
        gradient = torch.cat((weighted(1.0, force), force)).add(difference, alpha=self.smoothing)
        on_x, on_slack = gradient.tensor_split([len(now.x)])
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
    See :class:`ALM`; defaults follow its experiments, except for the batch size (there 8).

    Examples
    --------
    >>> from fairconstrained.solvers import SSLALM
    >>> SSLALM(smoothing=1.0)
    SSLALM(smoothing=1.0)
    """

    smoothing: float = nonnegative(2.0)
    averaging: float = positive(0.5, most=1)


@dataclass(eq=False, repr=False, kw_only=True)
class SwitchingSubgradient(StochasticSolver):
    r"""Steps on the objective where the constraints seem to hold, else on the worst constraint.

    .. math::

        x \leftarrow x - \begin{cases}
            \eta^f\, \nabla f(x; \xi) & \text{if } \max_i c_i(x; \zeta_1, \dots, \zeta_J)
                \le \epsilon, \\
            \eta^c\, \nabla c_i(x; \zeta) & \text{else, for the largest } c_i,
        \end{cases}

    with independent rows for each estimate. The result is drawn from the points :math:`x_k` of the
    later steps with probabilities in proportion to the sizes of their steps.

    Parameters
    ----------
    step_size : float, default=0.5
        :math:`\eta^f`.
    constraint_step_size : float, default=0.05
        :math:`\eta^c`.
    tolerance : float, default=1e-4
        :math:`\epsilon`.
    batch_size : int, default=128
        Rows that a gradient is estimated from.
    constraint_batch_size : int, optional
        Rows that decide which step to make; default: `batch_size`.
    record_from : float, default=0.5
        Fraction of the run after which points are recorded for the result.
    n_steps, n_evaluations, optimizer, schedule
        As in :class:`ALM`. Each of the two kinds of steps has an optimizer of its own.

    Notes
    -----
    The drawn point is the last iterate and the result. All multipliers are zero.

    References
    ----------
    See :class:`ALM`, Algorithm 3, after Huang and Lin (2023). Defaults follow its experiments,
    except for the batch size (there 8 to 16).

    Examples
    --------
    >>> from fairconstrained.solvers import SwitchingSubgradient
    >>> SwitchingSubgradient(step_size=0.02, constraint_step_size=0.02)
    SwitchingSubgradient(constraint_step_size=0.02, step_size=0.02)
    """

    keeps_last = True  # the drawn point

    step_size: float = positive(0.5)
    constraint_step_size: float = positive(0.05)
    tolerance: float = nonnegative(1e-4)
    constraint_batch_size: int | None = count(None)
    record_from: float = nonnegative(0.5, below=1)
    optimizer: Callable[..., Any] | None = None
    schedule: Callable[[float], float] = stochastic.constant

    def estimates(self, problem: SampledProblem, rng: Generator) -> Estimates:
        return Estimates(problem, self.batch_size, rng, self.constraint_batch_size)

    def prepare(self, estimates: Estimates, now: Memory) -> None:
        now.dual, now.output, now.total = torch.zeros_like(now.dual), now.x, 0.0
        now.on_constraint = stochastic.Descent(now.x, self.optimizer, self.constraint_step_size)

    def step(self, estimates: Estimates, now: Memory) -> None:
        _, deciding, weighted = estimates.independent(now.x)
        weights = torch.zeros_like(now.dual)
        # Paper: the tolerance falls by 3 % an epoch after 500 steps; here: it is constant,
        # because 1e-4 is already below the noise of a batch.
        if max(deciding.tolist(), default=0.0) <= self.tolerance:
            descent, size, gradient = now.descent, self.step_size, weighted(1.0, weights)
        else:
            weights[deciding.argmax()] = 1.0
            gradient = weighted(0.0, weights)
            descent, size = now.on_constraint, self.constraint_step_size
        size *= self.schedule(now.progress)
        if now.progress >= self.record_from and size > 0:
            # Replacing the point with probability size / total draws it in proportion to the sizes.
            now.total += size
            u = torch.rand((), generator=estimates.rng, dtype=torch.float64).item()
            if now.total * u < size:
                now.output = now.x
        now.x = descent.step(now.x, gradient, size)
