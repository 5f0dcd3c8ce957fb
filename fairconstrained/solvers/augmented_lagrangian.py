"""The deterministic default: an augmented Lagrangian whose targets follow the hard values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Generator, Tensor

from fairconstrained.arrays import Floats
from fairconstrained.numerics import ROUNDING
from fairconstrained.problems.base import Linearization, Sharpenable, cached_last
from fairconstrained.solvers import base, lbfgs
from fairconstrained.solvers.base import NEARLY, Iterate, Solver, violation
from fairconstrained.solvers.run import along_offsets, repair, repair_candidates

# Equalized odds at 0.02 over eight groups ends at a training error of .333; with fewer, .495.
_SHARPENINGS = 3  # attempts at higher sharpness without a feasible point


@dataclass(eq=False, repr=False, kw_only=True)
class AugmentedLagrangian(Solver):
    r"""Powell-Hestenes-Rockafellar augmented Lagrangian with targets that follow the hard rates.

    For shifts :math:`s` it solves the subproblem :math:`\min f(x)` s.t. :math:`c(x) + s \le 0` by

    .. math::

        x &\leftarrow \arg\min_x \; f(x)
            + \tfrac{1}{2\rho} \lVert [\lambda + \rho (c(x) + s)]_+ \rVert^2, \\
        \lambda &\leftarrow [\lambda + \rho (c(x) + s)]_+ ,

    by L-BFGS from the last point with the curvature estimated so far. Users measure hard rates, so
    every round ends with a step of the shifts towards the difference of hard values :math:`h` and
    soft ones,
    :math:`s \leftarrow s + \theta\,(h(x) - c(x) - s)`, until the hard constraints are met and their
    slack is used up.

    With up to 10,000 rows, or up to 1,000,000 entries and no solution, this is repeated with soft
    rates twice as sharp, and the result of smaller error wins. If soft rates lead to no feasible
    point, they are made four times as sharp, up to three times. With many rows a subsample
    is solved first, and its solution is the start. If the start is optimal without constraints and
    feasible, it is the result.

    Parameters
    ----------
    penalty : float, default=10.0
        :math:`\rho`.
    patience : int, default=5
        Number of rounds without progress after which the solver leaves a sharpness.

    Notes
    -----
    An iteration is one update of the multipliers. The first costs about 30 passes over the data,
    and later ones, which reuse the curvature, cost 1 to 20. The residual is the largest entry of
    the KKT conditions of the shifted problem, and infinite while the targets still move.

    In convex problems the Lagrangian at its minimiser is a lower bound on the objective of all
    points that meet the targets. With more than 1,000 rows, rounds end if it exceeds the objective
    at equal scores that meet the constraints: rates of many small groups differ by chance.

    If rounds end without a solution, nearly feasible iterates are repaired by searching hard values
    along lines, and again with the sharpest rates if none has become feasible. If that fails, the
    result is the best point along an offset: far out all predictions are equal.

    References
    ----------
    Nocedal and Wright, Numerical Optimization, 2nd ed., Section 17.4. Targets corrected by measured
    values are the proxy-Lagrangian idea of Cotter et al. (2019), applied to shifts.

    Examples
    --------
    >>> from fairconstrained import RateConstrainedClassifier
    >>> from fairconstrained.datasets import make_biased_classification
    >>> from fairconstrained.solvers import AugmentedLagrangian
    >>> data = make_biased_classification(500, random_state=0)
    >>> clf = RateConstrainedClassifier(solver=AugmentedLagrangian(penalty=20.0))
    >>> clf.fit(data.data, data.target, sensitive_features=data.sensitive_features).feasible_
    True
    """

    requires = ("exact", "sharpness")
    takes_known = True
    scope = "problems with constraints, without privacy (epsilon=None)"

    penalty: float = base.positive(10.0)
    patience: int = base.count(5)

    def iterate(
        self, problem: Sharpenable, x: Tensor, dual: Tensor, tol: float, rng: Generator
    ) -> Iterator[Iterate]:
        """Solve rounds of subproblems, with repairs, at increasing sharpness; deterministic."""
        warm, coarse = bool(dual.any()), problem.subsample()
        if coarse is not problem and not (warm or x.any()):
            *_, rough = self.iterate(coarse, x, dual, tol, rng)
            if rough.excess <= NEARLY:
                x, dual, warm = rough.x, rough.dual, True
        start, shift = (x, dual), torch.zeros_like(dual)
        opinions = 2 if problem.n_rows <= lbfgs.MANY_ROWS else 1
        # After a failure, a second sharpness is worth its time only on small problems.
        cheap = problem.n_rows * len(x) <= 1_000_000 and not warm
        if warm:  # the start nearly solves the problem at this sharpness
            soft, hard = problem.evaluate(x)
            shift, opinions = _shift_solved_at(soft[1:], hard[1:], dual), 1
        feasible: list[Iterate] = []  # the result of each sharpness that has one
        infeasible: list[Iterate] = []  # the results of the others
        for _ in range(_SHARPENINGS + 1):
            seen: list[Iterate] = []
            for best in self._rounds(problem, x, dual, shift, tol):
                yield best._replace(residual=torch.inf)
                seen = repair_candidates(seen, best)
                if best.residual <= tol:
                    break
            if best.residual > tol:
                opinions = 2 if cheap else opinions
                best = repair(problem, seen)
                yield best
            sharper = problem.sharpened()
            last, problem = sharper is problem, sharper
            if best.feasible:
                feasible.append(best)
                if last or len(feasible) == opinions or not best.dual.any():
                    yield base.best_feasible(feasible)
                    return
                (x, dual), shift = start, torch.zeros_like(dual)
            else:
                infeasible = repair_candidates(infeasible, best)
                if last and best.excess <= NEARLY:
                    break
                # Double twice at once: soft rates at this sharpness led to no feasible point.
                problem = problem.sharpened()
                x, dual = best.x, best.dual
                soft, hard = problem.evaluate(x)
                shift = hard[1:] - soft[1:]
        if not feasible:
            feasible = [along_offsets(problem, repair(problem, infeasible))]
        yield base.best_feasible(feasible)

    def _rounds(
        self, problem: Sharpenable, x: Tensor, dual: Tensor, shift: Tensor, tol: float
    ) -> Iterator[Iterate]:
        """Solve, compare with the hard values and move the targets until patience runs out."""
        # Each minimisation starts where the last one ended.
        linearize = cached_last(problem.linearize)
        if not dual.any():
            gradient = linearize(x).pullback(torch.cat((dual.new_ones(1), dual)))
            residual = float(gradient.abs().max())
            if residual <= tol and violation(problem.evaluate(x).hard) <= 0.0:
                yield Iterate(x, *problem.evaluate(x), dual, residual)
                return
        bound = torch.inf  # on the objective; no early stop on small problems
        if problem.n_rows > lbfgs.FEW_ROWS:
            equal_scores = problem.evaluate(torch.zeros_like(x)).soft
            bound = float(equal_scores[0]) if violation(equal_scores) <= 0.0 else torch.inf
        # The last minimisation goes beyond tol, and with few rows to rounding: the result then
        # depends neither on the order of rows nor on whether weights are given as repeated rows.
        few, curvature = problem.n_rows <= lbfgs.FEW_ROWS, lbfgs.Curvature()
        last, least = (lbfgs.lbfgs_then_newton, ROUNDING) if few else (lbfgs.lbfgs, 1e-3 * tol)
        polish = partial(last, accuracy=least, curvature=curvature)
        targets, updates = _Targets(shift), 5
        # More rounds change nothing (decisions: the parts of `AugmentedLagrangian`).
        most_rounds = 15
        # No solution needs more accuracy while its targets move.
        loose = 1e-3
        while targets.stalled < self.patience and targets.rounds < most_rounds:
            accuracy = tol if targets.settled else loose
            for _ in range(updates):
                minimise = partial(lbfgs.lbfgs, accuracy=0.5 * accuracy, curvature=curvature)
                iterate, gap = self._update(problem, linearize, x, dual, targets.shift, minimise)
                x, dual = iterate.x, iterate.dual
                # While the targets move, meeting the constraints is enough.
                if (iterate.residual if targets.settled else gap) <= accuracy:
                    break
                yield iterate._replace(residual=torch.inf)
                # Weak duality: in convex problems no point that meets the targets is better.
                if float(iterate.soft[0] + dual @ (iterate.soft[1:] + targets.shift)) > bound:
                    return
            done = targets.settled and iterate.feasible
            if done and iterate.residual <= tol:
                iterate, _ = self._update(problem, linearize, x, dual, targets.shift, polish)
                done = iterate.feasible
            yield iterate if done else iterate._replace(residual=torch.inf)
            x, dual = targets.follow(iterate)

    def _update(
        self,
        problem: Sharpenable,
        linearize: Callable[[Tensor], Linearization],
        x: Tensor,
        dual: Tensor,
        shift: Tensor,
        minimise: Callable[[lbfgs.Function, Floats], lbfgs.Minimum],
    ) -> tuple[Iterate, float]:
        """Return the updated point and multipliers, and the violation of complementarity."""

        def lagrangian(variables: Floats) -> tuple[float, Floats]:
            terms = linearize(torch.as_tensor(variables).to(x))
            active = (dual + self.penalty * (terms.value[1:] + shift)).clamp_min(0.0)
            value = terms.value[0] + (active**2).sum() / (2.0 * self.penalty)
            gradient = terms.pullback(torch.cat((active.new_ones(1), active)))
            return value.item(), gradient.cpu().numpy()

        minimiser, gradient = minimise(lagrangian, x.cpu().numpy())
        x = torch.as_tensor(minimiser).to(x)
        soft = linearize(x).value
        value = soft[1:] + shift
        moved = (dual + self.penalty * value).clamp_min(0.0)
        gap = base.not_complementary(moved, value)
        residual = max(float(np.abs(gradient).max()), gap)
        return Iterate(x, soft, problem.evaluate(x).hard, moved, residual), gap


@dataclass
class _Targets:
    """Shifts of the soft constraints, moved until the hard ones hold and use their slack."""

    shift: Tensor
    settled: bool = False  # whether shifts are fixed, for a solution of full accuracy
    stalled: int = 0  # consecutive rounds without progress
    rounds: int = 0
    _step: float = 0.7
    _tighter: float = 1e-4  # least tightening of a violated constraint, since hard values jump
    _last: Tensor | float = 0.0
    _least: float = torch.inf  # least hard violation so far
    _miss: float = torch.inf  # least violation or unused slack of binding constraints so far
    _best: tuple[Iterate, Tensor] | None = None  # best feasible iterate, and its shifts

    def follow(self, iterate: Iterate) -> tuple[Tensor, Tensor]:
        """Move the shifts; return the point and multipliers from which to continue."""
        self.rounds += 1
        excess = iterate.excess
        # While the shifts move, half of what single rows can violate is no reason to tighten.
        feasible = excess <= (0.0 if self.settled else 0.5 * NEARLY)
        better = self._best is None or bool(iterate.hard[0] < self._best[0].hard[0])
        soft, hard, binds = iterate.soft[1:], iterate.hard[1:], iterate.dual > 0
        gap = torch.where(binds | (hard > 0), hard, torch.zeros_like(hard))
        # Shifts of violated constraints grow by twice the violation.
        more = (2.0 * hard).clamp_min(self._tighter)
        tightened = torch.where(hard > 0.0, more, torch.zeros_like(hard))
        miss = float(gap.abs().max()) if len(gap) else 0.0
        nearer = excess < 0.8 * self._least or miss < 0.8 * self._miss
        self.stalled = 0 if nearer or (feasible and better) else self.stalled + 1
        self._least, self._miss = min(self._least, excess), min(self._miss, miss)
        if feasible:
            shift = _shift_solved_at(soft, hard, iterate.dual) + tightened
            if better:
                self._best = (iterate, shift)
            # Less unused slack of binding constraints is not worth another round.
            if self.settled or bool((gap.abs() <= 5e-4).all()):
                self.settled, self.shift = True, shift
                return iterate.x, iterate.dual
        if self.settled and excess <= NEARLY:
            # The accurate solution is slightly infeasible: tighten the violated constraints.
            self.shift, self._tighter = self.shift + tightened, 4.0 * self._tighter
            return iterate.x, iterate.dual
        # After eight rounds any feasible point is enough.
        patient = self.stalled < 2 and self.rounds < 8
        if self._best is not None and not (patient or self.settled):
            # Single rows make the unused slack oscillate: return to the best shifts so far.
            self.settled, self.stalled = True, 0
            iterate, self.shift = self._best
            return iterate.x, iterate.dual
        self.settled = False
        overshot = float((gap * self._last).sum()) < 0
        self._step = 0.5 * self._step if overshot else min(1.3 * self._step, 1.0)
        self._last = gap
        # All constraints take the same step: with separate steps, the shifts of a pair could
        # contradict each other (a > b and b > a).
        self.shift = self.shift + self._step * (hard - soft - self.shift)
        return iterate.x, iterate.dual


def _shift_solved_at(soft: Tensor, hard: Tensor, dual: Tensor) -> Tensor:
    """Return the shifts for which a point solves the subproblem; 0 where soft equals hard."""
    shift = torch.where(dual > 0, -soft, torch.minimum(hard - soft, -soft))
    same = torch.isclose(hard, soft, rtol=0.0, atol=ROUNDING)  # their sums may round differently
    return torch.where(same, torch.zeros_like(soft), shift)
