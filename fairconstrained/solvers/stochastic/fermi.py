"""Stochastic FERMI: two-timescale descent-ascent on the saddle form of the penalty."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from numbers import Integral
from typing import Any

import torch
from torch import Generator, Tensor

from fairconstrained.problems.fermi import TABLES, FermiERM
from fairconstrained.solvers.base import Iterate, Solver, check_numbers, last
from fairconstrained.solvers.stochastic.base import Descent, evaluated_steps
from fairconstrained.solvers.stochastic.sampling import ShuffledBatches

_ITERATIONS = 30


class Output:
    """Which point of a run is its result; a new one for each run."""

    def __init__(self, n_steps: int, rng: Generator):
        """Nothing to prepare."""

    def see(self, step: int, x: Tensor) -> None:
        """Take in the point after a step, counted from 1."""
        self.x = x


class _Average(Output):
    """Mean of the second half."""

    def __init__(self, n_steps: int, rng: Generator):
        self._first, self._seen = n_steps // 2, 0

    def see(self, step: int, x: Tensor) -> None:
        if step <= self._first:
            self.x = x.clone()
        else:
            self._seen += 1
            self.x = x.clone() if self._seen == 1 else torch.lerp(self.x, x, 1.0 / self._seen)


class _Random(Output):
    """A point drawn uniformly from all steps."""

    def __init__(self, n_steps: int, rng: Generator):
        self._step = 1 + int(torch.randint(n_steps, (), generator=rng))

    def see(self, step: int, x: Tensor) -> None:
        if step <= self._step:
            self.x = x.clone()


OUTPUTS: dict[str, Callable[[int, Generator], Output]] = {
    "average": _Average,
    "last": Output,
    "random": _Random,
}


class FERMI(Solver):
    r"""Descent in the parameters and ascent in W, both from the same batch and the same point.

    With :math:`\psi_i` the saddle form of the mutual information
    (``fairconstrained.constraints.mutual_information``) and a batch B,

    .. math::

        x &\leftarrow x - \eta\, \tfrac{1}{|B|} \sum_{i \in B}
            \nabla_x \big( \ell_i + \lambda \psi_i(x, W) \big), \\
        W &\leftarrow \Pi \Big( W + \eta_w\, \tfrac{1}{|B|} \sum_{i \in B}
            \nabla_W \psi_i(x, W) \Big),

    starting from W = 0. Unlike ERMI itself, the saddle form is estimated without bias from batches
    of any size. Fairness is measured on labels, so W answers to these by default: after a quarter
    of the steps the gradient in W is taken with predicted labels, 0 or 1, in place of class
    probabilities. (Before that all scores are near the threshold.) Where W settles, the
    penalty is that of the labels, with the slopes of probabilities, as in :class:`LabelRounds`.

    Parameters
    ----------
    step_size : float, default=0.01
        First :math:`\eta`; it falls along a cosine.
    dual_step_size : float, default=0.2
        :math:`\eta_w`; below 1 / (largest rate of a class) the ascent is stable.
    batch_size : int, default=512
    n_steps : int, optional
        Default: 1000, or ten passes over the data if that is more.
    output : {"average", "last", "random"}, default="average"
        The mean over the second half of the steps, the last point, or one drawn uniformly.
    table : {"labels", "probabilities"}, default="labels"
        What the gradient in W is taken with: predicted labels, or class probabilities as in the
        paper.
    optimizer : callable, default=torch.optim.Adam
        ``(parameters, lr=...) -> torch.optim.Optimizer`` for the descent.

    Notes
    -----
    An iteration is a thirtieth of the steps and one evaluation on the full data. The residual is
    infinite: the run ends with its steps.

    References
    ----------
    Lowy, Gupta and Razaviyayn, "Stochastic Differentially Private and Fair Learning", Algorithm 1
    without noise. Paper: ascent on :math:`\lambda \psi`; here: on :math:`\psi`, so that the step
    size that suits does not depend on the penalty. Paper: both gradients from class probabilities;
    here: that in W from predicted labels, which ``table="probabilities"`` undoes. Paper: plain
    steps; here: Adam, or what `optimizer` says.

    Examples
    --------
    >>> from fairconstrained import DPFermiClassifier
    >>> from fairconstrained.datasets import make_biased_classification
    >>> from fairconstrained.solvers import FERMI
    >>> data = make_biased_classification(5000, random_state=0)
    >>> clf = DPFermiClassifier(epsilon=None, solver=FERMI(n_steps=200), random_state=0)
    >>> clf = clf.fit(data.data, data.target, sensitive_features=data.sensitive_features)
    >>> clf.history_["error"].shape
    (30,)
    """

    length = _ITERATIONS
    requires = ("mutual_information_saddle",)
    scope = "a loss plus mutual information, without privacy: DPFermiClassifier(epsilon=None)"

    def __init__(
        self,
        *,
        step_size: float = 0.01,
        dual_step_size: float = 0.2,
        batch_size: int = 512,
        n_steps: int | None = None,
        output: str = "average",
        table: str = "labels",
        optimizer: Callable[..., Any] = torch.optim.Adam,
    ):
        self.step_size = step_size
        self.dual_step_size = dual_step_size
        self.batch_size = batch_size
        self.n_steps = n_steps
        self.output = output
        self.table = table
        self.optimizer = optimizer

    def check(self, problem: FermiERM) -> None:
        """Raise ValueError for a bad parameter."""
        check_numbers(self, positive=("step_size", "dual_step_size"))
        lengths = ["batch_size"] if self.n_steps is None else ["batch_size", "n_steps"]
        check_numbers(self, positive=lengths, kind=Integral)
        check_choices(self)
        if not callable(self.optimizer):
            raise ValueError(f"FERMI.optimizer must be callable; got {self.optimizer!r}.")

    def iterate(
        self, problem: FermiERM, x: Tensor, dual: Tensor, tol: float, rng: Generator
    ) -> Iterator[Iterate]:
        """Yield after every thirtieth of the steps."""
        n_steps = self.n_steps or max(1000, 10 * problem.n_rows // self.batch_size)
        information = problem.information
        batches = ShuffledBatches(problem.n_rows, self.batch_size, rng)
        descent = Descent(x, self.optimizer, self.step_size)
        matrix = x.new_zeros((information.n_parts, information.n_classes))
        output = OUTPUTS[self.output](n_steps, rng)
        for step, recorded in recorded_steps(n_steps):
            table = followed(self.table, step, n_steps)
            gradient, ascent = problem.saddle(x, matrix, next(batches), table)
            fall = 0.5 * (1.0 + torch.cos(torch.tensor(torch.pi * (step - 1) / n_steps)).item())
            x = descent.step(x, gradient, fall * self.step_size)
            matrix = information.project(matrix + self.dual_step_size * ascent)
            output.see(step, x)
            if recorded:
                chosen = output.x if step == n_steps else x
                soft, hard = problem.evaluate(chosen)
                yield Iterate(chosen.clone(), soft, hard, dual, torch.inf)

    def select(self, iterates: Sequence[Iterate]) -> Iterate:
        """Keep the last."""
        return last(iterates)


def recorded_steps(n_steps: int) -> Iterator[tuple[int, bool]]:
    """Number the steps from 1, and say after which of them to record: thirty times, at the end."""
    ends = evaluated_steps(n_steps, _ITERATIONS)
    for step in range(1, n_steps + 1):
        yield step, step in ends


def followed(table: str, step: int, n_steps: int) -> str:
    """The table that W answers to in a step: probabilities in the first quarter.

    Untrained scores are near the threshold, where one step moves all labels at once.
    """
    return "probabilities" if step <= n_steps // 4 else table


def check_choices(solver: Any) -> None:
    """Raise ValueError unless the solver's `output` and `table` are known."""
    for name, known in (("output", tuple(OUTPUTS)), ("table", TABLES)):
        value = getattr(solver, name)
        if not isinstance(value, str) or value not in known:
            raise ValueError(
                f"{type(solver).__name__}.{name} must be one of {list(known)}; got {value!r}."
            )
