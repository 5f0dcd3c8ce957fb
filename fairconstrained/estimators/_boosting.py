"""A fit of one booster, each round of which is a step under the constraint."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from sklearn.utils import _safe_indexing
from torch import Generator, Tensor

from fairconstrained.arrays import Floats
from fairconstrained.constraints.moments import NEVER_BINDS
from fairconstrained.estimators._inputs import TrainingRows, given_callbacks
from fairconstrained.estimators._reporting import Record, progress, recorded
from fairconstrained.estimators._training import Stage, Training
from fairconstrained.exceptions import SmallGroupWarning, warn_caller
from fairconstrained.losses import log_loss, n_outputs
from fairconstrained.models.boosters.family import Finish
from fairconstrained.models.boosting import Boosting, RawScores
from fairconstrained.models.features import as_features
from fairconstrained.problems.base import Evaluation, one_in
from fairconstrained.problems.erm import FairERM
from fairconstrained.problems.objectives import Nothing
from fairconstrained.problems.rows import Rows
from fairconstrained.solvers.base import Iterate, Solution, Status
from fairconstrained.solvers.boosting import Rounds
from fairconstrained.solvers.run import along_offsets

_ONE_IN = 5  # rows of each label and group that are held out
_WORTH = 0.9  # of what rounds gain over equal predictions, for another intercept to be taken


class BoostingTraining(Training):
    """A fit of a booster, measured on rows that its trees do not see."""

    measured_on = "the rows that the booster does not see"
    remedies = "more rows"
    specification: Boosting
    stopped = False  # by a callback
    equal = np.inf  # error of equal predictions on the rows held out
    cut: Any = None  # makes the booster one of its best rounds, with shifted scores

    def check(self) -> None:
        for name, value in (("solver", None), ("warm_start", False)):
            if getattr(self.estimator, name) is not value:
                raise ValueError(
                    f"{type(self.estimator).__name__}.{name} must be {value} with Boosting, whose "
                    f"booster begins anew and has its own rounds; got "
                    f"{getattr(self.estimator, name)!r}."
                )

    def prepare(self, rows: TrainingRows, rng: Generator) -> None:
        """Fit the booster under the constraint; the problem is about the rows held out."""
        self.rows, self.rng = rows.standing_for_all() if rows.unknown else rows, rng
        self.need_labels()
        self.history: list[Record] = []
        self.times: list[float] = []
        self.start, self.seed = time.perf_counter(), rng.initial_seed() % (1 << 32)
        self.risk: Any = self.estimator._risk(self.rows)
        self.constraint = self.stack(rows.cells, self.estimator.min_group_size)
        y, group = torch.as_tensor(rows.y), torch.as_tensor(rows.group)
        weight = torch.tensor(rows.weight, dtype=torch.float64)
        nothing = as_features(np.empty((len(y), 0)), "cpu")
        self.all_rows = Rows((nothing,), y, group, weight)
        if bool((self.constraint.slack < NEVER_BINDS).any()):
            self.hold_out()
            self.boost()
        else:
            self.held = torch.arange(len(rows.y))
            self.specification.fit_plain(self.rows, self.weight_of_loss(), self.seed)
        self.data = self.scored()

    def hold_out(self) -> None:
        """Choose rows, and constrain what can be measured on them."""
        n_groups = len(self.rows.space.groups)
        cell = self.rows.y * (1 + n_groups) + self.rows.groups_or_draws(self.seed) + 1
        self.seen, self.held = one_in(_ONE_IN, torch.as_tensor(cell), self.rng)
        here = self.held.numpy()
        held = replace(self.rows, X=None, y=self.rows.y[here], group=self.rows.group[here])
        self.constraint, dropped = self.constraint.without_small(held.cells.numpy(), 1)
        if dropped:
            warn_caller(
                f"Boosting holds out one row in {_ONE_IN}, and constrains only what these rows "
                f"have. It leaves out {'; '.join(dropped)}.",
                SmallGroupWarning,
            )

    def boost(self) -> None:
        """Let the booster take its rounds, and keep those up to the best."""
        family, booster = self.specification.family, self.specification.estimator
        n, size = self.all_rows.n_rows, n_outputs(len(self.rows.classes))
        weight = self.all_rows.weight
        of_seen = torch.zeros_like(weight).index_copy(0, self.seen, weight[self.seen])
        data = replace(self.all_rows, weight=of_seen)
        model: Any = RawScores(n, size, like=weight)
        problem = FairERM(model, data, Nothing(), self.constraint.sharpened(), 0.0)
        self.on_held = replace(
            problem, data=self.all_rows.take(self.held), risk=self.risk, constraint=self.constraint
        )
        limit = min(family.n_rounds(booster), self.estimator.max_iter or family.n_rounds(booster))
        with progress(type(self.estimator).__name__, limit, self.estimator.verbose) as tick:
            watchers = [*(given_callbacks(self.estimator.callbacks) or []), tick]
            rounds = Rounds(
                *(problem, self.measured, self.constraint.slack),
                learning_rate=family.learning_rate(booster),
                limit=limit,
                patience=family.patience(booster, n),
                watch=partial(self.watched, watchers),
            )
            finish: Finish = self.specification.boost(
                self.rows, self.weight_of_loss(), self.seed, self.prior(of_seen), rounds
            )
        self.equal, self.dual = float(rounds.values[2, 0]), rounds.dual
        self.cut = partial(finish, max(rounds.best, 1))
        self.cut(np.zeros(size))

    def measured(self, scores: Tensor) -> Evaluation:
        """Loss, error and violations of the rows held out, with the margin, from all scores."""
        problem, none = self.on_held, scores.new_zeros(0)
        scores = scores.index_select(0, self.held)
        soft = problem.risk.soft(scores, problem.data.y, problem.data.weight)
        hard = problem.hard(scores, none)
        if self.margin:
            hard[1:] += self.margin * problem.constraint.deviations(scores, problem.placed, none)
        return Evaluation(torch.cat((soft[None], hard[1:])), hard)

    def watched(self, watchers: list[Any], iterate: Iterate) -> bool:
        """Note an iterate and tell callbacks; return whether one of them asks to stop."""
        self.noted(iterate)
        self.stopped = any([bool(tell(iterate)) for tell in watchers])  # noqa: C419 (tell all)
        return self.stopped

    def noted(self, iterate: Iterate) -> None:
        """Record an iterate in the history."""
        self.history.append(recorded(self.constraint, iterate))
        self.times.append(time.perf_counter() - self.start)

    def weight_of_loss(self) -> Floats | None:
        """Weights of rows in the log loss, with what the objective makes of labels, or None."""
        n_classes = len(self.rows.classes)
        equal = torch.zeros(n_classes, n_outputs(n_classes), dtype=torch.float64)
        labels = torch.arange(n_classes)
        factor = (self.risk.loss(equal, labels) / log_loss(equal, labels)).numpy()
        weight: Floats = self.rows.weight * factor[self.rows.y]
        return weight if np.ptp(weight) > 0 else None

    def prior(self, weight: Tensor) -> Floats:
        """Scores that give the classes their frequencies, (K,), at which rounds begin."""
        of_loss = self.weight_of_loss()
        weights = weight.numpy() * (1.0 if of_loss is None else of_loss / self.rows.weight)
        logs = np.log(np.bincount(self.rows.y, weights, len(self.rows.classes)))
        return np.diff(logs) if len(logs) == 2 else logs - logs.mean()

    def scored(self) -> Rows:
        """The rows held out, with the booster's scores as columns."""
        table = self.specification.transform(_safe_indexing(self.rows.X, self.held.numpy()))
        return replace(self.all_rows.take(self.held), blocks=(as_features(table, "cpu"),))

    def pose(self) -> FairERM:
        """Build the problem of an intercept for the booster's scores."""
        return FairERM(self.model(), self.data, self.risk, self.constraint, 0.0)

    def refine(self, problem: FairERM) -> FairERM:
        """Return the problem as it is: the booster has solved it."""
        return problem

    def solve(self, problem: FairERM) -> list[Stage]:
        """Return the booster, with another intercept if only that keeps the slack."""
        size = n_outputs(len(self.rows.classes))
        x = problem.model.restore({"coef_": np.eye(size), "intercept_": np.zeros(size)})
        dual = getattr(self, "dual", x.new_zeros(problem.n_constraints))
        iterate = Iterate(x, *problem.evaluate(x), dual, np.inf)
        if self.cut is not None and iterate.excess > 0.0:
            shifted = along_offsets(problem, iterate)
            gained, left = (self.equal - float(own.hard[0]) for own in (iterate, shifted))
            if left >= _WORTH * gained:
                self.cut(problem.model.attributes(shifted.x)["intercept_"])
                problem = replace(problem, data=self.scored())
                iterate = Iterate(x, *problem.evaluate(x), dual, np.inf)
        self.noted(iterate)
        status = Status.STOPPED if self.stopped else Status.FINISHED
        record = (len(self.history), status, self.history, self.times, status)
        return [Stage(problem, Solution(iterate, *record, equal=self.equal))]
