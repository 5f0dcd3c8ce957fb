"""Stochastic descent-ascent on Lagrangians, plain or stopped early by held-out rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator

from fairconstrained.problems.base import Linearization, SampledProblem
from fairconstrained.solvers.base import Iterate, count, nonnegative, positive
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
    >>> from fairconstrained.datasets import make_biased_classification
    >>> from fairconstrained.solvers import SGDA
    >>> data = make_biased_classification(500, random_state=0)
    >>> clf = RateConstrainedClassifier(slack=0.1, solver=SGDA(batch_size=128), random_state=0)
    >>> clf.fit(data.data, data.target, sensitive_features=data.sensitive_features).status_
    'the solver came to the end of its schedule'
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
        active = (now.dual + self.penalty * value).clamp_min(0.0)
        gradient = terms.pullback(torch.cat((torch.ones_like(terms.value[:1]), active)))
        now.x = now.descent.step(now.x, gradient, factor * self.step_size)
        now.dual = (now.dual + factor * dual_step_size * value).clamp(0.0, self.max_dual)


@dataclass(eq=False, repr=False, kw_only=True)
class EarlyStoppedSGDA(SGDA):
    r"""Descent-ascent with averaged weights, stopped early: the default for networks.

    One row in `held_out` of each label and group is held out. On a batch of the others and on
    equal numbers of their rows from each part of the constraints,

    .. math::

        x &\leftarrow \text{AdamW step on } \hat f(x)
            + \tfrac{1}{2\rho} \lVert [\lambda + \rho\,(\hat c(x) + s)]_+ \rVert^2 , \\
        \lambda &\leftarrow \Pi_{[0, \Lambda]} (\lambda + \eta_\lambda (\hat c(x) + s)), \qquad
        \bar x \leftarrow \gamma\, \bar x + (1 - \gamma)\, x .

    The first iterate is the start: a perceptron starts at the constrained linear model of the rows
    that train. Step sizes grow linearly at first and then fall to zero along a cosine. After each
    of `n_evaluations` equal numbers of steps the average :math:`\bar x` is an iterate. Its
    constraints are measured on all rows, and the shift s is the difference of their hard and soft
    values. The average may stay away from the points where multipliers settle, so a fifth of each
    violation is added to s, and removed again if labels leave slack. The error of an iterate is
    measured on the held-out rows. Its objective is their loss, plus the amount by which its error
    exceeds the start's: if a network predicts worse labels than the linear model, its loss
    must be much smaller. The result is the feasible iterate with the smallest objective. Training
    ends after `patience` iterates without a smaller objective plus violation, if one was feasible.

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
        Most steps in all; default: 2000, or 25 passes over the data if that is more.
    n_evaluations : int, default=40
        Iterations after the first: evaluations on all the data, evenly spread over the steps.
    patience : int, default=10
        Iterations without improvement after which training ends.
    held_out : int, default=7
        One in this many rows is held out; none if a label has fewer rows in all groups.
    averaging : float, default=0.995
        :math:`\gamma`, smaller in the first steps.
    penalty, max_dual, optimizer
        As in :class:`SGDA`; the default optimizer is ``torch.optim.AdamW``.

    References
    ----------
    Holzmueller, Grinsztajn and Steinwart, "Better by Default: Strong Pre-Tuned MLPs and Boosted
    Trees on Tabular Data", 2024, for schedules and validation on tables. Cotter et al., "Training
    Well-Generalizing Classifiers for Fairness Metrics and Other Data-Dependent Constraints", 2019.

    Examples
    --------
    >>> from fairconstrained.solvers import EarlyStoppedSGDA
    >>> EarlyStoppedSGDA(patience=5)
    EarlyStoppedSGDA(patience=5)
    """

    requires = ("draws", "held_out")
    scope = "problems whose rows can be held out, without privacy (epsilon=None)"
    _least_steps, _passes = 2000, 25
    _evaluates_start = True

    step_size: float = positive(0.003)
    dual_step_size: float | None = positive(None)  # type: ignore[assignment]
    batch_size: int = count(256)
    n_evaluations: int = count(40)
    patience: int = count(10)
    held_out: int = count(7, sign=">=", least=2)
    averaging: float = nonnegative(0.995, below=1)
    optimizer: Callable[..., Any] = torch.optim.AdamW

    def select(self, iterates: Sequence[Iterate]) -> Iterate:
        return min(iterates, key=_merit)

    def estimates(self, problem: SampledProblem, rng: Generator) -> Estimates:
        part, held_out = problem.split_holdout(self.held_out, rng)
        return Estimates(part, self.batch_size, rng, held_out=held_out)

    def prepare(self, estimates: Estimates, now: Memory) -> None:
        """Begin at the start or a simpler model; the average begins there too."""
        here = now.x
        now.x, now.dual = estimates.problem.warm_point(now.x, now.dual)
        # From a simpler model that is already constrained, multipliers may take larger steps.
        now.dual_step_size = self.dual_step_size or (0.05 if now.x is here else 0.2)
        now.average, now.excess = now.x, torch.zeros_like(now.dual)
        now.error_of_start, now.best, now.waited, now.feasible = None, torch.inf, 0, False

    def step(self, estimates: Estimates, now: Memory) -> None:
        step = now.step + 1
        # The optimizer's averages of gradients are poor at first: steps grow to their size.
        factor = min(1.0, step / (0.05 * now.n_steps)) * cosine(now.progress)
        problem, rows = estimates.problem, estimates.rows()
        if len(now.dual):
            terms = problem.estimates(now.x, rows, estimates.balanced_rows())
        else:
            terms = problem.linearize(now.x, rows)
        self.move(now, estimates.moved(terms), factor, now.dual_step_size)
        # Early averages forget faster, because the first points are far from the last ones.
        now.average = now.average.lerp(now.x, 1.0 - min(self.averaging, step / (step + 9.0)))

    def evaluated(self, problem: SampledProblem, estimates: Estimates, now: Memory) -> Iterate:
        """Return the average as an iterate, and end training if it no longer improves."""
        # `evaluate` also sets the batch statistics of a network that `holdout_risk` uses.
        soft, hard = problem.evaluate(now.average)
        assert estimates.held_out is not None
        loss, error = problem.holdout_risk(now.average, estimates.held_out)
        if now.error_of_start is None:
            now.error_of_start = error
        objective = loss + (error - now.error_of_start).clamp_min(0.0)
        # Repeated violations by labels tighten the soft constraints further.
        now.excess = (now.excess + 0.2 * hard[1:]).clamp_min(0.0)
        estimates.shift = hard[1:] - soft[1:] + now.excess
        soft, hard = torch.cat((objective[None], soft[1:])), torch.cat((error[None], hard[1:]))
        iterate = Iterate(now.average, soft, hard, now.dual, torch.inf)
        merit = sum(_merit(iterate))
        now.waited = 0 if merit < now.best else now.waited + 1
        now.best = min(merit, now.best)
        now.feasible = now.feasible or iterate.feasible
        if now.feasible and now.waited >= self.patience:
            now.n_steps = now.step
        return iterate


def _merit(iterate: Iterate) -> tuple[float, float]:
    """Return the violation beyond the tolerance, and the objective: less is better."""
    return max(iterate.excess, 0.0), float(iterate.soft[0])
