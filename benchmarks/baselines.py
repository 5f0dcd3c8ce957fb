"""Baselines of constrained algorithms: plain descent, and descent with a penalty."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fairconstrained.solvers.stochastic import (
    Descent,
    Estimates,
    Memory,
    StochasticSolver,
    constant,
)

__all__ = ["SGD", "PenaltySGD"]


class SGD(StochasticSolver):
    r"""Stochastic gradient descent on the objective; it ignores the constraints.

    Parameters
    ----------
    step_size : float, default=0.01
    batch_size : int, default=128
    n_steps : int, optional
        Default: 1000, or ten passes over the data if that is more.
    optimizer : callable, optional
        ``(parameters, lr=...) -> torch.optim.Optimizer``.
    schedule : callable, default=constant
        From the fraction of the run that is done to the factor of the step size.

    Notes
    -----
    The last iterate is the result, and multipliers are reported as zero.

    Examples
    --------
    >>> from benchmarks.baselines import SGD
    >>> SGD(step_size=0.1)
    SGD(step_size=0.1)
    """

    keeps_last = True  # feasible or not

    def compared_with(self, known):
        return ()  # feasible points are none that a penalty method looks for

    def __init__(
        self,
        *,
        step_size: float = 0.01,
        batch_size: int = 128,
        n_steps: int | None = None,
        optimizer: Callable[..., Any] | None = None,
        schedule: Callable[[float], float] = constant,
    ):
        self.step_size = step_size
        self.batch_size = batch_size
        self.n_steps = n_steps
        self.optimizer = optimizer
        self.schedule = schedule

    def prepare(self, estimates: Estimates, now: Memory) -> None:
        """Add the update rule."""
        now.descent = Descent(now.x, self.optimizer, self.step_size)

    def step(self, estimates: Estimates, now: Memory) -> None:
        """Take a step against the gradient of the objective."""
        gradient, now.dual = self._gradient(estimates, now.x, now.dual)
        step_size = self.schedule(now.progress) * self.step_size
        now.x = now.descent.step(now.x, gradient, step_size)

    def _gradient(self, estimates: Estimates, x: Tensor, dual: Tensor) -> tuple[Tensor, Tensor]:
        return estimates.objective(x), torch.zeros_like(dual)


class PenaltySGD(SGD):
    r"""Stochastic gradient descent on the objective plus a fixed penalty on violations.

    .. math:: x \leftarrow x - \eta\, \nabla \Big( \hat f(x) + \gamma \sum_i [\hat c_i(x)]_+ \Big),

    both from the same rows, as regularisers such as those of fairret do. The slack does not say how
    large :math:`\gamma` must be, and :math:`[\cdot]_+` of an estimate is biased.

    Parameters
    ----------
    step_size, batch_size, n_steps, optimizer, schedule
        As in :class:`SGD`.
    penalty : float, default=0.5
        :math:`\gamma`.

    Notes
    -----
    Multipliers are reported as the weight that each constraint had in the last step, zero or
    :math:`\gamma`.

    References
    ----------
    Buyl, Defrance and De Bie (2024), fairret: a framework for differentiable fairness
    regularization terms. Kliachkin et al., "Benchmarking Stochastic Approximation Algorithms for
    Fairness-Constrained Training of Deep Neural Networks", Section 4.

    Examples
    --------
    >>> from benchmarks.baselines import PenaltySGD
    >>> PenaltySGD(penalty=2.0)
    PenaltySGD(penalty=2.0)
    """

    _nonnegative = ("penalty",)

    def __init__(
        self,
        *,
        step_size: float = 0.01,
        penalty: float = 0.5,
        batch_size: int = 128,
        n_steps: int | None = None,
        optimizer: Callable[..., Any] | None = None,
        schedule: Callable[[float], float] = constant,
    ):
        super().__init__(
            step_size=step_size,
            batch_size=batch_size,
            n_steps=n_steps,
            optimizer=optimizer,
            schedule=schedule,
        )
        self.penalty = penalty

    def _gradient(self, estimates: Estimates, x: Tensor, dual: Tensor) -> tuple[Tensor, Tensor]:
        terms = estimates.all(x)
        weights = self.penalty * (terms.value[1:] > 0).to(terms.value)
        return terms.pullback(torch.cat((torch.ones_like(terms.value[:1]), weights))), weights
