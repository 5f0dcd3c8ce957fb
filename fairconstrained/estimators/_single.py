"""A fit of one plain classifier to the costs of a constrained problem."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Generator, Tensor
from torch.nn.functional import one_hot

from fairconstrained.constraints.stack import stacked
from fairconstrained.estimators._inputs import TrainingRows
from fairconstrained.estimators._training import Stage, Training
from fairconstrained.models.features import as_features
from fairconstrained.models.linear import LinearModel
from fairconstrained.models.single_fit import SingleFit
from fairconstrained.problems.costs import (
    costs_of_rows,
    expected_costs,
    expected_values,
    multipliers,
)
from fairconstrained.solvers.base import FEASIBILITY_TOL, Iterate, Solver

_REFITS = 6  # on all folds, at most
_SPARE = 0.25  # standard errors


class Refits(Solver):
    """Refit the classifier at multipliers that its own rates correct, until it keeps the slacks.

    Posteriors say how rates follow multipliers, and each refit how far they are wrong. The points
    are scores out of fold.
    """

    def __init__(self, training: SingleTraining):
        self.training = training

    def iterate(
        self, problem: Any, x: Tensor, dual: Tensor, tol: float, rng: Generator
    ) -> Iterator[Iterate]:
        training, excess = self.training, torch.zeros_like(dual)
        n_classes = len(training.rows.classes)
        label, parts = problem.data.X.to_dense().tensor_split([n_classes], dim=1)
        for n in itertools.count():
            # Whole steps at first, then half ones: rates may follow more than they should.
            target = multipliers(problem, label, parts, excess)
            dual = target if n < 2 else 0.5 * (dual + target)
            scores = training.out_of_fold(problem, dual)
            judged, w = training.judged(problem, scores)
            soft, hard = judged.evaluate(w)
            refit = Iterate(scores.reshape(-1), soft, hard, dual, residual=torch.inf)
            yield refit._replace(residual=0.0) if refit.excess <= FEASIBILITY_TOL else refit
            least = expected_costs(problem, label, parts, dual).argmin(dim=1)
            predicted = expected_values(problem, parts, one_hot(least, n_classes).to(label))
            # Rates jump a little from fit to fit, so aim further inside each time.
            spare = (n + 1) * _SPARE * judged.standard_errors(w)
            spare = torch.minimum(spare, 0.5 * problem.constraint.slack)
            excess = hard[1:] - predicted + spare.clamp_min(0.0)


class SingleTraining(Training):
    """A fit of one classifier, in the steps of any other: its columns are posteriors at first."""

    specification: SingleFit

    def default_solver(self) -> Solver:
        return Refits(self)

    def check(self) -> None:
        clf, name = self.estimator, type(self.estimator).__name__
        refused = (
            ("solver must be None", clf.solver is not None),
            ("warm_start must be False", clf.warm_start),
        )
        for words, is_wrong in refused:
            if is_wrong:
                raise ValueError(
                    f"{name}.{words} with SingleFit: its classifier is fitted anew for each choice "
                    "of multipliers."
                )

    def prepare(self, rows: TrainingRows, rng: Generator) -> None:
        """Fit the posteriors, if costs of predicted labels can express the constraint."""
        self.rows, self.seed = rows, rng.initial_seed() % (1 << 32)
        kept = self.kept(rows.cells, self.estimator.min_group_size)
        stack = stacked(rows.space, [member for member, _ in kept])
        if not stack.of_labels:
            names = ", ".join(member.name for member in stack.members if not member.of_labels)
            raise ValueError(
                "SingleFit needs criteria on predicted labels, of which each prediction has its "
                f"cost; got {names}. Posteriors takes it."
            )
        self.folds = self.specification.folds(rows, self.seed)
        super().prepare(rows, rng)

    def model(self) -> LinearModel:
        """Build the model whose only columns are its scores."""
        n_classes = len(self.rows.classes)
        ones = self.data.weight.new_ones(1 if n_classes == 2 else n_classes)
        return LinearModel(len(ones), torch.zeros_like(ones), ones, fit_intercept=False)

    def refine(self, problem: Any) -> Any:
        """Return the problem itself."""
        return problem

    def run(self, problem: Any, x: Tensor, dual: Tensor, rounds: int | None = None) -> Stage:
        """Refit until the slacks are kept; the problem that is solved is that of the scores."""
        found = super().run(problem, x, dual, rounds or self.estimator.max_iter or _REFITS).solution
        scores = found.iterate.x.reshape(problem.n_rows, -1)
        judged, w = self.judged(problem, scores)
        return Stage(judged, replace(found, iterate=found.iterate._replace(x=w), better=None))

    def out_of_fold(self, problem: Any, dual: Tensor) -> Tensor:
        """Scores of the classifier at these multipliers, out of fold, (n, 1) or (n, K)."""
        costs = costs_of_rows(problem, dual).cpu().numpy()
        return torch.as_tensor(
            self.specification.out_of_fold(self.rows, costs, self.folds, self.seed)
        ).to(self.data.weight)

    def judged(self, problem: Any, scores: Tensor) -> tuple[Any, Tensor]:
        """The problem in which rows have these scores, and the parameters that leave them so."""
        data = replace(self.data, blocks=(as_features(scores, self.estimator.device),))
        return replace(problem, data=data), torch.eye(scores.shape[1]).to(scores).reshape(-1)

    def finish(self, stages: list[Stage]) -> None:
        """Fit the classifier to the costs of all rows, and write the fitted attributes."""
        problem, solution = stages[-1]
        costs = costs_of_rows(problem, solution.iterate.dual).cpu().numpy()
        self.specification.fit_single(self.rows, costs, self.seed)
        super().finish(stages)
