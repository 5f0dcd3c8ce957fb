"""Differentially private gradient descent-ascent on noisy tables (RaCO-DP)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from fairconstrained.models.linear import LinearModel
from fairconstrained.privacy.accounting import Budget, PrivacyGuarantee
from fairconstrained.privacy.plans import one_off_noise, plan_releases
from fairconstrained.problems.private.coordinates import SCALING
from fairconstrained.problems.private.erm import COUNTS, FINAL, GRADIENT, TABLE, PrivateERM
from fairconstrained.solvers.base import Iterate, Solver, choice, count, number, positive
from fairconstrained.solvers.stochastic import evaluated_steps

# Releases of points that may be the result: the plain average, and five of a bisection, for 1 % of
# the budget each (decisions: the returned average).
MOST_RELEASES = 6
# Tilts to bisect. At 5, iterates that are one standard deviation apart have weights that
# differ 150-fold: more tilt would leave few of them.
_TILTS = (0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0)
# Recorded points of one run, as progress bars and callbacks see them: each costs no release.
_ITERATIONS = 30
_FRACTIONS = {COUNTS: 0.05, FINAL: 0.06, **dict.fromkeys(SCALING, 0.06 / len(SCALING))}


@dataclass(eq=False, repr=False, kw_only=True)
class NoisySteps(Solver):
    """Base of solvers by noisy steps on Poisson batches, planned before the first release."""

    length = _ITERATIONS
    keeps_last = True  # choosing by exact quality would not be private

    step_size: float | None = positive(None)
    clip: float = number(1.0, ">", 1e-100)  # less would underflow, and the noise with it
    histogram_fraction: float = positive(0.2, below=1)

    def plan(self, n_rows: int, budget: Budget) -> PrivacyGuarantee:
        """Calibrate the noise of all releases of a fit on `n_rows` rows to the budget."""
        raise NotImplementedError

    def diverged(self, iterate: Iterate) -> bool:
        """Return whether variables or released values, other than the objective, are not finite."""
        return not bool(iterate.x.isfinite().all() and iterate.soft[1:].isfinite().all())


def sampling_rate(n_rows: int, batch_size: int | None = None) -> float:
    """Return the sampling rate for an expected batch size, by default about a twentieth of rows."""
    fewest, most, rate = 256, 8192, 0.05  # a twentieth of the rows, between these sizes
    least = max(fewest / n_rows, min(rate, most / n_rows))
    return min(1.0, least if batch_size is None else batch_size / n_rows)


def unreleased(x: Tensor, soft: Tensor, hard: Tensor, dual: Tensor) -> Iterate:
    """Return an iterate whose objective and error are not released."""
    unknown = soft.new_tensor([torch.nan])
    return Iterate(x, torch.cat((unknown, soft)), torch.cat((unknown, hard)), dual, torch.inf)


@dataclass(eq=False, repr=False, kw_only=True)
class DPSGDA(NoisySteps):
    r"""Noisy descent in the parameters and ascent in the multipliers, one release a step.

    .. math::

        x &\leftarrow x - \eta \, (\tilde\nabla_x L(x, \lambda) + \alpha\, \nabla r(x)), \\
        \lambda_j &\leftarrow
            \big[ \lambda_j + \eta_{\lambda,j}\, g_j(\tilde M, \tilde N) \big]_+ ,
            \quad \text{scaled down to} \; \textstyle\sum_j \lambda_j \le \Lambda,

    where the noisy table :math:`\tilde M` counts *predicted labels*, so that multipliers answer to
    what users measure, and the noisy gradient uses the soft rates (``PrivateERM``). The
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
    All defaults read nothing but the number of rows and the budget. Before the steps the counts of
    labels and groups are released (5 % of the budget), and the mean squared norm of the rows and
    the means and mean squares of the columns (2 % each, and 2 % for the sizes of columns without a
    public range), by which columns are centred and scaled, and neighbouring rare columns joined.
    After them come up to six times the predicted labels of what may be the result (6 % together),
    from which it is chosen and ``violation_`` is estimated. The penalty is that of the coefficients
    of the scaled columns.

    *Number of steps.* T steps of size s leave an error of order :math:`1 / (T s)`, and noise of a
    variance in proportion to :math:`(T s / n \mu)^2`: their sum is least for T in proportion to
    :math:`(n \mu)^{2/3}`.

    *Steps of multipliers.* A multiplier of 1 on the rate of a group with a fraction p of the rows
    is to their scores like 1/p times the slope h of the rate, and the loss has the same curvature
    h. Descent-ascent then oscillates more and more if :math:`\eta_\lambda h / p > 1`. The product
    of :math:`\eta_{\lambda,j}` with such 1/p, added up over all values that compare the same
    groups, is kept at 5 or below, the limit 1/h where probabilities are .28.

    References
    ----------
    RaCO-DP, Algorithm 1. Paper: Laplace noise on the table and Gaussian noise on the gradient, each
    accounted for as if it had a batch of its own; here: joint accounting of one batch. Paper: soft
    rates for the multipliers; here: predicted labels, because a soft slack of 0.05 can end at 0.10.
    Paper: orthogonal projection on a bounded set of multipliers; here: their sum is bounded by
    scaling them down, which keeps ratios, because hundreds of pairs of small groups follow their
    noise and leave nothing of the loss (seen with the 20 groups of ACSIncome). Paper: the last
    iterate is returned; here: an average, which has less noise.
    Paper: counts from each batch; here: released once, which is less noise for less budget.

    Examples
    --------
    >>> from fairconstrained.solvers import DPSGDA
    >>> DPSGDA(n_steps=200, clip=0.5)
    DPSGDA(clip=0.5, n_steps=200)
    """

    requires = ("noisy_rates",)
    scope = (
        "private training (epsilon) under constraints whose table has a bound on what one row "
        "adds: rates, but not losses"
    )

    dual_step_size: float = positive(0.2)
    n_steps: int | None = count(None)
    sampling_rate: float | None = positive(None)
    max_dual: float = positive(10.0)
    histogram_noise: str = choice("gaussian", "laplace")

    def plan(self, n_rows: int, budget: Budget) -> PrivacyGuarantee:
        self.check(None)
        rate = sampling_rate(n_rows) if self.sampling_rate is None else self.sampling_rate
        # More steps learn more, and noise with it: where both are equal.
        best = 1.5 * math.pow(n_rows / one_off_noise(1.0, budget), 2 / 3)
        # Time ends the growth: all steps read at most as many rows as 400 of the largest batches.
        most_rows = 400 * 8192
        n_steps = max(1, round(min(best, most_rows / (rate * n_rows))))
        return plan_releases(
            _FRACTIONS,
            budget,
            times={FINAL: MOST_RELEASES},
            step={TABLE: self.histogram_fraction, GRADIENT: 1 - self.histogram_fraction},
            sampling_rate=rate,
            n_steps=n_steps if self.n_steps is None else self.n_steps,
            laplace=(TABLE,) if self.histogram_noise == "laplace" else (),
        )

    @classmethod
    def suits(cls, problem: PrivateERM) -> bool:
        """Return whether one row's contribution to the constraint's table is bounded."""
        statistic = problem.constraint.statistic
        return sum(statistic.widths) == statistic.n_columns

    def iterate(
        self, problem: PrivateERM, x: Tensor, dual: Tensor, tol: float, rng: Generator
    ) -> Iterator[Iterate]:
        """Yield after every thirtieth of the steps, and once more for the average."""
        n_steps = problem.plan.n_steps
        ends = evaluated_steps(n_steps, _ITERATIONS - 1)
        # Many multipliers move the same rate of a small group, and full steps oscillate: twenty
        # groups end at an error of .354 even without noise.
        steps = (5.0 / problem.gains()).clamp_max(self.dual_step_size)
        # The curvature of networks is unknown: with the step of linear models convolutional
        # networks end with constant predictions.
        default = 4.0 if isinstance(problem.model, LinearModel) else 1.0
        step_size = default if self.step_size is None else self.step_size
        averages, recent = TiltedAverages(n_steps), []

        def current(table: Tensor) -> Tensor:
            return dual

        for step in range(1, n_steps + 1):
            table, gradient = problem.release(x, current, self.clip, rng)
            values = problem.values(table)
            averages.see(x, float(dual @ values / dual.sum().clamp_min(1e-12)))
            x = x - step_size * gradient
            dual = (dual + steps * values).clamp_min(0.0)
            # A bounded sum keeps gradients within the clip, which infeasible slacks would exceed.
            dual = dual * (self.max_dual / dual.sum().clamp_min(self.max_dual))
            recent.append(values)
            if step in ends:
                values = torch.stack(recent).mean(dim=0)
                yield unreleased(x, values, values, dual)
                recent = []
        x, values = averages.choose(
            lambda point: problem.values(problem.release_table(point, rng)),
            problem.deviations_of_estimates,
        )
        yield unreleased(x, values, values, dual)


class TiltedAverages:
    r"""Averages over the second half of a run, in which iterates with larger violations weigh less.

    Iterates of a descent-ascent swing around the point where the constraints hold: on average
    their values keep these, but the average iterate, which is more accurate than any of them, may
    not. With networks the difference is large (a slack of 0.05 ended at 0.17). Among

    .. math::

        \bar x_\tau = \frac{\sum_t w_t x_t}{\sum_t w_t}, \qquad w_t = e^{-\tau z_t},

    with the standardised values :math:`z_t` of the constraints that have multipliers, one with a
    small :math:`\tau` that keeps them is searched for. All of this reads released numbers only. The
    averages `points`, (8, n_variables), are in the order of rising tilt; the first has none.
    """

    def __init__(self, n_steps: int):
        self._start = n_steps // 2
        self._early: list[float] = []  # of the first half, for comparison
        self.points = torch.empty(0)

    def see(self, x: Tensor, violated: float) -> None:
        """Add the iterate of a step, with its violation as measured by the step's noisy table."""
        if len(self._early) < self._start:
            self._early.append(violated)
            return
        if not len(self.points):
            usual = x.new_tensor(self._early or [violated])
            self._mean, self._deviation = usual.mean(), usual.std(correction=0).clamp_min(1e-12)
            self._tilts = x.new_tensor(_TILTS)
            self._totals = torch.zeros_like(self._tilts)
            self.points = x.new_zeros((len(_TILTS), len(x)))
        standard = ((violated - self._mean) / self._deviation).clamp(-10.0, 10.0)
        weights = torch.exp(-self._tilts * standard)
        self._totals += weights
        self.points += (weights / self._totals)[:, None] * (x - self.points)

    def choose(
        self, release: Callable[[Tensor], Tensor], noise: Callable[[], Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Return the least tilted average that keeps constraints within two deviations of noise.

        It is bisected on the constraints that the plain average violates: too much tilt violates
        opposite ones. `release` returns noisy constraint values of a point, and `noise` then their
        deviations. The point is returned with its released values; where no point keeps the
        constraints, it is the one that violates them least.
        """
        tried: list[tuple[float, float, Tensor, Tensor]] = []
        low, high, position = 0.0, len(_TILTS) - 1.0, 0.0
        violated: Tensor | None = None  # by the plain average
        for _ in range(MOST_RELEASES):
            k = min(int(position), len(_TILTS) - 2)
            x = torch.lerp(self.points[k], self.points[k + 1], position - k)
            # Each look costs a release, planned beforehand; looking less often spends less.
            values = release(x)
            over = (values - 2.0 * noise()).clamp_min(0.0)
            tried.append((max(over.tolist(), default=0.0), position, x, values))
            if violated is None:
                violated = over > 0
                if not violated.any():
                    break
            elif over[violated].any():
                low = position
            else:
                high = position
            position = 0.5 * (low + high)
        _, _, x, values = min(tried, key=lambda trial: trial[:2])
        return x, values
