"""Fits of one plain classifier, which learns the decisions of a constrained head of posteriors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from fairconstrained.arrays import Floats, as_numpy
from fairconstrained.fit import columns, exact
from fairconstrained.fit.task import Fit, Solved, Task, check_label_based
from fairconstrained.losses import class_probabilities, n_outputs
from fairconstrained.problems.baselines import Baseline
from fairconstrained.problems.erm import FairERM
from fairconstrained.solvers.base import Iterate, Solver, check_solves, violation
from fairconstrained.solvers.run import best_of_baselines, run


def as_refits(task: Task) -> Task:
    """Return the task with the steps of a fit of ``SingleFit``."""
    task = exact.exact_steps(
        task, learn=learn, solve=solve, attributes=attributes, measure=measure_training_rows
    )
    check_solves(task.solver, FairERM)
    if task.params["warm_start"]:
        raise ValueError(
            f"{task.name}.warm_start must be False with SingleFit: the constrained head that it "
            "would start from is not kept."
        )
    return task


def learn(fit: Fit) -> Fit:
    """Fit the posteriors, after a check that the criteria are about predicted labels."""
    check_label_based(fit)
    return columns.learn(fit)


def solve(fit: Fit, problem: Any) -> Solved:
    """Train the head, and then classifiers that learn from it."""
    stages, looser = exact.solve(fit, problem)
    problem, solution = stages[-1]
    x, dual = solution.iterate.x, solution.iterate.dual
    solver, rounds = Refits(fit), Refits.length + 1
    stage = exact.run_watched(fit, problem, x, dual, rounds=rounds, solver=solver)
    stage = stage._replace(solution=replace(stage.solution, equal=solution.equal))
    return Solved([*stages, stage], looser)


class Refits(Solver):
    """Fit classifiers to the head's decisions, and move its slacks until they keep the user's.

    The points are the parameters of the head, and the values are of classifiers out of fold.
    """

    length = 4

    def __init__(self, fit: Fit):
        self.fit = fit

    def iterate(
        self, problem: Any, x: Tensor, dual: Tensor, tol: float, rng: Generator
    ) -> Iterator[Iterate]:
        constraint, errors, heads = problem.constraint, problem.standard_errors(x), [Baseline(x)]
        missed = torch.zeros_like(errors)  # mean excess of classifiers' values over those of heads
        for n in range(1, self.length + 1):
            # Rates jump from fit to fit, and refits take most of the time: aim inside the slack at
            # once, and further each time.
            # What labels miss is noise: a quarter of a standard error more in each round.
            inside = constraint.narrowed((1 + n) * 0.25 * errors)
            aimed = replace(problem, constraint=inside.shifted(missed))
            if violation(aimed.evaluate(x).hard) > 0.0:
                x, dual = trained_head(self.fit, aimed, x, dual, heads)
                heads.append(Baseline(x))
            targets = probabilities_of_seen(self.fit, problem, x)
            scores = self.fit.task.specification.out_of_fold(self.fit.rows, targets)
            values = problem.hard(torch.as_tensor(scores).to(x), x.new_zeros(0))
            iterate = Iterate(x, values, values, dual, residual=torch.inf)
            if iterate.feasible:
                iterate = iterate._replace(residual=0.0)
            yield iterate
            missed = missed + ((values - problem.evaluate(x).hard)[1:] - missed) / n


def trained_head(
    fit: Fit, problem: Any, x: Tensor, dual: Tensor, heads: Sequence[Baseline]
) -> tuple[Tensor, Tensor]:
    """Train the head for other slacks; if it keeps them, return the best of it and the `heads`."""
    task = fit.task
    # A head starts at its multipliers for other slacks; solved to the end heads are no better and
    # take twice as long.
    rounds_of_head = 15
    rounds = min(rounds_of_head, task.max_iter or rounds_of_head)
    head = run(task.solver, problem, x, dual, fit.rng, max_iter=rounds, tol=task.tol).iterate
    # Feasible points near one that is not may have twice its error, and labels miss by more.
    if head.feasible:
        head, _ = best_of_baselines(problem, head, heads)
    return head.x, head.dual


def probabilities_of_seen(fit: Fit, problem: Any, w: Tensor) -> list[Floats]:
    """Return the head's probabilities of the classes for the rows seen in each fold."""
    head = problem.model.attributes(w)
    scores = (seen @ head["coef_"].T + head["intercept_"] for seen in fit.task.specification.seen_)
    return [as_numpy(class_probabilities(torch.as_tensor(fold))) for fold in scores]


def attributes(fit: Fit, problem: Any, w: Tensor) -> dict[str, Any]:
    """Fit the classifier to the head at `w`; return attributes that pass its scores through."""
    unseen = as_numpy(class_probabilities(problem.model.scores(w, problem.data.X)))
    fit.task.specification.learn(fit.rows, probabilities_of_seen(fit, problem, w), unseen)
    size = n_outputs(len(fit.rows.classes))
    return {"coef_": np.eye(size), "intercept_": np.zeros(size)}


def measure_training_rows(fit: Fit, problem: Any, x: Tensor) -> Tensor:
    """Return hard values of the classifier on its training rows, as the last step of the fit."""
    fit.task.specification.forget()
    scores = torch.as_tensor(fit.task.specification.transform(fit.rows.X)).to(x)
    hard: Tensor = problem.hard(scores, x[:0])
    return hard
