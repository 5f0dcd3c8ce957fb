"""The stochastic feasible level-set method for AUCs: in levels, in proximal rounds, on a stream."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor

from fairconstrained.problems.saddle import Saddle
from fairconstrained.solvers.base import (
    Iterate,
    Solver,
    check_solves,
    count,
    nonnegative,
    number,
    positive,
)
from fairconstrained.solvers.stochastic import shuffled


class Dual(NamedTuple):
    """The maximising variables y: weights of the values on the simplex, and alpha of each pair."""

    weights: Tensor  # (1 + M,)
    alpha: Tensor  # (P,), not yet multiplied by the weight of its value


def dual_step(y: Dual, u: Tensor, v: Tensor, tau: float, bound: float, owner: Tensor) -> Dual:
    r"""Take a mirror step in y (Lemma 3): closed forms for every alpha, then for the weights.

    .. math::

        \alpha_k^\# &= \arg\min_{|\alpha| \le I} -\alpha v_k + \alpha^2
            + \tfrac1\tau (\alpha - \alpha_k')^2 , \qquad \mu_k \text{ the minimum}, \\
        \tilde y_i^\# &\propto \tilde y_i' \exp\Big( -\tau\,
            \frac{\sum_{k \in i} \mu_k - u_i}{2 (1 + \sqrt 2 I)^2} \Big) .
    """
    alpha = ((v + (2.0 / tau) * y.alpha) / (2.0 + 2.0 / tau)).clamp(-bound, bound)
    mu = -alpha * v + alpha**2 + (alpha - y.alpha) ** 2 / tau
    scale = 2.0 * (1.0 + 2.0**0.5 * bound) ** 2  # of the entropy in the distance of y
    exponent = tau * (u - torch.zeros_like(u).index_add(0, owner, mu)) / scale
    # In logarithms; the weights could underflow otherwise.
    weights = torch.softmax(y.weights.log() + exponent, dim=0)
    # A weight of exactly zero could never grow again, since steps multiply weights.
    return Dual(weights.clamp_min(torch.finfo(u.dtype).tiny), alpha)


def upper_bound(u: Tensor, v: Tensor, bound: float, owner: Tensor) -> float:
    r"""Maximise u'y + v'alpha - d(y) over y (Lemma 4), without the proximal term.

    .. math:: \max_i \; u_i + \sum_{k \in i} \max_{|\alpha| \le I} \alpha v_k - \alpha^2
    """
    alpha = (0.5 * v).clamp(-bound, bound)
    return float((u.index_add(0, owner, alpha * v - alpha**2)).max())


@dataclass(frozen=True)
class MirrorDescent:
    """State of Algorithm 2: iterates, and their averages weighted by tau."""

    x: Tensor
    y: Dual
    t: int
    total: float  # sum of tau
    sums: tuple[Any, ...]  # of x, the weights, u, v and |x - centre|^2, times tau

    @classmethod
    def begin(cls, x: Tensor, saddle: Saddle) -> MirrorDescent:
        """Begin at x, with equal weights and alpha = 0."""
        n = saddle.n_values
        y = Dual(x.new_full((n,), 1.0 / n), x.new_zeros(saddle.n_pairs))
        none = torch.zeros_like(y.weights)
        return cls(x, y, 0, 0.0, (torch.zeros_like(x), none, none, y.alpha, 0.0))

    def average(self, place: int = 0) -> Tensor:
        """Return one of the averages, by default the average of x, the output."""
        # Paper: 1/T for x, and u, v without tau; here tau everywhere, as in Lin et al. (2020).
        average: Tensor = self.sums[place] / self.total
        return average

    def multipliers(self) -> Tensor:
        """Return the averaged weights of the constraints, divided by the objective's."""
        weights = self.average(1)
        return weights[1:] / weights[0]


