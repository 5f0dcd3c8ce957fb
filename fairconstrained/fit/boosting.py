"""Fits of one booster, whose rounds are steps under the constraint."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from sklearn.utils import _safe_indexing
from torch import Tensor

from fairconstrained.arrays import Floats
from fairconstrained.constraints.moments import NEVER_BINDS, MomentConstraint
from fairconstrained.exceptions import SmallGroupWarning, warn_caller
from fairconstrained.fit.columns import build_model
from fairconstrained.fit.exact import Record, exact_steps, recorded, watchers
from fairconstrained.fit.rows import TrainingRows
from fairconstrained.fit.task import Fit, Solved, Stage, Task, check_label_based, stack
from fairconstrained.inputs.values import listed
from fairconstrained.losses import log_loss, n_outputs
from fairconstrained.models.boosting import RawScores
from fairconstrained.models.features import as_features
from fairconstrained.numerics import NEGLIGIBLE
from fairconstrained.problems.base import Evaluation, one_in
from fairconstrained.problems.erm import FairERM
from fairconstrained.problems.rows import Rows
from fairconstrained.solvers.base import Iterate, Solution, Status
from fairconstrained.solvers.boosting import Rounds
from fairconstrained.solvers.run import along_offsets

# One row of so many of each label and group is held out: multipliers follow labels that no tree has
# learnt (decisions: constraints in the boosting loop).
_ONE_IN = 5
# Distance of scores at which a library's rounding, maybe in single precision, decides labels.
_CLOSE = 1e-4


def as_boosting(task: Task) -> Task:
    """Return the task with the steps of a fit of ``Boosting``."""
    for name, value in (("solver", None), ("warm_start", False)):
        if task.params[name] is not value:
            raise ValueError(
                f"{task.name}.{name} must be {value} with Boosting, whose booster starts over and "
                f"has its own rounds; got {task.params[name]!r}."
            )
    return replace(
        exact_steps(task, learn=learn, pose=pose, solve=solve, measure=measure_all_rows),
        measured_on="the rows that the booster does not see",
        remedies="more rounds or a larger learning rate of the booster, more rows",
    )


@dataclass(frozen=True, eq=False)
class Boosted:
    """A fitted booster, with the state of its last steps."""

    constraint: MomentConstraint
    left_out: Sequence[str]
    risk: Any
    rows: Rows  # all of them, without columns
    held: Tensor  # indices of the rows held out
    start: float  # seconds
    noted: list[tuple[Record, float]] = field(default_factory=list)  # iterates and their times
    ended: Status = Status.FINISHED
    rounds: Rounds | None = None  # None: nothing could bind
    cut: Any = None  # cuts the booster to its best rounds, and shifts its scores

    def note(self, iterate: Iterate) -> None:
        """Record an iterate, for the history."""
        self.noted.append((recorded(self.constraint, iterate), time.perf_counter() - self.start))


def learn(fit: Fit) -> Fit:
    """Fit the booster under the constraint; return the fit with the rows held out as its data."""
    start = time.perf_counter()
    check_label_based(fit)
    task, rows, seed = fit.task, fit.rows, fit.rng.initial_seed() % (1 << 32)
    constraint, left_out = stack(task, rows, rows.cells, task.min_group_size)
    y, group = torch.as_tensor(rows.y), torch.as_tensor(rows.group)
    nothing = as_features(np.empty((len(y), 0)), "cpu")
    every_row = Rows((nothing,), y, group, torch.tensor(rows.weight, dtype=torch.float64))
    held = torch.arange(len(y))
    boosted = Boosted(constraint, left_out, task.risk(rows), every_row, held, start)
    if bool((constraint.slack < NEVER_BINDS).any()):
        boosted = boost(fit, boosted, seed)
    else:
        task.specification.fit_plain(rows, weight_of_loss(rows, boosted.risk), seed)
    fit = replace(fit, learnt=boosted)
    return replace(fit, data=scored(fit, fit.learnt.held))


def hold_out(fit: Fit, boosted: Boosted, seed: int) -> tuple[Tensor, Boosted]:
    """Hold out rows, and drop constraints that they cannot measure; return the other rows."""
    rows = fit.rows
    cell = rows.y * (1 + len(rows.space.groups)) + rows.groups_or_draws(seed) + 1
    seen, held = one_in(_ONE_IN, torch.as_tensor(cell), fit.rng)
    if not len(held):
        raise ValueError(
            f"Boosting holds out one row in {_ONE_IN} of each label and group, and {len(cell)} "
            "samples are too few for one. Give a few thousand, or a linear model."
        )
    measured = replace(rows, X=None, y=rows.y[held.numpy()], group=rows.group[held.numpy()])
    constraint, dropped = boosted.constraint.without_small(measured.cells.numpy(), 1)
    if dropped:
        remaining = sum(len(member.slack) > 0 for member in constraint.members)
        rest = ""
        if remaining < len(boosted.constraint.members):
            rest = " A criterion has nothing left to compare, so that feasible_ is False."
        warn_caller(
            f"Boosting holds out one row in {_ONE_IN}, and constrains only what these rows have. "
            f"It leaves out {listed(dropped, between='; ')}.{rest}",
            SmallGroupWarning,
        )
    left_out = [*boosted.left_out, *(f"{name} among the rows held out" for name in dropped)]
    return seen, replace(boosted, held=held, constraint=constraint, left_out=left_out)


def boost(fit: Fit, boosted: Boosted, seed: int) -> Boosted:
    """Run the rounds of the booster, and cut it to the best of them."""
    seen, boosted = hold_out(fit, boosted, seed)
    task, rows, weight = fit.task, boosted.rows, boosted.rows.weight
    family, booster = task.specification.family, task.specification.estimator
    seen_weight = torch.zeros_like(weight).index_copy(0, seen, weight[seen])
    n, size = len(weight), n_outputs(len(fit.rows.classes))
    factor = weight_of_loss(fit.rows, boosted.risk)
    model: Any = RawScores(n, size, like=weight)
    data, sharp = replace(rows, weight=seen_weight), boosted.constraint.sharpened()
    problem = FairERM(model, data, boosted.risk, sharp, 0.0)
    on_held = FairERM(model, rows.take(boosted.held), boosted.risk, boosted.constraint, 0.0)
    limit = min(family.n_rounds(booster), task.max_iter or family.n_rounds(booster))
    with watchers(task, limit) as callbacks:
        answers = [False]

        def watch(iterate: Iterate) -> bool:
            boosted.note(iterate)
            answers[:] = [bool(tell(iterate)) for tell in callbacks]  # no `any`: it stops early
            return any(answers)

        rounds = Rounds(
            problem,
            partial(measured, task, boosted, on_held),
            boosted.constraint.slack,
            learning_rate=family.learning_rate(booster),
            limit=limit,
            patience=family.patience(booster, n),
            watch=watch,
        )
        start = prior(fit.rows, factor, seen_weight)
        finish = task.specification.boost(fit.rows, factor, seed, start, rounds)
    cut = partial(finish, max(rounds.best, 1))
    cut(np.zeros(size))
    ended = Status.STOPPED if any(answers) else Status.FINISHED
    return replace(boosted, rounds=rounds, cut=cut, ended=ended)


def measured(task: Task, boosted: Boosted, problem: FairERM, scores: Tensor) -> Evaluation:
    """Return loss, error and violations on the rows held out, with the margin, by all scores."""
    none, scores = scores.new_zeros(0), scores.index_select(0, boosted.held)
    soft = problem.risk.soft(scores, problem.data.y, problem.data.weight)
    hard = problem.hard(scores, none)
    if task.margin:
        hard[1:] += task.margin * problem.constraint.deviations(scores, problem.placed, none)
    return Evaluation(torch.cat((soft[None], hard[1:])), hard)


def weight_of_loss(rows: TrainingRows, risk: Any) -> Floats | None:
    """Return row weights that turn the log loss into the objective, or None if all are equal."""
    n_classes = len(rows.classes)
    equal = torch.zeros(n_classes, n_outputs(n_classes), dtype=torch.float64)
    labels = torch.arange(n_classes)
    factor = (risk.loss(equal, labels) / log_loss(equal, labels)).numpy()
    weight: Floats = rows.weight * factor[rows.y]
    return weight if np.ptp(weight) > 0 else None


def prior(rows: TrainingRows, in_loss: Floats | None, weight: Tensor) -> Floats:
    """Return constant scores (K,) that give the classes their frequencies, to begin rounds at."""
    weights = weight.numpy() * (1.0 if in_loss is None else in_loss / rows.weight)
    # A label whose mistakes cost nothing has no weight, but scores must be finite.
    counts = np.bincount(rows.y, weights, len(rows.classes))
    logs = np.log(np.maximum(counts, NEGLIGIBLE * counts.sum()))
    return np.diff(logs) if len(logs) == 2 else logs - logs.mean()


def scored(fit: Fit, some: Tensor) -> Rows:
    """Return the rows at these indices, with the booster's scores as columns."""
    boosted: Boosted = fit.learnt
    table = fit.task.specification.transform(_safe_indexing(fit.rows.X, some.numpy()))
    return replace(boosted.rows.take(some), blocks=(as_features(table, "cpu"),))


