"""Solvers of a loss plus mutual information (ERMI): descent-ascent, or L-BFGS in rounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from fairconstrained.numerics import ROUNDING
from fairconstrained.solvers.base import Iterate, choice, count, positive
from fairconstrained.solvers.lbfgs import LBFGS, MANY_ROWS
from fairconstrained.solvers.stochastic import Estimates, Memory, StochasticSolver, cosine

_SHORT_MOVES = np.geomspace(1e-4, 0.3, 16)  # lengths of short moves, in units of scores


@dataclass(eq=False, repr=False, kw_only=True)
class FERMI(StochasticSolver):
    r"""Descent in the parameters and ascent in W, both from the same batch and the same point.

    With :math:`\psi_i` the saddle form of the mutual information
    (``fairconstrained.constraints.mutual_information``) and a batch B,

    .. math::

        x &\leftarrow x - \eta\, \tfrac{1}{|B|} \sum_{i \in B}
            \nabla_x \big( \ell_i + \lambda \psi_i(x, W) \big), \\
        W &\leftarrow \Pi \Big( W + \eta_w\, \tfrac{1}{|B|} \sum_{i \in B}
            \nabla_W \psi_i(x, W) \Big),

    starting from W = 0. Unlike ERMI itself, the saddle form is estimated without bias from batches
    of any size. Fairness is measured on labels: after a quarter of the steps, when scores have left
    the threshold, the gradient in W is taken with predicted labels, 0 or 1, in place of class
    probabilities. Once W settles, the penalty is the penalty of the labels, with slopes of
    probabilities, as in :class:`LabelRounds`.

    Parameters
    ----------
    step_size : float, default=0.01
        First :math:`\eta`; it falls along a cosine.
    dual_step_size : float, default=0.2
        :math:`\eta_w`; below 1 / (largest rate of a class) the ascent is stable.
    batch_size : int, default=512
    n_steps, n_evaluations
        As in :class:`ALM`.
    output : {"average", "last", "random"}, default="average"
        The mean over the second half of the steps, the last point, or one drawn uniformly.
    table : {"labels", "probabilities"}, default="labels"
        Take the gradient in W with predicted labels, or with probabilities as in the paper.
    optimizer : callable, default=torch.optim.Adam
        ``(parameters, lr=...) -> torch.optim.Optimizer`` for the descent.

    References
    ----------
    Lowy, Gupta and Razaviyayn, "Stochastic Differentially Private and Fair Learning", Algorithm 1
    without noise. Paper: ascent on :math:`\lambda \psi`; here: on :math:`\psi`, so that the step
    size that suits does not depend on the penalty. Paper: both gradients from class probabilities,
    as with ``table="probabilities"``, and plain steps.

    Examples
    --------
    >>> from fairconstrained.solvers import FERMI
    >>> FERMI(n_steps=200, output="last")
    FERMI(n_steps=200, output='last')
    """

    requires = ("mutual_information_saddle",)
    keeps_last = True
    scope = "a loss plus mutual information, without privacy: DPFermiClassifier(epsilon=None)"

    dual_step_size: float = positive(0.2)
    batch_size: int = count(512)
    output: str = choice("average", "last", "random")
    table: str = choice("labels", "probabilities")
    optimizer: Callable[..., Any] = torch.optim.Adam

    def prepare(self, estimates: Estimates, now: Memory) -> None:
        information = estimates.problem.information  # type: ignore[attr-defined]
        now.matrix = now.x.new_zeros((information.n_parts, information.n_classes))
        now.last = last_step(self.output, now.n_steps, estimates.rng)
        now.output = now.x

    def step(self, estimates: Estimates, now: Memory) -> None:
        problem: Any = estimates.problem
        table = followed(self.table, now.step + 1, now.n_steps)
        gradient, ascent = problem.saddle_gradients(now.x, now.matrix, estimates.rows(), table)
        now.x = now.descent.step(now.x, gradient, cosine(now.progress) * self.step_size)
        now.matrix = problem.information.project(now.matrix + self.dual_step_size * ascent)
        if now.step < now.last:
            now.output = output_after(self.output, now.output, now.x, now.step + 1, now.n_steps)


def last_step(output: str, n_steps: int, rng: Generator) -> int:
    """Return the last step that affects the result, drawn at random if so chosen."""
    return 1 + int(torch.randint(n_steps, (), generator=rng)) if output == "random" else n_steps


def output_after(output: str, before: Tensor, x: Tensor, step: int, n_steps: int) -> Tensor:
    """Return the output after a step, counted from 1: an average, or the point."""
    averaged = step - n_steps // 2 if output == "average" else 1
    return torch.lerp(before, x, 1.0 / averaged) if averaged > 1 else x


def followed(table: str, step: int, n_steps: int) -> str:
    """Return the table for the step in W: probabilities in the first quarter of the run."""
    return "probabilities" if step <= n_steps // 4 else table


@dataclass(eq=False, repr=False, kw_only=True)
class LabelRounds(LBFGS):
    r"""Minimise loss plus mutual information in rounds that shift its table to predicted labels.

    Class probabilities can be independent of the groups where labels are not. With tables M of
    probabilities and H of predicted labels, round k minimises, from where the last round ended,

    .. math:: \min_x \; f(x) + \lambda\, \mathrm{ERMI}(M(x) + S_k, N) , \qquad
        S_0 = 0, \quad S_1 = H(x_0) - M(x_0), \quad
        S_{k+1} = S_k + \tfrac12 \big( H(x_k) - M(x_k) - S_k \big) .

    Once the rounds settle, the penalty is the penalty of the labels, with slopes of probabilities.
    The best round has the least error plus penalty, both of predicted labels,

    .. math:: \frac{1}{\sum_i \omega_i} \sum_i \omega_i 1[\hat y_i \neq y_i]
        + \lambda\, \mathrm{ERMI}(H(x_k), N) .

    From there the rounds start again with probabilities that are twice as sharp, up to four times:
    the sharper, the nearer M to H. With more than 10,000 rows a sharpness that brings nothing
    better is the last. Short moves in x, along intercepts and against the slope of the penalty, end
    the run; they lower this objective and the mutual information of labels. The first round is the
    paper's problem if :math:`\lambda \leq 100`.

    Parameters
    ----------
    rounds : int, default=20
        Most rounds at each sharpness. They end where three bring nothing better, or labels are
        independent of the groups.

    Notes
    -----
    Each round is minimised by :class:`LBFGS`.

    Larger penalties are 100 at first, and ten times as large at each sharpness until they are
    reached: if there are hardly more parameters than equations of independence, exactly independent
    *probabilities* are nearly constant, and labels need not be.

    With more than 200,000 rows the first rounds use a subsample. The residual is that of the chosen
    round's minimisation, and infinite before the end. An iteration is one of :class:`LBFGS`.

    References
    ----------
    Paper (Lowy, Gupta and Razaviyayn, Section 3): mean class probabilities; here: moved to labels,
    because fairness is measured on these. ``LBFGS()`` minimises the paper's objective.

    Examples
    --------
    >>> from fairconstrained import DPFermiClassifier
    >>> from fairconstrained.datasets import make_biased_classification
    >>> from fairconstrained.solvers import LBFGS, LabelRounds
    >>> data = make_biased_classification(500, random_state=0)
    >>> def gap(solver):
    ...     clf = DPFermiClassifier(penalty=1e3, epsilon=None, solver=solver)
    ...     clf.fit(data.data, data.target, sensitive_features=data.sensitive_features)
    ...     return clf.violation_
    >>> gap(LabelRounds()) < gap(LBFGS())
    True
    """

    requires = ("label_tables",)
    scope = "a loss plus mutual information, without privacy: DPFermiClassifier(epsilon=None)"

    rounds: int = count(20)

    def iterate(
        self, problem: Any, x: Tensor, dual: Tensor, tol: float, rng: Generator
    ) -> Iterator[Iterate]:
        """Yield the iterates of all rounds and finally the best point; deterministic."""
        best, coarse = _Best(problem), problem.subsample()
        if coarse is problem:
            yield from self._sharpened(problem, x, dual, tol, rng, best)
        else:  # rounds on all rows start near the solution on a subsample
            rough = _Best(coarse)
            for _ in self._sharpened(coarse, x, dual, tol, rng, rough):
                pass
            posed = rough.posed.on_rows_of(problem).moved_to_labels(rough.x)
            yield from self._rounds(posed, rough.x, dual, tol, rng, best)
        best.repair()
        soft, hard = problem.evaluate(best.x)
        yield Iterate(best.x, soft, hard, dual, best.residual)

    def _sharpened(
        self, problem: Any, x: Tensor, dual: Tensor, tol: float, rng: Generator, best: _Best
    ) -> Iterator[Iterate]:
        """Yield the iterates of the rounds at increasing sharpness."""
        # If flat probabilities of many cells are exactly independent, little but constant
        # predictions remains: the largest weight grows with the sharpness.
        largest, growth = 100.0, 10.0
        posed = problem.with_weight(min(problem.weight, largest))
        for _ in range(1 + 4):  # each doubles the sharpness
            before = best.value
            yield from self._rounds(posed, x, dual, tol, rng, best)
            x, stalled = best.x, best.value == before and problem.n_rows > MANY_ROWS
            sharper = posed.sharpened_at(x)
            if stalled or sharper is posed or best.information <= ROUNDING:
                break
            largest *= growth
            posed = sharper.with_weight(min(problem.weight, largest))

    def _rounds(
        self, posed: Any, x: Tensor, dual: Tensor, tol: float, rng: Generator, best: _Best
    ) -> Iterator[Iterate]:
        """Yield the iterates of rounds at one sharpness, and record their results in `best`."""
        since = 0
        for _ in range(self.rounds):
            for iterate in super().iterate(posed, x, dual, tol, rng):
                yield iterate._replace(residual=torch.inf)
                if iterate.residual <= tol:
                    break
            x = iterate.x
            since = 0 if best.see(x, iterate.residual, posed) else since + 1
            # Half steps: with full ones rounds alternate between two points at large penalties.
            moved = posed.moved_to_labels(x, 0.5)
            if moved is posed or since == 3 or best.information <= ROUNDING:
                return
            posed = moved


class _Best:
    """The point of least error plus label penalty so far."""

    def __init__(self, problem: Any):
        self._problem = problem
        self.value = self.information = self.residual = torch.inf

    def see(self, x: Tensor, residual: float, posed: Any) -> bool:
        """Record the result of a round if it is better; return whether it is."""
        value, information = self._problem.label_objective(x)
        better: bool = value < self.value
        if better:
            self.x, self.value, self.information = x, value, information
            self.residual, self.posed = residual, posed
        return better

    def repair(self) -> None:
        """Make short moves while they bring labels closer to independence."""
        for _ in range(10 if self.information > ROUNDING else 0):
            near = self._problem.moved_to_labels(self.x)
            if near is self._problem:
                break
            terms = near.linearize(self.x)
            slope = terms.pullback(torch.ones_like(terms.value))
            directions = torch.eye(len(self.x)).to(self.x)[self._problem.offsets]
            directions = torch.vstack((directions, slope / slope.norm().clamp_min(1e-30)))
            start, least, information = self.x, self.value, self.information
            for direction in directions:
                for step in (*_SHORT_MOVES, *-_SHORT_MOVES):
                    x = start + step * direction
                    measured = self._problem.label_objective(x)
                    if measured[0] < self.value and measured[1] < information:
                        self.x, (self.value, self.information) = x, measured
            if self.value == least:
                break
