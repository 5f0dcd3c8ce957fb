"""The level-set method on a stream: mini-batches come from outside, the state is a value."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fairconstrained.problems.saddle import Saddle
from fairconstrained.solvers.base import check_solves
from fairconstrained.solvers.level_set import Descent, LevelSet


@dataclass(frozen=True)
class LevelSetStream:
    """State of Algorithm 1 between two mini-batches; a step gives a new one.

    Parameters
    ----------
    centre : Tensor
        Where it began: constant scores, of a linear model.
    descent : Descent
        Algorithm 2 on the present level.
    level : float
    x : Tensor
        The output so far: the average of the level's points (w, a, b).
    cell_weights : Tensor of shape (n_cells,)
        Of the rows counted so far.
    n_rows, n_ahead : int
        Rows counted so far, and how many of them are still to be used. Until these are, fractions
        are those of the first rows.
    n_steps, n_levels : int
        Mini-batches so far, and levels that are done.
    accuracy : float or None
        epsilon_opt, known once the first level is done.
    falling : bool
        Whether the level still falls: the last bound was below -epsilon_opt.
    """

    centre: Tensor
    descent: Descent
    level: float
    x: Tensor
    cell_weights: Tensor
    n_rows: int
    n_ahead: int
    n_steps: int = 0
    n_levels: int = 0
    accuracy: float | None = None
    falling: bool = True

    @classmethod
    def begin(cls, solver: LevelSet, problem: Any) -> LevelSetStream:
        """Begin at the model's zero, at a level above the optimum, on the first rows."""
        check_solves(solver, problem)
        solver.check(problem)
        saddle = Saddle(problem)
        x, weights, n = saddle.constants(), saddle.cell_weights(saddle.rows()), problem.n_rows
        level = solver.first_level(saddle, saddle.parameters(x))
        return cls(x, Descent.begin(x, saddle), level, x, weights, n, n)

    def through(self, solver: LevelSet, problem: Any, batches: Iterable[Any]) -> LevelSetStream:
        """One step on each of these mini-batches."""
        saddle, state = Saddle(problem), self
        for batch in batches:
            state = state.after(solver, saddle, batch)
        return state

    def after(self, solver: LevelSet, saddle: Saddle, batch: Any) -> LevelSetStream:
        """One step on these rows, and the end of the level if it was its last.

        Fractions are those of all rows so far, these included.
        """
        n = len(batch.y)
        uncounted = batch.rows(torch.arange(min(self.n_ahead, n), n, device=batch.y.device))
        cell_weights = self.cell_weights + saddle.cell_weights(uncounted)
        n_rows = self.n_rows + len(uncounted.y)
        saddle = saddle.weighed(cell_weights, n_rows)
        descent = solver.step(saddle, self.descent, batch, self.level, 0.0, self.centre)
        moved = replace(
            self,
            descent=descent,
            x=descent.average(),
            cell_weights=cell_weights,
            n_rows=n_rows,
            n_ahead=max(self.n_ahead - n, 0),
            n_steps=self.n_steps + 1,
        )
        falling = self.falling and self.n_levels < solver.max_levels - 1
        return moved._fallen(solver, saddle) if falling and descent.t >= solver.n_steps else moved

    def _fallen(self, solver: LevelSet, saddle: Saddle) -> LevelSetStream:
        """At the next level, unless this one is the last: that one takes all further rows."""
        bound = solver.upper_bound(saddle, self.descent, 0.0)
        accuracy = solver.accuracy(bound) if self.accuracy is None else self.accuracy
        done = replace(
            self,
            n_levels=self.n_levels + 1,
            accuracy=accuracy,
            falling=bound < -accuracy,
        )
        if not done.falling:
            return done
        # Paper: each level starts where the first did; here where the last one ended, because the
        # first steps of a level are all that a stream may have until its next row.
        return replace(
            done,
            level=solver.next_level(self.level, bound),
            descent=Descent.begin(self.x, saddle),
        )
