"""A fit of one plain classifier, which learns the decisions of a constrained head of posteriors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from fairconstrained.arrays import Floats, as_numpy
from fairconstrained.estimators._inputs import TrainingRows
from fairconstrained.estimators._training import Stage, Training
from fairconstrained.losses import class_probabilities, n_outputs
from fairconstrained.models.single_fit import SingleFit
from fairconstrained.problems.alternatives import Baseline
from fairconstrained.solvers.base import (
    FEASIBILITY_TOL,
    Iterate,
    Solver,
    check_solves,
    violation,
)
from fairconstrained.solvers.run import best_of_baselines, run

_SPARE = 0.25  # standard errors
_ROUNDS = 15  # of a head that starts at its multipliers for other slacks


class Refits(Solver):
    """Let classifiers learn from the head, and move its slacks until they keep theirs.

    The points are the parameters of the head, and the values are those of classifiers out of fold.
    """

    length = 4

    def __init__(self, training: SingleTraining):
        self.training = training

    def iterate(
        self, problem: Any, x: Tensor, dual: Tensor, tol: float, rng: Generator
    ) -> Iterator[Iterate]:
        constraint, errors, heads = problem.constraint, problem.standard_errors(x), [Baseline(x)]
        missed = torch.zeros_like(errors)  # by classifiers, of the values of their heads; a mean
        for n in range(1, self.length + 1):
            # Rates jump from fit to fit, and refits take most of the time: aim inside the slack at
            # once, and further each time.
            inside = constraint.narrowed((1 + n) * _SPARE * errors)
            aimed = replace(problem, constraint=inside.shifted(missed))
            if violation(aimed.evaluate(x).hard) > FEASIBILITY_TOL:
                x, dual = self.training.head(aimed, x, dual, heads)
                heads.append(Baseline(x))
            values = problem.hard(self.training.out_of_fold(problem, x), x.new_zeros(0))
            found = Iterate(x, values, values, dual, residual=torch.inf)
            if found.excess <= FEASIBILITY_TOL:
                found = found._replace(residual=0.0)
            yield found
            missed = missed + ((values - problem.evaluate(x).hard)[1:] - missed) / n


class SingleTraining(Training):
    """A fit of posteriors and their constrained head, from which one classifier then learns."""

    specification: SingleFit

    def check(self) -> None:
        check_solves(self.solver, self.problem_class)
        if self.estimator.warm_start:
            raise ValueError(
                f"{type(self.estimator).__name__}.warm_start must be False with SingleFit: the "
                "constrained head, where it would begin, is thrown away."
            )

    def prepare(self, rows: TrainingRows, rng: Generator) -> None:
        """Fit the posteriors, if a classifier that learns decisions can keep the constraint."""
        self.rows = rows
        self.need_labels()
        super().prepare(rows, rng)

    def solve(self, problem: Any) -> list[Stage]:
        """Train the head, and then classifiers that learn from it."""
        stages = super().solve(problem)
        problem, solution = stages[-1]
        self.of_head, self.solver = self.solver, Refits(self)
        x, dual = solution.iterate.x, solution.iterate.dual
        stage = self.run(problem, x, dual, rounds=Refits.length + 1)
        return [*stages, stage._replace(solution=replace(stage.solution, equal=solution.equal))]

    def head(
        self, problem: Any, x: Tensor, dual: Tensor, heads: Sequence[Baseline]
    ) -> tuple[Tensor, Tensor]:
        """Train the head for other slacks; if it keeps them, it is no worse than other `heads`."""
        clf, solver = self.estimator, self.of_head
        rounds = min(_ROUNDS, clf.max_iter or _ROUNDS)
        found = run(solver, problem, x, dual, self.rng, max_iter=rounds, tol=clf.tol).iterate
        # Feasible points near one that is not may have twice its error, and labels miss by more.
        if found.excess <= FEASIBILITY_TOL:
            found, _ = best_of_baselines(problem, found, heads)
        return found.x, found.dual

    def taught(self, problem: Any, w: Tensor) -> list[Floats]:
        """Return the head's probabilities of the classes for the rows seen in each fold."""
        head = problem.model.attributes(w)
        scores = (own @ head["coef_"].T + head["intercept_"] for own in self.specification.seen_)
        return [as_numpy(class_probabilities(torch.as_tensor(own))) for own in scores]

    def out_of_fold(self, problem: Any, w: Tensor) -> Tensor:
        """Return scores of rows by classifiers that learnt on other folds, (n, 1) or (n, K)."""
        taught = self.taught(problem, w)
        return torch.as_tensor(self.specification.out_of_fold(self.rows, taught)).to(w)

    def attributes(self, problem: Any, w: Tensor) -> dict[str, Any]:
        """Let the classifier learn from the head at `w`: its scores are those of the estimator."""
        unseen = as_numpy(class_probabilities(problem.model.scores(w, problem.data.X)))
        self.specification.learn(self.rows, self.taught(problem, w), unseen)
        size = n_outputs(len(self.rows.classes))
        return {"coef_": np.eye(size), "intercept_": np.zeros(size)}

    def hard_of_training_rows(self, problem: Any, x: Tensor) -> Tensor:
        scores = torch.as_tensor(self.specification.transform(self.rows.X)).to(x)
        hard: Tensor = problem.hard(scores, x[:0])
        return hard

    def finish(self, stages: list[Stage]) -> None:
        """Write the fitted attributes; the lessons stay behind."""
        super().finish(stages)
        self.specification.forget()
