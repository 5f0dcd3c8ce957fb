"""The stochastic switching subgradient method."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator

from fairconstrained.problems.base import SampledProblem
from fairconstrained.solvers.base import count, nonnegative, positive
from fairconstrained.solvers.stochastic import (
    Descent,
    Estimates,
    Memory,
    StochasticSolver,
    constant,
)


@dataclass(eq=False, repr=False, kw_only=True)
class SwitchingSubgradient(StochasticSolver):
    r"""A step on the objective where the constraints seem to hold, else one on the worst of them.

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
    The last iterate is the point drawn, and it is the result: the other iterates are there to be
    watched. The method has no multipliers; they are reported as zero.

    References
    ----------
    Kliachkin et al., "Benchmarking Stochastic Approximation Algorithms for Fairness-Constrained
    Training of Deep Neural Networks", Algorithm 3, after Huang and Lin (2023). The defaults are
    those of its experiments but for the batch (there 8 to 16).

    Examples
    --------
    >>> from fairconstrained.solvers import SwitchingSubgradient
    >>> SwitchingSubgradient(step_size=0.02, constraint_step_size=0.02)
    SwitchingSubgradient(constraint_step_size=0.02, step_size=0.02)
    """

    keeps_last = True  # the point drawn

    step_size: float = positive(0.5)
    constraint_step_size: float = positive(0.05)
    tolerance: float = nonnegative(1e-4)
    batch_size: int = count(128)
    constraint_batch_size: int | None = count(None)
    record_from: float = nonnegative(0.5, below=1)
    n_steps: int | None = count(None)
    n_evaluations: int = count(30)
    optimizer: Callable[..., Any] | None = None
    schedule: Callable[[float], float] = constant

    def estimates(self, problem: SampledProblem, rng: Generator) -> Estimates:
        """Return draws, of which those that decide may have a size of their own."""
        return Estimates(problem, self.batch_size, rng, self.constraint_batch_size)

    def prepare(self, estimates: Estimates, now: Memory) -> None:
        """Record nothing yet; each kind of step has an update rule."""
        now.dual, now.output, now.total = torch.zeros_like(now.dual), now.x, 0.0
        now.on_constraint = Descent(now.x, self.optimizer, self.constraint_step_size)

    def step(self, estimates: Estimates, now: Memory) -> None:
        """Take a step on the objective or on the worst constraint."""
        _, deciding, weighted = estimates.independent(now.x)
        weights = torch.zeros_like(now.dual)
        # Paper: the tolerance falls by 3 % an epoch after 500 steps; here it is constant,
        # because 1e-4 is below anything that a batch can tell.
        if max(deciding.tolist(), default=0.0) <= self.tolerance:
            descent, size, gradient = now.descent, self.step_size, weighted(1.0, weights)
        else:
            weights[deciding.argmax()] = 1.0
            gradient = weighted(0.0, weights)
            descent, size = now.on_constraint, self.constraint_step_size
        size *= self.schedule(now.progress)
        if now.progress >= self.record_from and size > 0:
            # One point kept, replaced with probability size / total: drawn in proportion.
            now.total += size
            u = torch.rand((), generator=estimates.rng, dtype=torch.float64).item()
            if now.total * u < size:
                now.output = now.x
        now.x = descent.step(now.x, gradient, size)