@dataclass(eq=False, repr=False, kw_only=True)
class LevelSet(Solver):
    r"""Stochastic feasible level-set method (SFLS) with stochastic mirror descent.

    The level-set function of the problem min f_0 s.t. f_i <= 0,

    .. math:: H(r) = \min_x \max \{ f_0(x) - r, f_1(x), \ldots, f_M(x) \} ,

    has its root at the optimum. From r above it, Algorithm 1 of the paper takes
    :math:`r \leftarrow r + U(r) / (2 \theta)` until :math:`U(r) \ge -\epsilon_{opt}`, with an upper
    bound U of H from `n_steps` mirror steps (Algorithm 2) on the min-max form of the quadratic
    AUCs (``fairconstrained.problems.saddle``), each on one mini-batch, or one row. The last point
    with U < 0 is the result. True gaps are not used.

    Parameters
    ----------
    n_steps : int, default=1000
        T, mirror steps for each level.
    batch_size : int, default=100
    step_size : float, default=0.02
        c of :math:`\eta_t = c / \sqrt{t + 1}`, in the coordinates of the model.
    dual_step_size : float, default=30.0
        The same of :math:`\tau_t`.
    theta : float, default=1.1
        :math:`\theta > 1`: how carefully the level falls.
    epsilon : float, default=0.01
        Where the level stops falling: :math:`\epsilon_{opt} = -U(r^{(0)})\, \epsilon / \theta`.
    max_levels : int, default=30
    interval : float, default=2.0
        The interval I of a, b and alpha, in units of :math:`c_2`, with the sets' mean scores.
    radius : float, default=inf
        Parameters stay in this ball about the start (the compact W of the theory).

    Notes
    -----
    An iteration is a level. Multipliers are the averaged weights over that of the objective.

    Paper: the error of U is at most :math:`\epsilon_{opt} (\theta - 1) / (2 \theta (\theta + 1))`
    (Proposition 1), by as many steps as that takes; here: a fixed number of steps, because their
    error depends on unknown constants. So nothing is certified: the residual is
    infinite, ``converged_`` is False, and a run may stop well above the optimum.

    ``AUCFairClassifier.partial_fit`` takes a step for each `batch_size` rows of the stream. A step
    on a single row wants a `step_size` many times smaller (0.0005) and more `n_steps`.

    References
    ----------
    Yao, Lin and Yang (2023), Stochastic Methods for AUC Optimization subject to AUC-based Fairness
    Constraints, Algorithms 1 and 2.

    Examples
    --------
    >>> from fairconstrained.solvers import LevelSet
    >>> LevelSet(max_levels=10)
    LevelSet(max_levels=10)
    """

    requires = ("saddle",)
    takes_known = True
    keeps_last = True  # true gaps are not used
    scope = (
        "AUC constraints with the quadratic surrogate: AUCFairClassifier(AUCParity(..., "
        "surrogate='quadratic')) with sensitive features, without privacy (epsilon=None)"
    )

    n_steps: int = count(1000)
    batch_size: int = count(100)
    step_size: float = positive(0.02)
    dual_step_size: float = positive(30.0)
    theta: float = number(1.1, ">", 1)
    epsilon: float = nonnegative(0.01)
    max_levels: int = count(30)
    interval: float = positive(2.0)
    radius: float = positive(torch.inf)

    @classmethod
    def suits(cls, problem: Any) -> bool:
        return problem.saddle() is not None

    def check(self, problem: Any) -> None:
        """Raise ValueError for an invalid parameter, or unless constant scores are feasible."""
        super().check(problem)
        saddle = problem.saddle()
        room = min(saddle.slack[1:].tolist(), default=torch.inf)
        if not 2.0 * saddle.c1 * saddle.c2**2 < room:
            raise ValueError(
                f"{type(self).__name__} needs 2 c1 c2^2 < 1 + slack, so that constant scores are "
                f"strictly feasible (Lemma 2); got c1={saddle.c1}, c2={saddle.c2}, "
                f"slack={room - 1.0:g}. Increase the slack, or take a smaller c1."
            )

    def iterate(
        self, problem: Any, x: Tensor, dual: Tensor, tol: float, rng: Generator
    ) -> Iterator[Iterate]:
        """Yield the result of each level, from x if it is feasible, else from constant scores."""
        saddle = problem.saddle()
        start = saddle.extended(x) if _feasible(saddle, x) else saddle.constants()
        yield from self.levels(saddle, start, 0.0, rng)

    def levels(
        self, saddle: Saddle, start: Tensor, rho: float, rng: Generator
    ) -> Iterator[Iterate]:
        """Run Algorithm 1 with the proximal term ``rho / 2 |x - start|^2`` on every value."""
        problem, accuracy, first = saddle.problem, torch.inf, True
        batches = shuffled(problem.n_rows, self.batch_size, rng)
        r = self.first_level(saddle, saddle.parameters(start))
        for _ in range(self.max_levels):
            state = MirrorDescent.begin(start, saddle)
            for _ in range(self.n_steps):
                state = self.step(saddle, state, problem.data.take(next(batches)), r, rho, start)
            bound = self.upper_bound(saddle, state, rho)
            if first:
                accuracy = self.accuracy(bound)
            # Paper: halts with the current point; here: with the last one of U < 0, because U >= 0
            # above the optimum means that these steps were too inaccurate.
            if bound < 0 or first:
                w = saddle.parameters(state.average())
                yield Iterate(w, *problem.evaluate(w), state.multipliers(), torch.inf)
            if bound >= -accuracy:
                return
            r, first = r + bound / (2.0 * self.theta), False

    def accuracy(self, bound: float) -> float:
        """Return epsilon_opt, given U at the first level."""
        return max(-bound, 0.0) * self.epsilon / self.theta

    def first_level(self, saddle: Saddle, w: Tensor) -> float:
        """Return an r above the optimum: f_0 at a feasible point, constant scores or w itself."""
        constants = saddle.objective_of_constants()
        if not _feasible(saddle, w):
            return constants
        return min(float(saddle.problem.linearize(w).value[0]), constants)

    def step(
        self, saddle: Saddle, state: MirrorDescent, batch: Any, r: float, rho: float, centre: Tensor
    ) -> MirrorDescent:
        """Take a step of Algorithm 2 in x and y on a batch."""
        decay, y = (state.t + 1) ** -0.5, state.y
        eta, tau = self.step_size * decay, self.dual_step_size * decay
        terms = saddle.linearize(state.x, batch)
        u, v = terms.value[: saddle.n_values].clone(), terms.value[saddle.n_values :]
        u[0] -= r
        gradient = terms.pullback(torch.cat((y.weights, y.weights[saddle.owner] * y.alpha)))
        # The minimiser of g'x + |x - x_t|^2 / (2 eta) + rho / 2 |x - centre|^2
        x = (state.x / eta + rho * centre - gradient) / (1.0 / eta + rho)
        distance = float(((state.x - centre) ** 2).sum())
        now = zip(state.sums, (state.x, y.weights, u, v, distance), strict=True)
        sums = tuple(total + tau * value for total, value in now)
        y = dual_step(y, u, v, tau, self._largest_alpha(saddle), saddle.owner)
        return MirrorDescent(
            self.project(saddle, x, centre), y, state.t + 1, state.total + tau, sums
        )

    def upper_bound(self, saddle: Saddle, state: MirrorDescent, rho: float) -> float:
        """Return U(r) of equation 26, with the averages of Algorithm 2."""
        largest, distance = self._largest_alpha(saddle), float(state.sums[-1])
        bound = upper_bound(state.average(2), state.average(3), largest, saddle.owner)
        return bound + 0.5 * rho * distance / state.total

    def _largest_alpha(self, saddle: Saddle) -> float:
        return float(saddle.c1**0.5 * self.interval * saddle.c2)

    def project(self, saddle: Saddle, x: Tensor, centre: Tensor) -> Tensor:
        """Return the nearest point of the ball for w times the box for a and b."""
        w, about = saddle.parameters(x), saddle.parameters(centre)
        interval = self.interval * saddle.c2
        distance = (w - about).norm()
        if distance > self.radius:
            w = about + (w - about) * (self.radius / distance)
        return torch.cat((w, x[len(w) :].clamp(-interval, interval)))


