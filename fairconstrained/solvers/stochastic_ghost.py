"""The stochastic ghost method: steps from small quadratic programmes, debiased over levels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import linprog, minimize, nnls
from torch import Tensor

from fairconstrained.arrays import Floats
from fairconstrained.numerics import ROUNDING
from fairconstrained.problems.base import SampledProblem
from fairconstrained.solvers.base import count, nonnegative, positive
from fairconstrained.solvers.stochastic import Estimates, Memory, StochasticSolver

# Rows drawn for the objective; for the constraints, with the number of rows each represents
Drawn = tuple[Tensor, tuple[Tensor, Tensor]]


class Direction(NamedTuple):
    """A direction and the multipliers of the linearised constraints."""

    d: Floats  # (n,)
    dual: Floats  # (m,)


@dataclass(eq=False, repr=False, kw_only=True)
class StochasticGhost(StochasticSolver):
    r"""Steps along an unbiased estimate of the solution of a quadratic programme.

    For rows S, with the estimates :math:`g, c, A` of :math:`\nabla f, c, \nabla c` from them,

    .. math::

        d(S) &= \arg\min_d\; g'd + \tfrac{\tau}{2} \lVert d \rVert^2
            \quad \text{s.t. } c + A d \le \kappa, \; \lVert d \rVert_\infty \le \beta, \\
        \kappa &= (1 - \lambda) \max_i [c_i]_+ + \lambda
            \min_{t \ge 0, \lVert d \rVert_\infty \le \rho} \{ t : c + A d \le t \} .

    A level N with :math:`P(N) \propto p_0 (1 - p_0)^N` is drawn, rows :math:`S_{2^{N+1}}` and their
    halves, and one more :math:`S_1`:

    .. math::

        \tilde d = d(S_1) + \frac{d(S_{2^{N+1}})
            - \tfrac{1}{2} \big( d(S_{\mathrm{even}}) + d(S_{\mathrm{odd}}) \big)}{P(N)},
        \qquad x \leftarrow x + \alpha_k \tilde d, \quad
        \alpha_{k+1} = \alpha_k (1 - \hat\alpha\, \alpha_k) .

    Parameters
    ----------
    step_size : float, default=0.05
        :math:`\alpha_0`.
    step_decay : float, default=0.05
        :math:`\hat\alpha`.
    p0 : float, default=0.4
        Probability of the lowest level, between 0 and 1.
    max_level : int, default=9
        Largest N.
    rho, beta : float, default=0.8, 10.0
        Bounds on steps, :math:`0 < \rho < \beta`.
    lam : float, default=0.5
        :math:`\lambda`, between 0 and 1.
    tau : float, default=1.0
        :math:`\tau`.
    batch_size : int, default=1
        Rows that an estimate starts from: :math:`S_J` has J times as many for the objective, and J
        times as many from each part of the table for the constraints. 1 is the paper.
    n_steps : int, default=3000
    n_evaluations : int, default=30
        As in :class:`ALM`.

    Notes
    -----
    With levels up to `max_level` L, whose probabilities sum to one, the remaining bias equals that
    of a batch of :math:`2^{L+1}` rows. Multipliers come from the largest batch's programme in the
    last step. Steps with one row do not go with batch normalisation.

    References
    ----------
    See :class:`ALM`, Algorithm 1, after Facchinei and Kungurtsev (2023). Its code calls the
    programme for :math:`\kappa` with :math:`\rho` and :math:`\lambda` exchanged.

    Examples
    --------
    >>> from fairconstrained.solvers import StochasticGhost
    >>> StochasticGhost(p0=0.5)
    StochasticGhost(p0=0.5)
    """

    step_size: float = positive(0.05)
    step_decay: float = nonnegative(0.05)
    p0: float = positive(0.4, below=1)
    max_level: int = count(9, sign=">=")
    rho: float = positive(0.8)
    beta: float = positive(10.0)
    lam: float = nonnegative(0.5, most=1)
    tau: float = positive(1.0)
    batch_size: int = count(1)
    n_steps: int = count(3000)

    def check(self, problem: SampledProblem) -> None:
        super().check(problem)
        for name, allowed, wording in (
            ("rho", self.rho < self.beta, f"below beta={self.beta!r}"),
            ("step_decay", self.step_decay * self.step_size < 1, "below 1 / step_size"),
        ):
            if not allowed:
                raise ValueError(
                    f"StochasticGhost.{name} must be {wording}; got {getattr(self, name)!r}."
                )

    def prepare(self, estimates: Estimates, now: Memory) -> None:
        now.step_size = self.step_size

    def step(self, estimates: Estimates, now: Memory) -> None:
        probabilities = self.p0 * (1.0 - self.p0) ** torch.arange(self.max_level + 1).double()
        probabilities /= probabilities.sum()
        level = int(torch.multinomial(probabilities, 1, generator=estimates.rng))
        step = self.debiased(estimates, now.x, level, float(probabilities[level]))
        now.x = now.x + now.step_size * torch.as_tensor(step.d).to(now.x)
        now.dual = torch.as_tensor(step.dual).to(now.dual)
        now.step_size *= 1.0 - self.step_decay * now.step_size

    def debiased(self, estimates: Estimates, x: Tensor, level: int, chance: float) -> Direction:
        """Estimate the direction at `x` for a drawn level."""
        single, even, odd = (self.draw(estimates, n) for n in (1, 2**level, 2**level))
        # The whole sample is evaluated as one, because values need not be means over rows.
        (rows, (index, scale)), (others, (other, other_scale)) = even, odd
        constraints = torch.cat((index, other)), 0.5 * torch.cat((scale, other_scale))
        samples = single, (torch.cat((rows, others)), constraints), even, odd
        first, fine, *halves = (self.solve(estimates, x, sample) for sample in samples)
        coarse = 0.5 * (halves[0].d + halves[1].d)
        return Direction(first.d + (fine.d - coarse) / chance, fine.dual)

    def draw(self, estimates: Estimates, size: int) -> Drawn:
        """Draw `size` rows for the objective, and as many of each part for the constraints."""
        size = size * self.batch_size
        rows = torch.randint(estimates.problem.n_rows, (size,), generator=estimates.rng)
        return rows, estimates.balanced.draw(size, estimates.rng)

    def solve(self, estimates: Estimates, x: Tensor, rows: Drawn) -> Direction:
        """Return the direction d(S) of drawn rows and its multipliers."""
        terms = estimates.problem.estimates(x, *rows)
        gradients = terms.jacobian().cpu().double().numpy()
        gradient, jacobian = gradients[0], gradients[1:]
        # Paper: c as it is; here: moved by hard minus soft values, because labels are what counts.
        value = (terms.value[1:] + estimates.shift).cpu().double().numpy()
        level = (1.0 - self.lam) * max(value.max(initial=0.0), 0.0)
        level += self.lam * least_level(value, jacobian, self.rho)
        return direction(gradient, value, jacobian, level, self.tau, self.beta)


def least_level(value: Floats, jacobian: Floats, radius: float) -> float:
    r"""Return the least violation in reach: :math:`\min_{t \ge 0} t` s.t. :math:`c + A d \le t`,
    :math:`\lVert d \rVert_\infty \le` `radius`.

    It is zero, and no programme is solved, if the constraints hold or the shortest step to them is
    within reach, which is so in nearly all steps of a network.
    """
    if not len(value) or value.max() <= 0:
        return 0.0
    n = jacobian.shape[1]
    shortest = _without_box(np.zeros(n), value, jacobian, 0.0, 1.0)
    if shortest is not None and np.abs(shortest.d).max() <= radius:
        return 0.0
    rows = np.column_stack((jacobian, -np.ones(len(value))))
    bounds = [(-radius, radius)] * n + [(0.0, None)]
    return float(linprog(np.r_[np.zeros(n), 1.0], A_ub=rows, b_ub=-value, bounds=bounds).fun)


def direction(
    gradient: Floats, value: Floats, jacobian: Floats, level: float, curvature: float, bound: float
) -> Direction:
    r"""Solve :math:`\min_d g'd + \tfrac{\tau}{2} \lVert d \rVert^2` s.t. :math:`c + A d \le`
    `level`, :math:`\lVert d \rVert_\infty \le` `bound`.

    For multipliers v the minimiser is :math:`d(v) = \mathrm{clip}(-(g + A'v) / \tau)`. The dual is
    concave in few variables, and nonnegative least squares if no bound is active.
    """
    if not len(value):
        return Direction(np.clip(-gradient / curvature, -bound, bound), np.zeros(0))
    step = _without_box(gradient, value, jacobian, level, curvature)
    if step is not None and np.abs(step.d).max() <= bound:
        return step

    def at(dual: Floats) -> Floats:
        return np.clip(-(gradient + dual @ jacobian) / curvature, -bound, bound)

    def negative_dual(dual: Floats) -> tuple[float, Floats]:
        d = at(dual)
        excess = value - level + jacobian @ d
        return -float(gradient @ d + 0.5 * curvature * d @ d + dual @ excess), -excess

    dual = np.zeros(len(value)) if step is None else step.dual
    options, bounds = {"gtol": 1e-10, "ftol": 0.0, "maxiter": 1000}, [(0.0, None)] * len(value)
    how = {"jac": True, "method": "L-BFGS-B", "bounds": bounds, "options": options}
    # L-BFGS-B ends early if a line search meets kinks of the dual, in 1 of 3,000 random problems:
    # start again from there.
    for _ in range(5):
        dual = minimize(negative_dual, dual, **how).x
        excess = -negative_dual(dual)[1]
        if max(excess.max(), float(dual @ np.abs(excess))) <= 1e-7:
            break
    return Direction(at(dual), dual)


def _without_box(
    gradient: Floats, value: Floats, jacobian: Floats, level: float, curvature: float
) -> Direction | None:
    """Return the step without bounds on d, by least distance programming; None without a step.

    Lawson and Hanson, Solving Least Squares Problems, Chapter 23: the shortest u with A u <= h
    follows from nonnegative least squares, min |(-A' ; -h') v - e|; here u = d + g / tau.
    """
    h = level - value + jacobian @ gradient / curvature
    # Only norms matter: for A' = QR the norms of R v and -A'v are equal, and R has m rows, not n.
    system = np.vstack((np.linalg.qr(jacobian.T)[1], -h))
    unit = np.zeros(len(system))
    unit[-1] = 1.0
    v, _ = nnls(system, unit)
    rest = 1.0 + h @ v  # minus the last entry of the residual
    if rest <= ROUNDING:
        return None
    dual = curvature * v / rest
    return Direction(-(gradient + dual @ jacobian) / curvature, dual)
