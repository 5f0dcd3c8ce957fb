"""Stochastic descent-ascent on the saddle form of mutual information (ERMI)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor

from fairconstrained.solvers.base import choice, count, positive
from fairconstrained.solvers.stochastic import Estimates, Memory, StochasticSolver, cosine


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
    """Return the output after this step, counted from 1: an average, or the point."""
    averaged = step - n_steps // 2
    if output == "average" and averaged > 1:
        return torch.lerp(before, x, 1.0 / averaged)
    return x


def followed(table: str, step: int, n_steps: int) -> str:
    """Return the table for the step in W: probabilities in the first quarter of the run."""
    return "probabilities" if step <= n_steps // 4 else table