def _feasible(saddle: Saddle, w: Tensor) -> bool:
    return bool((saddle.problem.linearize(w).value[1:] <= 0).all())


@dataclass(eq=False, repr=False, kw_only=True)
class ProximalLevelSet(Solver):
    r"""Inexact quadratically regularised constrained method (IQRC), for models that are not convex.

    From :math:`\tilde x^{(s)}` the level-set method solves (Algorithm 3)

    .. math::

        \tilde x^{(s+1)} \approx \arg\min_x f_0(x) + \tfrac{\hat\rho}{2} |x - \tilde x^{(s)}|^2
        \quad \text{s.t.} \quad f_i(x) + \tfrac{\hat\rho}{2} |x - \tilde x^{(s)}|^2 \le 0 ,

    convex problems if :math:`\hat\rho` is large enough.

    Parameters
    ----------
    level_set : LevelSet, optional
        Default: ``LevelSet(n_steps=500, step_size=0.1, max_levels=3)``.
    rho : float, default=1e-5
        :math:`\hat\rho`, the value of the paper's experiments.
    n_rounds : int, default=10
        S.

    Notes
    -----
    An iteration is a level of a round. Paper: a round drawn at random; here: the point of highest
    AUC among those that keep the true gaps, or the nearest to it.

    References
    ----------
    Yao, Lin and Yang (2023), Algorithm 3; Ma, Lin and Yang (2020), Quadratically regularized
    subgradient methods for weakly convex optimization with weakly convex constraints.

    Examples
    --------
    >>> from fairconstrained.solvers import ProximalLevelSet
    >>> ProximalLevelSet()
    ProximalLevelSet()
    """

    requires = ("saddle",)
    takes_known = True
    scope = LevelSet.scope
    suits = LevelSet.suits

    level_set: LevelSet | None = field(default=None, metadata={"kind": LevelSet})
    rho: float = nonnegative(1e-5)
    n_rounds: int = count(10)

    def _inner(self) -> LevelSet:
        return self.level_set or LevelSet(n_steps=500, step_size=0.1, max_levels=3)

    def check(self, problem: Any) -> None:
        super().check(problem)
        self._inner().check(problem)

    def iterate(
        self, problem: Any, x: Tensor, dual: Tensor, tol: float, rng: Generator
    ) -> Iterator[Iterate]:
        """Yield the levels of each proximal problem, centred at the last solution."""
        saddle, inner = problem.saddle(), self._inner()
        # Paper: starts nearly feasible; here: at the network's own start, because constants, which
        # are feasible, have no gradient in the layers below.
        for _ in range(self.n_rounds):
            # Paper: the centre has a and b; here: they are 0 in each, because they are the means
            # of scores that the next steps find again.
            for iterate in inner.levels(saddle, saddle.extended(x), self.rho, rng):
                yield iterate
            x = iterate.x


