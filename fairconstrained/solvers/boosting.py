"""Boosting rounds as steps on a constrained problem: multipliers, and the best round."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fairconstrained.arrays import Floats
from fairconstrained.exceptions import DivergenceError
from fairconstrained.problems.base import Evaluation, Linearization
from fairconstrained.solvers.base import Iterate

# Smallest Hessian or curvature to divide by: the Hessian of sure predictions is zero.
_MIN_CURVATURE = 1e-6


class Rounds:
    """The constraints' terms in the gradients of each boosting round, and the best round.

    The parameters of `problem` are the scores of all rows, in which rows held out weigh nothing;
    `measure` gives soft and hard values on these. Stops `patience` rounds after both the least loss
    and the best round, if one of these rounds keeps the slack, or when `watch` returns True.
    """

    def __init__(
        self,
        problem: Any,
        measure: Callable[[Tensor], Evaluation],
        slack: Tensor,
        *,
        learning_rate: float,
        limit: int,
        patience: int | None,
        watch: Callable[[Iterate], bool],
    ):
        self.problem, self.measure, self.watch = problem, measure, watch
        # Rows held out are few: multipliers leave a tenth of the slack unused.
        self.inside, self.limit = 0.1 * slack, limit
        # Scores follow multipliers with a delay of 1 / learning_rate rounds. With multipliers that
        # move in every round fits take 1.2 times as long (decisions: a booster's clock).
        self.period = max(round(0.3 / learning_rate), 1)  # in rounds
        self.time = self.period * learning_rate
        self.patience = inf if patience is None else patience
        self.counted = (problem.data.weight > 0).numpy()[:, None]
        self.dual = self.weights = torch.zeros_like(slack)
        self.added: Any = 0.0  # to gradients
        self.number, self.best = 0, 0  # of the round, and of the best one
        self.latest: tuple[int, Any] = 0, None  # the last round that was best, with all its scores
        self.values = np.empty((4, 0))  # number, loss, error and excess of rounds

    def __call__(self, raw: Floats, gradient: Floats, hessian: Floats) -> bool:
        """Add constraint terms to gradient and Hessian (n, K); return whether to stop first."""
        # Without gradients, trees do not learn from rows held out.
        gradient *= self.counted
        hessian *= self.counted
        if self.number % self.period == 0 or self.number == self.limit:
            scores = torch.as_tensor(np.ascontiguousarray(raw, dtype=float))
            now = Iterate(scores.new_tensor([self.number]), *self.measure(scores), self.dual, inf)
            stops = self._stops(now)
            if self.best == self.number:
                self.latest = self.number, np.array(raw, dtype=float)
            if stops:
                return True
            excess = now.hard[1:] + self.inside
            moves = torch.where((excess > 0) | (self.dual > 0), excess, 0.0)
            if bool(moves.any()):
                self._move(self.problem.linearize(scores.reshape(-1)), moves, hessian)
        self.number += 1
        gradient += self.added
        # Absolute values keep the Hessian positive and steps short where constraints pull hard.
        hessian += np.abs(self.added)
        return False

    def _stops(self, now: Iterate) -> bool:
        """Record the values before a round, and return whether to stop."""
        row = self.number, float(now.soft[0]), float(now.hard[0]), now.excess
        if not np.isfinite(row).all():
            raise DivergenceError(f"Scores of the booster are not finite in round {self.number}.")
        self.values = np.column_stack((self.values, row))
        number, loss, error, excess = self.values
        self.best = int(number[best_round(loss, error, excess)])
        # Rounds that have learnt little keep the slack, too, before the constraint pulls.
        keeps = excess[number >= self.number - self.patience].min() <= 0.0
        waited = self.number - max(self.best, number[loss.argmin()]) if keeps else 0
        return self.watch(now) or self.number >= self.limit or waited >= self.patience

    def _move(self, terms: Linearization, moves: Tensor, hessian: Floats) -> None:
        """Update multipliers by a part of a steepest-ascent step; weights take the full step."""
        curved = np.maximum(hessian, _MIN_CURVATURE)
        squares = self._gradient(terms, moves, hessian.shape) ** 2 / curved
        curvature = float(squares.sum() / self.problem.data.total_weight)
        # Relative to steepest ascent: at 2 multipliers settle without oscillation at 20 to 1,000
        # rounds, at 4 they oscillate at a learning rate of 0.3.
        step = 2.0 * float(moves @ moves) / max(curvature, _MIN_CURVATURE)
        self.dual = (self.dual + self.time * step * moves).clamp_min(0.0)
        self.weights = (self.dual + step * moves).clamp_min(0.0)
        self.added = self._gradient(terms, self.weights, hessian.shape)

    def _gradient(self, terms: Linearization, weights: Tensor, shape: Any) -> Floats:
        """Return the gradient of weighted constraints by the scores, scaled to sums over rows."""
        gradient = terms.pullback(torch.cat((weights.new_zeros(1), weights)))
        return np.asarray((self.problem.data.total_weight * gradient).numpy().reshape(shape))


def best_round(loss: Floats, error: Floats, excess: Floats) -> int:
    """Return the index of the feasible round of least loss, or of the least violation.

    Only rounds that gain enough over constant predictions, the first entry, are eligible.

    >>> loss, error = np.array([0.7, 0.6, 0.5, 0.6]), np.array([0.5, 0.3, 0.3, 0.2])
    >>> best_round(loss, error, np.array([-0.1, 0.1, 0.0, 0.0]))
    2
    """
    if len(error) < 2:
        return 0
    gain = error[0] - error
    # Early rounds are feasible because they still predict one label.
    worth = gain >= 0.25 * gain.max()
    loss, excess = (np.where(worth, column, inf)[1:] for column in (loss, np.maximum(excess, 0.0)))
    return 1 + int(np.lexsort((loss, excess))[0])