def measure_all_rows(fit: Fit, problem: FairERM, x: Tensor) -> Tensor:
    """Return hard values of all rows, from the scores stored at the best round if possible."""
    boosted: Boosted = fit.learnt
    rounds, every = boosted.rounds, torch.arange(len(fit.rows.y))
    if rounds is None or rounds.latest[0] != max(rounds.best, 1):
        return replace(problem, data=scored(fit, every)).evaluate(x).hard
    table = rounds.latest[1]
    ordered = np.sort(table if table.shape[1] > 1 else np.hstack((table, 0.0 * table)), axis=1)
    close = np.flatnonzero(ordered[:, -1] - ordered[:, -2] < _CLOSE)
    if len(close):  # predicted by the booster itself
        table[close] = fit.task.specification.transform(_safe_indexing(fit.rows.X, close))
    data = replace(boosted.rows, blocks=(as_features(table, "cpu"),))
    return replace(problem, data=data).evaluate(x).hard


def pose(fit: Fit) -> tuple[FairERM, Sequence[str]]:
    """Build the problem of an intercept for the booster's scores; name groups left out."""
    boosted: Boosted = fit.learnt
    problem = FairERM(build_model(fit), fit.data, boosted.risk, boosted.constraint, 0.0)
    return problem, boosted.left_out


