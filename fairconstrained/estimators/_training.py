"""A fit as an object: its steps, and the state that they share, until they end on the estimator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import torch
from sklearn.base import clone
from torch import Generator, Tensor

from fairconstrained.arrays import Ints
from fairconstrained.blocks import Blocks
from fairconstrained.constraints.moments import MomentConstraint
from fairconstrained.constraints.notions import naming
from fairconstrained.constraints.stack import stacked
from fairconstrained.distributed import Workers, one_thread, seeded
from fairconstrained.engines import Table
from fairconstrained.estimators._inputs import (
    Domains,
    Given,
    TrainingRows,
    checked_rows,
    given_callbacks,
    own_rows,
    random_seed,
)
from fairconstrained.estimators._parts import agreed, learnt_columns, rows_of_blocks
from fairconstrained.estimators._reporting import (
    NEARLY_EQUAL,
    Record,
    progress,
    recorded,
    report,
    report_equal,
    warn_of_undone,
)
from fairconstrained.estimators._settings import undone_settings
from fairconstrained.estimators._tables import (
    RowsOfTable,
    learnt_from_some,
    prepared,
    rows_of_table,
)
from fairconstrained.exceptions import ConstraintNotSatisfiedWarning, SmallGroupWarning, warn_caller
from fairconstrained.inputs.samples import check_samples
from fairconstrained.losses import n_outputs
from fairconstrained.models.features import Features, as_features
from fairconstrained.models.perceptron import PerceptronModel, auditable
from fairconstrained.models.posteriors import Posteriors
from fairconstrained.models.short_forms import as_specification
from fairconstrained.models.specification import Linear
from fairconstrained.privacy.accounting import PrivacyGuarantee
from fairconstrained.problems.alternatives import ERROR_TOL
from fairconstrained.problems.erm import FairERM
from fairconstrained.problems.rows import Rows
from fairconstrained.solvers.augmented_lagrangian import AugmentedLagrangian
from fairconstrained.solvers.base import (
    FEASIBILITY_TOL,
    NEARLY,
    Iterate,
    Solution,
    Solver,
    Status,
    check_solves,
    solves,
)
from fairconstrained.solvers.early_stopped_sgda import EarlyStoppedSGDA
from fairconstrained.solvers.run import run

if TYPE_CHECKING:
    from fairconstrained.estimators._base import FairClassifier

# Rounds after which standard errors differ by a few percent from those at the solution.
ROUGH = 4
# Added to slacks, one after another, within which hardly anything is better than equal scores.
MORE_SLACK = (0.01, 0.04)
_FROM_VALIDATION = ("n_features_in_", "feature_names_in_")


class Stage(NamedTuple):
    """A problem and its solution."""

    problem: Any
    solution: Solution


class Training:
    """A fit without privacy, in steps: check, read, prepare, pose, refine, solve, finish."""

    is_private = False
    measured_on = "the training data"  # what warnings say values are about, and what may help
    remedies = "more iterations (max_iter), a richer model"
    hidden: ClassVar[dict[str, Any]] = {}  # of the rows, from the specification of the model
    counted = ""  # how rows were counted, in warnings
    bar: ClassVar[dict[str, Any]] = {}  # options of the progress bar
    domains = Domains()
    spent: PrivacyGuarantee | None = None  # by what may have been released so far
    watch: Callable[..., object] | None = None  # of a problem and each iterate
    rows: TrainingRows
    data: Rows  # the rows with the columns of the model, as problems see them
    rng: Generator  # the only source of randomness, except for dropout in networks
    left_out: Sequence[str] = ()  # who is not compared, and why
    looser: Stage | None = None  # with larger slacks, where equal scores are nearly as good

    def __init__(self, estimator: FairClassifier):
        self.estimator = estimator
        self.specification = clone(as_specification(estimator.model))
        self.is_linear = self.specification.is_linear
        self.is_warm = estimator.warm_start and hasattr(estimator, "classes_")
        self.solver: Solver = estimator.solver or self.default_solver()
        self.alpha = float(estimator.alpha)
        self.margin: float = getattr(estimator, "margin", 0.0)

    def default_solver(self) -> Solver:
        """Return the solver to use if none is given."""
        return AugmentedLagrangian() if self.is_linear else EarlyStoppedSGDA()

    @property
    def problem_class(self) -> type:
        """The class of the problem, which says what it offers to solvers."""
        return FairERM

    @property
    def n_rows(self) -> int:
        """Number of rows of all workers."""
        return int(self.rows.cells.sum())

    def check(self) -> None:
        """Check combinations of parameters, before any work."""
        if self.specification.needs_label_rates:
            raise ValueError(
                f"{type(self.estimator).__name__}.model cannot be "
                f"{type(self.specification).__name__}, which needs rates of predicted labels: "
                "RateConstrainedClassifier without epsilon."
            )
        check_solves(self.solver, self.problem_class)
        costs = getattr(self.estimator, "costs", None)
        if costs is None and isinstance(self.specification, Posteriors):
            warn_of_undone(undone_settings(self.specification.estimator))

    def read(self, given: Given, workers: Workers) -> TrainingRows:
        """Validate the samples; return those of positive weight, labels and groups as indices."""
        with workers.agreeing():
            if isinstance(given.X, Table):
                rows: TrainingRows = rows_of_table(self.estimator, given)
            else:
                check_samples(**given._asdict())
                read = rows_of_blocks if isinstance(given.X, Blocks) else own_rows
                rows = read(self.estimator, given)
            if given.n_control:
                rows = replace(rows, n_control=given.n_control)
        if workers.size > 1:
            rows = agreed(self.estimator, rows, workers)
        return checked_rows(self.estimator, self.domains.of(rows))

    def train(self, rows: TrainingRows) -> None:
        """Fit the estimator to these rows."""
        with self.seeded(random_seed(self.estimator.random_state)) as rng:
            self.prepare(rows, rng)
            with one_thread():
                problem = self.pose()
                check_solves(self.solver, problem, in_memory=self.data.in_memory)
                self.solver.check(problem)
                stages = self.solve(self.refine(problem))
                self.finish(stages)
            self.measure_training_rows(*stages[-1])

    def prepare(self, rows: TrainingRows, rng: Generator) -> None:
        """Fit the specification of the model, and put its columns on the device."""
        if rows.unknown and not self.is_private:
            rows = rows.standing_for_all()
        self.rows, self.rng = rows, rng
        if isinstance(rows, RowsOfTable):
            own = []
            if isinstance(self.specification, Posteriors):
                own = learnt_from_some(self.specification, rows, self.part_of_cell, rng)
            self.data = prepared(self.estimator, self.specification, rows, own)
            return
        shown = replace(rows, **self.hidden)
        if rows.workers.size > 1 and isinstance(self.specification, Posteriors):
            learnt = learnt_columns(self.specification, rows, self.part_of_cell, rng)
            table, self.specification = learnt
        else:
            table = self.specification.fit_transform(shown, self.part_of_cell, rng)
        weight = rows.weight
        least, largest = rows.weight_range or (weight.min(), weight.max())
        if least < largest:  # as multiples of the largest, up to a factor of two: exactly
            weight = np.ldexp(weight, 1 - np.frexp(largest)[1])
        elif weight[0] != 1:
            weight = np.ones_like(weight)
        if weight.strides == (0,):  # one number in memory, and it stays so
            weight = weight[:1].copy()
        as_tensor = partial(torch.as_tensor, device=self.estimator.device)
        y, group, weights = as_tensor(rows.y), as_tensor(rows.group), as_tensor(weight)
        self.data = Rows(self.blocks(table), y, group, weights.expand(len(y)), rows.workers)

    def pose(self) -> Any:
        """Build the problem without solving anything; here that of the estimator's mean loss."""
        stack = self.stack(self.rows.cells, self.estimator.min_group_size)
        return FairERM(self.model(), self.data, self.estimator._risk(self.rows), stack, self.alpha)

    def refine(self, problem: Any) -> Any:
        """Return the final problem, after solving a simpler one if that is needed."""
        if self.is_linear:
            if not problem.n_constraints:
                return problem
            log_odds = self.specification.log_odds
            if log_odds is not None and len(self.rows.classes) == 2:
                columns = np.arange(self.data.X.shape[1])
                of_column = {"coef_": columns[None] == log_odds, "intercept_": [0.0]}
                problem = replace(problem, log_odds=problem.model.restore(of_column))
            return replace(problem, free=self.free(problem))
        model = problem.model
        contained = isinstance(model, PerceptronModel) and model.contains_linear
        if self.is_warm or not contained or not solves(EarlyStoppedSGDA(), problem):
            return problem  # other solvers begin where they say themselves
        return replace(problem, simpler=self.linear_start)

    def solve(self, problem: Any) -> list[Stage]:
        """Solve the problem; before that roughly, where a margin needs the errors at a solution."""
        x = problem.start()
        dual = x.new_zeros(problem.n_constraints)
        if self.is_warm:
            x, dual = self.warm(problem, x, dual)
        if not (self.margin > 0 and problem.constraint.members):
            stages = [self.run(problem, x, dual)]
        else:
            stages = self.run_narrowed(problem, x, dual)
        last = stages[-1].solution
        if last.equal - float(last.iterate.hard[0]) < NEARLY_EQUAL:
            stages += self.from_looser(stages[-1])
        return stages

    def run_narrowed(self, problem: Any, x: Tensor, dual: Tensor) -> list[Stage]:
        """Run roughly, and again with slacks that are smaller by standard errors at that point."""
        rough = self.run(problem, x, dual, rounds=min(ROUGH, self.estimator.max_iter or ROUGH))
        point = rough.solution.iterate
        stack, errors = problem.constraint, self.margin * problem.standard_errors(point.x)
        slack = stack.slack.to(errors)  # on the device of the rows
        # Values that are not those of labels are never exactly equal: a little is left.
        most = torch.where(slack > 0, (slack - NEARLY).clamp_min(0.0), torch.inf)
        narrow = stack.narrowed(errors.minimum(most))
        nothing = torch.nonzero((errors >= slack) & (slack > 0))[:, 0].tolist()
        if nothing:
            worst = max(nothing, key=lambda j: float(errors[j] - slack[j]))
            error = float(errors[worst]) / self.margin
            warn_caller(
                f"margin={self.margin:g} leaves nothing of the slack for {len(nothing)} of "
                f"{len(stack.slack)} constraints, such as {stack.describe(worst)} (slack "
                f"{float(stack.slack[worst]):g}, standard error {error:.3g}): they are trained for "
                "no gap at all, and on new data they may exceed the slack nevertheless. Use more "
                "rows, a larger slack or a smaller margin.",
                ConstraintNotSatisfiedWarning,
            )
        if self.is_linear:  # a network that starts at a rough solution ends at a larger error
            x, dual = point.x, point.dual
        return [rough, self.run(replace(problem, constraint=narrow), x, dual)]

    def from_looser(self, stage: Stage) -> list[Stage]:
        """Solve with larger slacks until that pays off, and again from there; none if not better.

        The constraint may not be the reason: then the model without it is hardly better than equal
        scores, and nothing is done.
        """
        problem, solution = stage
        below = solution.equal - NEARLY_EQUAL
        if problem.free is None or solution.ended is Status.STOPPED:
            return []
        clf, zero = self.estimator, torch.zeros_like(solution.iterate.dual)
        hard = problem.evaluate(problem.variables(problem.free)).hard
        if float(hard[0]) >= below:
            return []
        enough = float(hard[1 : 1 + len(zero)].max())  # the constraint binds no longer
        for more in (*(some for some in MORE_SLACK if some < enough), enough):
            wider = replace(problem, constraint=problem.constraint.narrowed(zero - more))
            options = {"max_iter": clf.max_iter, "tol": clf.tol, "known": wider.baselines()}
            found = run(self.solver, wider, problem.start(), zero, self.rng, **options)
            self.looser, start = Stage(wider, found), found.iterate
            if start.excess <= FEASIBILITY_TOL and float(start.hard[0]) < below:
                break
        again = self.run(problem, start.x, start.dual)
        candidate = again.solution.iterate
        lower = float(candidate.hard[0]) < float(solution.iterate.hard[0]) - ERROR_TOL
        return [again] if lower and candidate.excess <= FEASIBILITY_TOL else []

    def finish(self, stages: list[Stage]) -> None:
        """Write the fitted attributes, and warn."""
        clf = self.estimator
        for name in tuple(vars(clf)):
            if name.endswith("_") and name not in _FROM_VALIDATION:
                delattr(clf, name)  # of a former fit, perhaps with another model
        problem, solution = stages[-1]
        stack, iterate = problem.constraint, solution.iterate
        w = iterate.x[: problem.model.n_params]
        problem.model.update_batch_norm(w, problem.data.X)
        for name, value in self.fitted(problem, iterate.x).items():
            setattr(clf, name, value)
        clf.converged_ = solution.status is Status.CONVERGED
        clf.status_ = solution.words
        clf.residual_ = iterate.residual
        clf.multipliers_ = iterate.dual.cpu().numpy().copy()
        # Values that a penalty replaces are measured, and have no multipliers.
        clf.constraints_ = list(map(stack.describe, range(len(iterate.dual))))
        hard = iterate.hard[1:]
        clf.violations_, clf.violation_ = stack.measures(hard), stack.measure(hard)
        clf.training_violation_ = clf.violation_
        # A margin narrows the slacks in training only.
        wider = (stack.slack - stages[0].problem.constraint.slack).to(hard)
        excess = (hard[: len(wider)] + wider)[: len(iterate.dual)]
        undefined = {} if self.is_private else stack.undefined(hard)
        clf.left_out_ = [f"{words}{self.counted}" for words in self.left_out]
        clf.left_out_ += dict.fromkeys(undefined.values())
        compares = len(stack.members) == len(clf._notions())
        compares &= not np.isnan([clf.violation_, *clf.violations_.values()]).any()
        excess = excess.index_fill(0, excess.new_tensor([*undefined]).long(), -torch.inf)
        clf.feasible_ = compares and bool((excess <= FEASIBILITY_TOL).all())
        errors = self.errors_of_estimates(problem).to(excess)
        worst = int((excess - errors).argmax()) if len(excess) else None
        clf.excess_ = np.nan if worst is None or worst in undefined else float(excess[worst])
        clf.excess_error_ = 0.0 if worst is None else float(errors[worst])
        clf.privacy_ = self.spent
        records, times, clf.n_iter_ = [], np.zeros(1), 0
        for _, own in stages:  # times go on from one to the next
            records += own.history
            times = np.append(times, times[-1] + np.array(own.times))
            clf.n_iter_ += own.n_iter
        columns = np.array(records).T
        clf.history_ = {**dict(zip(Record._fields, columns, strict=True)), "time": times[1:]}
        report(self, solution, worst, undefined)
        if clf.feasible_ and solution.equal - float(iterate.hard[0]) < NEARLY_EQUAL:
            report_equal(clf, stages[-1], self.looser, self.margin > 0)  # never of a private fit

    def measure_training_rows(self, problem: Any, solution: Solution) -> None:
        """Measure a wrapped classifier on its training rows, with the threads of the user."""
        if isinstance(self.specification, Posteriors) and not self.is_private:
            hard = self.hard_of_training_rows(problem, solution.iterate.x)
            self.estimator.training_violation_ = problem.constraint.measure(hard[1:])

    def hard_of_training_rows(self, problem: Any, x: Tensor) -> Tensor:
        """Return hard values by copies of a classifier that are fitted to the rows, and predict."""
        if isinstance(self.rows, RowsOfTable):
            data: Rows = prepared(self.estimator, self.specification, self.rows, [])
        else:
            columns = self.specification.transform(self.rows.X)
            data = replace(self.data, blocks=self.blocks(columns))
        with one_thread():
            hard: Tensor = replace(problem, data=data).evaluate(x).hard
        return hard

    def seeded(self, seed: int) -> AbstractContextManager[Generator]:
        """A context with the generator of a fit; only modules need torch's global one as well."""
        if self.is_linear:
            return nullcontext(torch.Generator().manual_seed(seed))
        return seeded(seed, self.estimator.device)

    def blocks(self, table: Any) -> Any:
        """The columns of the model, block by block, from the specification's table."""
        group = self.rows.group
        if not isinstance(table, Blocks):
            return (self.features(table, group),)

        def columns() -> Iterator[Features]:  # made whenever a block is read
            stop = 0
            for X in table:
                start, stop = stop, stop + X.shape[0]
                yield self.features(X, group[start:stop])

        return Blocks(columns)

    def features(self, table: Any, group: Ints) -> Features:
        """The columns of some rows, from the specification's table."""
        return as_features(table, self.estimator.device)

    def model(self) -> Any:
        """Build the model of flat parameters that solvers see."""
        outputs = n_outputs(len(self.rows.classes))
        return self.specification.build(self.data.X, self.data.weight, outputs, self.alpha)

    def need_labels(self) -> None:
        """Raise ValueError for criteria that are not about predicted labels."""
        kept = self.kept(self.rows.cells, self.estimator.min_group_size)
        others = [own.name for own, _ in kept if not stacked(self.rows.space, [own]).label_based]
        if others:
            raise ValueError(
                f"{type(self.specification).__name__} needs criteria on predicted labels; got "
                f"{', '.join(others)}. Posteriors takes it."
            )

    def kept(self, counts: Tensor, least: int | str) -> list[Any]:
        """Each constraint without the values that are not compared, and words for these."""
        space, kept = self.rows.space, []
        for notion in self.estimator._notions():
            if len(space.groups) > 1 or not notion.needs_groups:
                bound = self.estimator._bound(naming(notion, self.rows.favourable), space)
                kept.append(bound.without_small(counts.cpu().numpy(), least))
        return kept

    def stack(self, counts: Tensor, least: int | str) -> MomentConstraint:
        """Stack the constraints without values that are not compared, which a warning names."""
        members, kept = [], self.kept(counts, least)
        self.left_out = [words for _, dropped in kept for words in dropped]
        for member, dropped in kept:
            if dropped:
                rest = "says nothing about them"
                if not len(member.slack):
                    rest = "has nothing left to compare, so that feasible_ is False"
                warn_caller(
                    f"{member.name} leaves out {'; '.join(dropped)}{self.counted} "
                    f"(min_group_size={least!r}). The constraint {rest}.",
                    SmallGroupWarning,
                )
            if len(member.slack):
                members.append(member)
        return stacked(self.rows.space, members)

    def stack_of_all(self, counts: Tensor, least: int | str) -> MomentConstraint:
        """Stack the constraints without small groups, before any of them is dropped."""
        return stacked(self.rows.space, [member for member, _ in self.kept(counts, least)])

    def part_of_cell(self) -> Any:
        """The part of each label and group in the constraints; -1 for none."""
        stack = self.stack_of_all(self.rows.cells, self.estimator.min_group_size)
        return stack.part_of_cell.numpy()

    def run(self, problem: Any, x: Tensor, dual: Tensor, rounds: int | None = None) -> Stage:
        """Run the solver; runs that are capped at so many rounds are compared with no baseline."""
        clf = self.estimator
        max_iter, watchers = rounds or clf.max_iter, given_callbacks(clf.callbacks) or []
        if self.watch is not None:
            watchers.append(partial(self.watch, problem))
        compared = rounds is None and not self.is_private and len(dual)
        length = max_iter or self.solver.length
        with progress(type(clf).__name__, length, clf.verbose, **self.bar) as tick:
            asked = self.rows.workers.agreed_callbacks([*watchers, tick])
            solution = run(
                self.solver,
                problem,
                x,
                dual,
                self.rng,
                max_iter=max_iter,
                tol=clf.tol,
                callbacks=asked,
                known=problem.baselines() if compared else (),
                record=partial(recorded, problem.constraint),
            )
        return Stage(problem, solution)

    def solved(self, problem: Any, solver: Solver) -> Iterate:
        """Return a solution of a simpler problem, which callbacks do not see."""
        x, dual = problem.start(), self.data.weight.new_zeros(problem.n_constraints)
        return run(
            solver, problem, x, dual, self.rng, max_iter=None, tol=self.estimator.tol
        ).iterate

    def free(self, problem: Any) -> Tensor:
        """Return a solution without constraints."""
        free = replace(problem, constraint=stacked(self.rows.space, []))
        return self.solved(free, AugmentedLagrangian() if self.is_linear else self.solver).x

    def linear_start(self, some: Any) -> tuple[Tensor, Tensor]:
        """Return the perceptron that is the constrained linear model of the rows of `some`."""
        outputs = n_outputs(len(self.rows.classes))
        model: Any = Linear().build(some.data.X, some.data.weight, outputs, some.alpha)
        found = self.solved(replace(some, model=model, simpler=None), AugmentedLagrangian())
        w, aux = found.x.tensor_split([model.n_params])
        coef, intercept = model.unpack(w)
        return torch.cat((some.model.of_linear(coef.T, intercept), aux)), found.dual

    def warm(self, problem: Any, x: Tensor, dual: Tensor) -> tuple[Tensor, Tensor]:
        """Parameters and multipliers of the last fit, if they fit this problem."""
        clf, classes = self.estimator, self.rows.classes
        if not np.array_equal(classes, clf.classes_):
            raise ValueError(
                f"{type(clf).__name__} with warm_start=True needs the classes of the last fit, "
                f"{clf.classes_}; got {classes}."
            )
        try:
            w = problem.model.restore(vars(clf))
        except RuntimeError as error:  # of torch, for a module whose tensors have other shapes
            raise ValueError(
                f"warm_start=True needs the model and the features of the last fit. {error}"
            ) from error
        if len(clf.multipliers_) == len(dual):
            dual = torch.as_tensor(clf.multipliers_, dtype=dual.dtype, device=dual.device)
        return problem.variables(w.to(x)), dual

    def fitted(self, problem: Any, x: Tensor) -> dict[str, Any]:
        """Return the attributes with which the model at `x` predicts."""
        attributes = self.attributes(problem, x[: problem.model.n_params])
        if "module_" in attributes:
            attributes["module_"] = auditable(attributes["module_"])
        attributes |= self.estimator._own_attributes(problem.constraint)
        attributes["model_"] = self.specification
        attributes["classes_"], attributes["groups_"], *_ = problem.constraint.space
        attributes["_description_"] = self.rows.description
        return attributes

    def attributes(self, problem: Any, w: Tensor) -> dict[str, Any]:
        """Return the fitted attributes of the trained model."""
        return dict(problem.model.attributes(w))

    def errors_of_estimates(self, problem: Any) -> Tensor:
        """Return how far the measured constraints may be from the truth: 0 if they are exact."""
        return torch.zeros(problem.n_constraints)
