"""Stochastic gradient descent-ascent: mini-batches, for networks and large data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from numbers import Integral
from typing import Any

import torch
from torch import Generator, Tensor

from fairconstrained.problems import SampledProblem
from fairconstrained.solvers.base import Iterate, Solver, check_numbers
from fairconstrained.solvers.stochastic.base import evaluated_steps
from fairconstrained.solvers.stochastic.sampling import ShuffledBatches


class SGDA(Solver):
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
    n_steps : int, optional
        Mini-batch steps in all; default: 1000, or ten passes over the data if that is more.
    n_evaluations : int, default=30
        Iterations: evaluations on all the data, evenly spread over the steps. Each is a pass.
    penalty : float, default=1.0
        :math:`\rho`, which damps the oscillation of descent-ascent.
    max_dual : float, default=100.0
        :math:`\Lambda`, the largest multiplier.
    optimizer : callable, default=torch.optim.Adam
        ``(parameters, lr=...) -> torch.optim.Optimizer`` for the descent.

    Notes
    -----
    An iteration ends with an evaluation on the full data. Memory beyond the
    data grows with the batch and, in evaluations, with n scores. The residual is infinite: the run
    ends with its steps, and the iterate of least error among the feasible ones is kept.

    References
    ----------
    Lin, Jin and Jordan (2020), On gradient descent ascent for nonconvex-concave minimax problems.

    Examples
    --------
    >>> from fairconstrained import RateConstrainedClassifier
    >>> from fairconstrained.datasets import make_biased_classification
    >>> from fairconstrained.solvers import SGDA
    >>> data = make_biased_classification(500, random_state=0)
    >>> clf = RateConstrainedClassifier(slack=0.1, solver=SGDA(batch_size=128), random_state=0)
    >>> clf.fit(data.data, data.target, sensitive_features=data.sensitive_features).status_
    'the solver came to the end of its schedule'
    """

    requires = ("draws",)
    scope = "problems with constraints whose rows can be drawn, without privacy (epsilon=None)"

    def __init__(
        self,
        *,
        step_size: float = 0.01,
        dual_step_size: float = 0.2,
        batch_size: int = 2048,
        n_steps: int | None = None,
        n_evaluations: int = 30,
        penalty: float = 1.0,
        max_dual: float = 100.0,
        optimizer: Callable[..., Any] = torch.optim.Adam,
    ):
        self.step_size = step_size
        self.dual_step_size = dual_step_size
        self.batch_size = batch_size
        self.n_steps = n_steps
        self.n_evaluations = n_evaluations
        self.penalty = penalty
        self.max_dual = max_dual
        self.optimizer = optimizer

    @property
    def length(self) -> int:  # type: ignore[override]
        """Number of iterations."""
        return self.n_evaluations

    def check(self, problem: SampledProblem) -> None:
        """Raise ValueError for a bad parameter."""
        rates = ("step_size", "dual_step_size", "max_dual")
        check_numbers(self, positive=rates, nonnegative=["penalty"])
        lengths = ["batch_size", "n_evaluations"] + ["n_steps"] * (self.n_steps is not None)
        check_numbers(self, positive=lengths, kind=Integral)
        if not callable(self.optimizer):
            raise ValueError(f"SGDA.optimizer must be callable; got {self.optimizer!r}.")

    def iterate(
        self, problem: SampledProblem, x: Tensor, dual: Tensor, tol: float, rng: Generator
    ) -> Iterator[Iterate]:
        """Yield after each evaluation."""
        n_steps = self.n_steps or max(1000, 10 * problem.n_rows // self.batch_size)
        ends = evaluated_steps(n_steps, self.n_evaluations)
        x = x.clone()
        optimizer = self.optimizer([x], lr=self.step_size)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, n_steps)
        shift = torch.zeros_like(dual)
        batches = ShuffledBatches(problem.n_rows, self.batch_size, rng)
        for step in range(1, n_steps + 1):
            terms = problem.linearize(x, next(batches))
            value = terms.value[1:] + shift
            active = (dual + self.penalty * value).clamp_min(0.0) if self.penalty else dual
            x.grad = terms.pullback(torch.cat((torch.ones_like(terms.value[:1]), active)))
            optimizer.step()
            decay = schedule.get_last_lr()[0] / self.step_size
            dual = (dual + decay * self.dual_step_size * value).clamp(0.0, self.max_dual)
            schedule.step()
            if step in ends:
                soft, hard = problem.evaluate(x)
                shift = hard[1:] - soft[1:]
                yield Iterate(x.clone(), soft, hard, dual, torch.inf)
