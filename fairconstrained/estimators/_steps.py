"""The state that partial_fit keeps for a solver that continues from it."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

import numpy as np
import torch

from fairconstrained.constraints import Space
from fairconstrained.estimators._history import recorded
from fairconstrained.estimators._stream import Chunk
from fairconstrained.models.features import as_features
from fairconstrained.problems import FairERM, Rows
from fairconstrained.problems.objectives import PairwiseLoss
from fairconstrained.solvers import Iterate, LevelSet, Solution, Status
from fairconstrained.solvers.level_set import LevelSetStream

_WHITEN_ROWS = 5  # rows per column that decorrelating coordinates need


def rows_to_begin(rows: Chunk, n_groups: int, batch_size: int, min_rows: int) -> int | None:
    """The number of first rows that determine coordinates and sets, or None if there are too few.

    They must be a mini-batch, five rows per column, and `min_rows` rows of both labels of every
    group so far.
    """
    least = max(batch_size, _WHITEN_ROWS * rows.X.shape[1])
    cell = rows.y * n_groups + rows.group
    counts = np.cumsum(cell[:, None] == np.arange(2 * n_groups), axis=0)
    enough = (counts >= max(min_rows, 1)).all(axis=1)
    enough[: least - 1] = False
    return int(enough.argmax()) + 1 if enough.any() else None


def as_rows(rows: Chunk, device: str) -> Rows:
    """Rows as solvers see them."""
    columns = (torch.as_tensor(column, device=device) for column in rows[1:])
    return Rows((as_features(rows.X, device),), *columns)


@dataclass(frozen=True)
class Steps:
    """The state of a solver on a stream. Each chunk gives a new object, so errors leave the old.

    Rows wait until they fill a mini-batch, so the state does not depend on the chunks.
    """

    problem: FairERM  # on the rows it began with
    space: Space
    state: LevelSetStream
    waiting: Chunk

    @classmethod
    def begin(cls, solver: LevelSet, problem: FairERM, space: Space, none: Chunk) -> Steps:
        return cls(problem, space, LevelSetStream.begin(solver, problem), none)

    def after(self, solver: LevelSet, rows: Chunk, device: str) -> Steps:
        """The state after a step for each full mini-batch."""
        rows, size = self.waiting.then(rows), solver.batch_size
        end = len(rows.y) - len(rows.y) % size
        batches = (
            as_rows(rows.part(slice(start, start + size)), device) for start in range(0, end, size)
        )
        state = self.state.through(solver, batches)
        return replace(self, state=state, waiting=rows.part(slice(end, None)))

    def on(self, data: Rows) -> FairERM:
        """The problem on other rows, with a copy of the model, to measure the model."""
        weights = torch.stack([data.weight[data.y == k].sum() for k in (0, 1)])
        risk = self.problem.risk
        if isinstance(risk, PairwiseLoss):
            risk = replace(risk, fractions=tuple((weights / weights.sum()).tolist()))
        return replace(self.problem, data=data, risk=risk, model=copy.deepcopy(self.problem.model))

    def solution(self, problem: FairERM) -> Solution:
        """The state as a solution, measured on `problem`."""
        state = self.state
        w = state.x[: problem.model.n_params]
        soft, hard = problem.evaluate(w)
        iterate = Iterate(w, soft, hard, state.descent.multipliers(), torch.inf)
        told = [recorded(problem.constraint, iterate)]
        return Solution(iterate, state.n_steps, Status.STREAMING, told, [0.0], Status.STREAMING)
