"""Fits under constraints on shrunken rates: a reference first, and then what it corrects."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from fairconstrained.constraints.shrinkage import has_families, shrunken, told_apart
from fairconstrained.estimators._inputs import TrainingRows
from fairconstrained.estimators._single import SingleTraining
from fairconstrained.estimators._tables import RowsOfTable
from fairconstrained.estimators._training import Stage, Training
from fairconstrained.groups import refuse_negative
from fairconstrained.losses import hard_classes
from fairconstrained.problems.rows import Rows
from fairconstrained.solvers.base import FEASIBILITY_TOL


class ShrunkenTraining(Training):
    """A fit under shrunken rates, of which attributes say the measured ones, too."""

    measured: Any  # the problem with measured rates

    def prepare(self, rows: TrainingRows, rng: Generator) -> None:
        """Fit the specification of the model, if the rows can be told apart by a reference."""
        if isinstance(rows, RowsOfTable):
            raise ValueError(
                f"{type(self.estimator).__name__}: shrinkage needs rows in memory, in Blocks or "
                "sharded_rows(); those of a table of an engine are not told apart by a reference."
            )
        if rows.group.ndim == 2:
            refuse_negative(rows.group, "shrinkage")
        super().prepare(rows, rng)

    def refine(self, problem: Any) -> Any:
        """Return the final problem, on groups that are divided by a model without constraints."""
        self.measured = problem = super().refine(problem)
        if not has_families(problem.constraint):
            return problem
        free = self.free(problem) if problem.free is None else problem.free
        model, constraint = problem.model, problem.constraint

        def scatter(member: Any, rows: Rows) -> Tensor:
            placed = member.place(rows.y.long(), rows.group, rows.weight)
            found: Tensor = member.scatter(model.scores(free, rows.X).detach(), placed)
            return found

        def divided(own: Rows) -> Rows:
            scores = [model.scores(free, rows.X).detach() for rows in own.pieces()]
            predicted = hard_classes(torch.cat(scores))
            group = told_apart(constraint.space, own.y.long(), own.group, predicted)
            return replace(own, group=group)

        shrinking = filter(lambda member: member.families is not None, constraint.members)
        scatters = [problem.data.total(partial(scatter, member)) for member in shrinking]
        # Thresholds by group need rows that count the same in all of their group.
        return replace(
            problem,
            data=problem.data.kept(divided),
            constraint=shrunken(constraint, scatters),
            log_odds=None,
        )

    def hard(self, x: Tensor) -> Tensor:
        """Return the error and the measured values of the constraints at `x`."""
        found: Tensor = self.measured.evaluate(x).hard
        return found

    def fitted(self, problem: Any, x: Tensor) -> dict[str, Any]:
        return super().fitted(problem, x) | {"groups_": np.asarray(self.rows.space.groups)}

    def finish(self, stages: list[Stage]) -> None:
        """Write the fitted attributes: what is bounded by its own name, and what is measured."""
        clf, stack = self.estimator, self.measured.constraint
        values = self.hard(stages[-1].solution.iterate.x)[1:]
        super().finish(stages)
        clf.shrunken_violation_, clf.shrunken_violations_ = clf.violation_, clf.violations_
        clf.violation_, clf.violations_ = stack.measure(values), stack.measures(values)
        clf.feasible_ = bool((values <= FEASIBILITY_TOL).all())
        clf.excess_ = float(values.max()) if len(values) else np.nan


class ShrunkenSingleTraining(ShrunkenTraining, SingleTraining):
    """A fit of one plain classifier under shrunken rates, measured out of fold."""

    def hard(self, x: Tensor) -> Tensor:
        found: Tensor = self.measured.hard(self.out_of_fold(self.measured, x), x[:0])
        return found
