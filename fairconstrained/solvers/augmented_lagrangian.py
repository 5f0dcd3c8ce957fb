"""The deterministic default: augmented Lagrangian, L-BFGS inside, tightened to hard rates."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Generator, Tensor

from fairconstrained.problem import Linearization, Problem
from fairconstrained.solvers.run import (
    FEASIBILITY_TOL,
    Iterate,
    Solver,
    best_feasible,
    violation,
)

__all__ = ["AugmentedLagrangian"]

_LOOSE = 1e-3  # accuracy of a subproblem whose targets still move
_UPDATES = 5  # multiplier updates in one round
_ROOM = 2e-3  # room under a binding hard constraint that is not worth another round
_ROUNDS_FOR_ROOM = 8  # after these, any feasible point will do
_SHARPENINGS = 4
_NEAR = np.geomspace(1e-3, 0.3, 30)  # steps of an offset, in units of scores
_FAR = np.geomspace(1e-3, 1e2, 60)


class AugmentedLagrangian(Solver):
    r"""Powell-Hestenes-Rockafellar augmented Lagrangian with targets that follow the hard rates.

    For shifts :math:`s` the subproblem :math:`\min f(x)` s.t. :math:`c(x) + s \le 0` is solved by

    .. math::

        x \leftarrow \arg\min_x f(x) + \tfrac{1}{2\rho} \lVert [\lambda + \rho (c(x) + s)]_+ \rVert^2,
        \qquad \lambda \leftarrow [\lambda + \rho (c(x) + s)]_+ ,

    each minimisation by L-BFGS from the last point. Soft rates are not what users measure, so
    every round ends by moving the shifts of the constraints that matter by their hard values
    :math:`h(x)`, :math:`s \leftarrow s + \theta h`, up where the labels violate a constraint and
    down where they leave room, until the hard values are met and the room is used. Where the soft
    rates do not lead there, they are sharpened (twice the temperature).

    Parameters
    ----------
    penalty : float, default=10.0
        First :math:`\rho`; doubled, up to 16 times it, while a subproblem resists.
    inner_max_iter : int, default=40
        L-BFGS iterations in one minimisation.
    memory : int, default=20
        Pairs kept by L-BFGS.
    patience : int, default=5
        Rounds without progress in the hard violation before the soft rates are sharpened.

    Notes
    -----
    An iteration is one update of the multipliers; it costs 5 to 40 passes over the data. Memory
    beyond the data: a few vectors of length n and `memory` pairs of parameter vectors.

    The residual is the largest entry of the KKT conditions of the shifted problem (stationarity in
    the solver's coordinates, violation, complementarity); while the targets still move it is
    infinite.

    If no iterate meets the hard constraints at the end, the offsets of the best one are searched:
    far out all predictions are equal, and parity holds.

    References
    ----------
    Nocedal and Wright, Numerical Optimization, 2nd ed., Section 17.4. The correction of targets by
    the measured values is the proxy-Lagrangian idea of Cotter et al. (2019), applied to shifts.
    """

    max_iter = 300

    def __init__(
        self,
        *,
        penalty: float = 10.0,
        inner_max_iter: int = 40,
        memory: int = 20,
        patience: int = 5,
    ):
        self.penalty = penalty
        self.inner_max_iter = inner_max_iter
        self.memory = memory
        self.patience = patience

    def iterate(
        self, problem: Problem, x: Tensor, dual: Tensor, tol: float, rng: Generator
    ) -> Iterator[Iterate]:
        """Rounds of subproblems, sharper each time they stall; no randomness."""
        for _ in range(_SHARPENINGS + 1):
            best: list[Iterate] = []
            for iterate in self._rounds(problem, x, dual, tol):
                best = [best_feasible([*best, iterate])]
                yield iterate
            near = _offsets(problem, best[0], _NEAR)
            yield near
            if violation(near.hard) <= FEASIBILITY_TOL:
                return
            x, dual = best[0].x, best[0].dual
            problem = problem.sharpened()
        yield _offsets(problem, best[0], _FAR)

    def _rounds(self, problem: Problem, x: Tensor, dual: Tensor, tol: float) -> Iterator[Iterate]:
        """Solve, compare with the hard values, move the targets; end when patience runs out."""
        targets = _Targets(problem, x)
        penalty = self.penalty
        while targets.stalled < self.patience:
            accuracy = tol if targets.settled else _LOOSE
            previous = torch.inf
            for _ in range(_UPDATES):
                x = self._minimise(problem, x, dual, targets.shift, penalty, accuracy)
                terms = problem.linearize(x)
                value = terms.value[1:] + targets.shift
                dual = (dual + penalty * value).clamp_min(0.0)
                residual = _kkt_residual(terms, value, dual)
                hard = problem.hard(x)
                done = targets.settled and violation(hard) <= FEASIBILITY_TOL
                yield Iterate(x, terms.value, hard, dual, residual if done else torch.inf)
                if residual <= accuracy:
                    break
                if residual > 0.5 * previous:
                    penalty = min(2.0 * penalty, 16.0 * self.penalty)
                previous = residual
            x, dual = targets.follow(x, hard, dual)

    def _minimise(
        self, problem: Problem, x: Tensor, dual: Tensor, shift: Tensor, penalty: float, accuracy: float
    ) -> Tensor:
        """Minimise the augmented Lagrangian over x by L-BFGS."""

        def lagrangian(variables: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
            terms = problem.linearize(torch.as_tensor(variables, device=x.device))
            active = (dual + penalty * (terms.value[1:] + shift)).clamp_min(0.0)
            value = terms.value[0] + (active**2).sum() / (2.0 * penalty)
            gradient = terms.pullback(torch.cat((torch.ones_like(terms.value[:1]), active)))
            return value.item(), gradient.cpu().numpy()

        options = {
            "maxiter": self.inner_max_iter,
            "maxcor": self.memory,
            "gtol": 0.5 * accuracy,
            "ftol": 1e-15,
        }
        found = minimize(lagrangian, x.cpu().numpy(), jac=True, method="L-BFGS-B", options=options)
        return torch.as_tensor(found.x, device=x.device)


class _Targets:
    """Shifts of the soft constraints, moved until the hard ones are met and their room is used.

    ``settled`` says that the shifts should stay and the subproblem be solved to full accuracy;
    ``stalled`` counts the rounds that brought nothing.
    """

    def __init__(self, problem: Problem, x: Tensor):
        self.shift = x.new_zeros(problem.n_constraints)
        self.settled = False
        self.stalled = 0
        self._step = torch.full_like(self.shift, 0.7)
        self._last = torch.zeros_like(self.shift)
        self._least = torch.inf  # hard violation so far
        self._rounds = 0
        self._feasible: tuple[float, Tensor, Tensor, Tensor] | None = None

    def follow(self, x: Tensor, hard: Tensor, dual: Tensor) -> tuple[Tensor, Tensor]:
        """Move the shifts by the hard values of the constraints that bind or are violated.

        Returns the point and multipliers to go on from.
        """
        self._rounds += 1
        excess, error = violation(hard), float(hard[0])
        feasible = excess <= FEASIBILITY_TOL
        if feasible and (self._feasible is None or error < self._feasible[0]):
            self._feasible = (error, self.shift, x, dual)
        progress = excess < 0.8 * self._least or (feasible and not self.settled)
        self.stalled = 0 if progress else self.stalled + 1
        self._least = min(self._least, excess)
        values = hard[1:]
        matters = (dual > 0) | (values > 0)
        gap = torch.where(matters, values, torch.zeros_like(values))
        if feasible and (self.settled or bool((gap.abs() <= _ROOM).all())):
            self.settled = True
            return x, dual
        patient = self.stalled < 2 and self._rounds < _ROUNDS_FOR_ROOM
        if self._feasible is not None and not patient:
            # Room keeps opening and closing (few rows decide): take the best shifts seen.
            self.settled = True
            _, self.shift, x, dual = self._feasible
            return x, dual
        self.settled = False
        # A change of sign is an overshoot: halve the step of that constraint.
        overshot = gap * self._last < 0
        self._step = torch.where(overshot, 0.5 * self._step, (1.3 * self._step).clamp_max(1.0))
        self._last = gap
        self.shift = self.shift + self._step * gap
        return x, dual


def _kkt_residual(terms: Linearization, value: Tensor, dual: Tensor) -> float:
    gradient = terms.pullback(torch.cat((torch.ones_like(terms.value[:1]), dual)))
    # min(dual, -value) vanishes where a constraint is met and complementary to its multiplier.
    return float(torch.cat((gradient, torch.minimum(dual, -value))).abs().max())


def _offsets(problem: Problem, iterate: Iterate, steps: NDArray[np.float64]) -> Iterate:
    """The best point found by moving one offset of x at a time."""
    candidates = [iterate._replace(residual=torch.inf)]
    for position in problem.offsets:
        for step in (*steps, *-steps):
            x = iterate.x.clone()
            x[position] += step
            candidates.append(iterate._replace(x=x, hard=problem.hard(x), residual=torch.inf))
    best = best_feasible(candidates)
    return best._replace(soft=problem.linearize(best.x).value)