def solve(fit: Fit, problem: FairERM) -> Solved:
    """Return the booster as the solution, with another intercept if only that keeps the slack."""
    size, boosted, equal = n_outputs(len(fit.rows.classes)), fit.learnt, np.inf
    x = problem.model.restore({"coef_": np.eye(size), "intercept_": np.zeros(size)})
    dual = x.new_zeros(problem.n_constraints)
    if boosted.rounds is not None:  # it begins with equal predictions
        dual, equal = boosted.rounds.dual, float(boosted.rounds.values[2, 0])
    iterate = Iterate(x, *problem.evaluate(x), dual, np.inf)
    if boosted.rounds is not None and iterate.excess > 0.0:
        shifted = along_offsets(problem, iterate)
        gained, left = (equal - float(one.hard[0]) for one in (iterate, shifted))
        # Another intercept must keep nine tenths of the rounds' gain over equal predictions.
        if left >= 0.9 * gained:
            boosted.cut(problem.model.attributes(shifted.x)["intercept_"])
            boosted.rounds.latest = 0, None  # the stored scores are no longer right
            problem = replace(problem, data=scored(fit, boosted.held))
            iterate = Iterate(x, *problem.evaluate(x), dual, np.inf)
    boosted.note(iterate)
    history, times = map(list, zip(*boosted.noted, strict=True))
    record = (len(history), boosted.ended, history, times, boosted.ended)
    return Solved([Stage(problem, Solution(iterate, *record, equal=equal))])
