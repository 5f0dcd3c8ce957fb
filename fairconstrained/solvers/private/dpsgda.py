"""Differentially private gradient descent-ascent on noisy tables (RaCO-DP)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor

from fairconstrained.models.linear import LinearModel
from fairconstrained.privacy.accounting import Budget, PrivacyGuarantee
from fairconstrained.privacy.plans import one_off_noise, plan_releases
from fairconstrained.problems.private.coordinates import SCALING
from fairconstrained.problems.private.erm import COUNTS, FINAL, GRADIENT, TABLE, PrivateERM
from fairconstrained.solvers.base import Iterate, count, positive
from fairconstrained.solvers.private.base import (
    PrivateSolver,
    check_fraction,
    sampling_rate,
    unreleased,
)
from fairconstrained.solvers.private.tilted_averages import MOST_RELEASES, TiltedAverages

_ITERATIONS = 30  # recorded points of one run
_STEPS = 1.5  # for n = 1 and full-batch noise of standard deviation 1 (see `_default_steps`)
_MOST_ROWS = 400 * 8192  # that the steps of a fit read
_FRACTIONS = {COUNTS: 0.05, FINAL: 0.06, **dict.fromkeys(SCALING, 0.06 / len(SCALING))}
_NOISES = {"gaussian": (), "laplace": (TABLE,)}  # releases with Laplace noise
_STEP, _STEP_OF_NETWORK = 4.0, 1.0
_STABLE = 5.0  # largest step of a multiplier times its gain


@dataclass(eq=False, repr=False, kw_only=True)
class DPSGDA(PrivateSolver):
    r"""Noisy descent in the parameters and ascent in the multipliers, one release a step.

    .. math::

        x &\leftarrow x - \eta \, (\tilde\nabla_x L(x, \lambda) + \alpha\, \nabla r(x)), \\
        \lambda_j &\leftarrow
            \big[ \lambda_j + \eta_{\lambda,j}\, g_j(\tilde M, \tilde N) \big]_+ ,
            \quad \text{scaled down to} \; \textstyle\sum_j \lambda_j \le \Lambda,

    where the noisy table :math:`\tilde M` counts *predicted labels*, so that multipliers answer to
    what users measure, and the noisy gradient is that of the soft rates (``PrivateERM``). The
    average of the second half of the iterates is returned, or, where its released labels violate
    the constraints, one that leans towards iterates that keep them (``TiltedAverages``).

    Parameters
    ----------
    step_size : float, optional
        :math:`\eta`, for rows of norms of a few units and `clip` 1; default: 4, and 1 for networks.
    dual_step_size : float, default=0.2
        :math:`\eta_\lambda`; smaller for values that compare small groups, or many (see Notes).
    clip : float, default=1.0
        Largest norm C of a row's gradient.
    n_steps : int, optional
        Default: :math:`1.5\, (n \mu)^{2/3}`, where n is the number of rows and :math:`1/\mu` the
        noise multiplier of a single release that costs the whole budget, but no more steps than
        read 3.3 million rows.
    sampling_rate : float, optional
        Probability of a row to be in a batch; default: 0.05, but at least 256 and at most 8192 rows
        are expected.
    histogram_fraction : float, default=0.2
        Fraction of a step's budget for its table.
    max_dual : float, default=10.0
        :math:`\Lambda`, largest sum of the multipliers.
    histogram_noise : {"gaussian", "laplace"}, default="gaussian"
        Distribution of the noise on tables.

    Notes
    -----
    All defaults read nothing but the number of rows and the budget. A step costs a pass over its
    batch; memory beyond the data grows with the batch, and is eight times that of the parameters.
    Besides the steps these are released once: before them the counts of labels and groups (5 % of
    the budget), and the mean squared norm of the rows and the means and mean squares of the columns
    (2 % each, and 2 % for the sizes of columns without a public range), by which columns are
    centred and scaled, and by which linear models learn neighbouring rare columns together. After
    them come up to six times the predicted labels of what may be the result (6 % together), from
    which it is chosen and ``violation_`` is estimated. The penalty is that of the coefficients of
    the scaled columns.

    *Number of steps.* T steps of size s leave an error of order :math:`1 / (T s)`. The noise of a
    step has a variance in proportion to :math:`T / (n \mu)^2`, and T of them add up to one in
    proportion to :math:`(T s / n \mu)^2`. The sum is least for T in proportion to
    :math:`(n \mu)^{2/3}`.

    *Steps of multipliers.* A multiplier of 1 on the rate of a group with a fraction p of the rows
    is to their scores like 1/p times the slope h of the rate, and the loss has the same curvature
    h. Descent-ascent then oscillates more and more if :math:`\eta_\lambda h / p > 1`.
    ``PrivateERM.gains`` adds up such 1/p over all values that compare the same groups. Its product
    with :math:`\eta_{\lambda,j}` is kept at 5 or below, the limit 1/h where probabilities are .28.

    The residual is infinite: the run ends with its steps.

    References
    ----------
    RaCO-DP, Algorithm 1. Paper: Laplace noise on the table and Gaussian noise on the gradient, each
    accounted for as if it had a batch of its own; here: joint accounting of one batch. Paper: soft
    rates for the multipliers; here: predicted labels, because a soft slack of 0.05 can end at 0.10.
    Paper: orthogonal projection on a bounded set of multipliers; here: their sum is bounded by
    scaling them down, because hundreds of pairs of small groups follow their noise and leave
    nothing of the loss (seen with the 20 groups of ACSIncome), and scaling keeps ratios. (Of
    8, 1, 3 with a bound of 10 it makes 6.67, 0.83, 2.5; the projection is 7.33, 0.33, 2.33.)
    Paper: the last iterate is returned; here: an average, which has less noise.
    Paper: counts from each batch; here: released once, which is less noise for less budget.

    Examples
    --------
    >>> from fairconstrained.solvers import DPSGDA
    >>> DPSGDA(n_steps=200, clip=0.5)
    DPSGDA(clip=0.5, n_steps=200)
    """

    length = _ITERATIONS
    requires = ("noisy_rates",)
    scope = (
        "private training (epsilon) under constraints whose table has a bound on what one row "
        "adds: rates, but not losses"
    )

    step_size: float | None = positive(None)
    dual_step_size: float = positive(0.2)
    clip: float = positive(1.0)
    n_steps: int | None = count(None)
    sampling_rate: float | None = None
    histogram_fraction: float = 0.2
    max_dual: float = positive(10.0)
    histogram_noise: str = "gaussian"

    def plan(self, n_rows: int, budget: Budget) -> PrivacyGuarantee:
        """Calibrate the noise of all releases of a fit on `n_rows` rows to the budget."""
        self.check(None)
        rate = sampling_rate(n_rows) if self.sampling_rate is None else self.sampling_rate
        return plan_releases(
            _FRACTIONS,
            budget,
            times={FINAL: MOST_RELEASES},
            step={TABLE: self.histogram_fraction, GRADIENT: 1 - self.histogram_fraction},
            sampling_rate=rate,
            n_steps=_default_steps(n_rows, rate, budget) if self.n_steps is None else self.n_steps,
            laplace=_NOISES[self.histogram_noise],
        )

    def check(self, problem: Any) -> None:
        """Raise ValueError for a bad parameter."""
        super().check(problem)
        check_fraction(self)
        if self.histogram_noise not in _NOISES:
            raise ValueError(
                f"DPSGDA.histogram_noise must be one of {list(_NOISES)}; got "
                f"{self.histogram_noise!r}."
            )

    @classmethod
    def suits(cls, problem: PrivateERM) -> bool:
        """Whether what one row adds to the constraint's table is bounded."""
        return problem.constraint.bound < float("inf")

    def iterate(
        self, problem: PrivateERM, x: Tensor, dual: Tensor, tol: float, rng: Generator
    ) -> Iterator[Iterate]:
        """Yield after every thirtieth of the steps, and once more for the average."""
        n_steps = problem.plan.n_steps
        ends = torch.linspace(0, n_steps, _ITERATIONS).round().int().tolist()[1:]
        steps = (_STABLE / problem.gains()).clamp_max(self.dual_step_size)
        step_size = self.step_size
        if step_size is None:
            linear = isinstance(problem.model, LinearModel)
            step_size = _STEP if linear else _STEP_OF_NETWORK
        averages, recent = TiltedAverages(n_steps), []

        def current(table: Tensor) -> Tensor:
            return dual

        for step in range(1, n_steps + 1):
            table, gradient = problem.release(x, current, self.clip, rng)
            values = problem.values(table)
            averages.see(x, float(dual @ values / dual.sum().clamp_min(1e-12)))
            x = x - step_size * gradient
            dual = (dual + steps * values).clamp_min(0.0)
            dual = dual * (self.max_dual / dual.sum().clamp_min(self.max_dual))
            recent.append(values)
            if step in ends:
                values = torch.stack(recent).mean(dim=0)
                yield unreleased(x, values, values, dual)
                recent = []
        x, values = averages.choose(
            lambda point: problem.values(problem.release_table(point, rng)),
            problem.deviations_of_estimates(),
        )
        yield unreleased(x, values, values, dual)


def _default_steps(n_rows: int, rate: float, budget: Budget) -> int:
    """More steps learn more, and noise with it: where both are equal."""
    best = _STEPS * math.pow(n_rows / one_off_noise(1.0, budget), 2 / 3)
    return max(1, round(min(best, _MOST_ROWS / (rate * n_rows))))