@dataclass(frozen=True)
class LevelSetStream:
    """Immutable state of Algorithm 1 between two mini-batches of a stream."""

    saddle: Saddle  # with the fractions of all rows so far
    centre: Tensor  # where it began: constant scores, of a linear model
    descent: MirrorDescent  # Algorithm 2 on the present level
    level: float
    n_steps: int = 0  # mini-batches so far
    n_levels: int = 0  # that are done
    accuracy: float | None = None  # epsilon_opt, known once the first level is done
    falling: bool = True  # whether the last bound was below -epsilon_opt

    @classmethod
    def begin(cls, solver: LevelSet, problem: Any) -> LevelSetStream:
        """Begin at constant scores and a level above the optimum, on the first rows."""
        check_solves(solver, problem)
        solver.check(problem)
        saddle = problem.saddle()
        x = saddle.constants()
        level = solver.first_level(saddle, saddle.parameters(x))
        return cls(saddle, x, MirrorDescent.begin(x, saddle), level)

    @property
    def x(self) -> Tensor:
        """The output so far: the average of the level's points (w, a, b), or its start."""
        return self.descent.average() if self.descent.t else self.descent.x

    def after(self, solver: LevelSet, batch: Any) -> LevelSetStream:
        """Take a step on a batch of the stream, and end the level after its last step."""
        saddle = self.saddle.after(batch)
        descent = solver.step(saddle, self.descent, batch, self.level, 0.0, self.centre)
        moved = replace(self, saddle=saddle, descent=descent, n_steps=self.n_steps + 1)
        last = not self.falling or self.n_levels >= solver.max_levels - 1
        if last or descent.t < solver.n_steps:
            return moved
        bound = solver.upper_bound(saddle, descent, 0.0)
        accuracy = solver.accuracy(bound) if self.accuracy is None else self.accuracy
        falling = bound < -accuracy
        done = replace(moved, n_levels=self.n_levels + 1, accuracy=accuracy, falling=falling)
        if not falling:
            return done
        # Paper: each level starts where the first did; here where the last one ended, because the
        # first steps of a level are all that a stream may have until its next row.
        level = self.level + bound / (2.0 * solver.theta)
        return replace(done, level=level, descent=MirrorDescent.begin(done.x, saddle))
