"""Private fits: checks, a source of noise, and problems of releases that are paid for."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from fairconstrained.arrays import in_rows
from fairconstrained.constraints.moments import MomentConstraint
from fairconstrained.distributed import Workers, refuse_difference
from fairconstrained.exceptions import PrivacyWarning, SmallGroupWarning, warn_caller
from fairconstrained.fit import columns
from fairconstrained.fit.columns import build_model, rows_on_device
from fairconstrained.fit.exact import run_watched
from fairconstrained.fit.rows import FitInputs, TrainingRows, declared_domains
from fairconstrained.fit.task import Fit, Solved, Task, checked, part_of_cell, stack, stack_of_all
from fairconstrained.inputs.groups import UncertainGroups, refuse_groups_in
from fairconstrained.inputs.samples import check_numbers
from fairconstrained.inputs.values import listed
from fairconstrained.models.posteriors import Posteriors
from fairconstrained.models.specification import Linear, Network
from fairconstrained.privacy.accounting import PrivacyGuarantee
from fairconstrained.privacy.callers import (
    pipeline_steps_above,
    refuse_steps_with_groups,
    trainer_above,
    warn_of_learning_steps,
)
from fairconstrained.privacy.mechanisms import Releases, SharedGenerator, SystemGenerator
from fairconstrained.privacy.plans import privacy_guarantee
from fairconstrained.problems.erm import FairERM
from fairconstrained.problems.private.erm import COUNTS
from fairconstrained.problems.private.secret_groups import SecretGroups, noisy_sums
from fairconstrained.solvers.base import Solver, check_solves
from fairconstrained.solvers.private.released_moments import ReleasedMoments

# Least probability without a warning that a row is in any batch, in units of delta: a plan may
# leave a rarer row without noise.
_SELDOM = 10.0
# Expected rows of a group in a batch: a rate of fewer is mostly noise.
_FEW_ROWS = 5

# Builds the problem of rows whose groups are known, or estimated.
BuildPublic = Callable[[Fit, Any, Any, MomentConstraint, Tensor], Any]


# ---------------------------------------------------------------------- tasks


def as_private(task: Task, *, solver: Solver, problem_class: Any, **steps: Any) -> Task:
    """Return the task with private steps, and `solver` where the user gives none."""
    task = replace(task, solver=task.solver or solver, problem_class=problem_class)
    check_private(task)
    defaults = {
        "read": read,
        "warn_of_parts": warn_of_small_parts,
        "solve": solve,
        "plan": lambda n_rows: task.solver.plan(n_rows, task.budget),
    }
    return checked(replace(task, **{**defaults, **steps}))


def check_private(task: Task) -> None:
    """Raise ValueError for parameters that would make a fit read rows without noise."""
    name, specification = task.name, task.specification
    if task.params["warm_start"]:
        raise ValueError(
            f"{name}.warm_start must be False with epsilon: every fit spends the whole budget, "
            "and the guarantee of this fit would not cover the last."
        )
    if task.margin > 0:
        raise ValueError(
            f"{name}.margin must be 0 with epsilon: standard errors are read off the exact "
            f"predictions; got {task.margin!r}."
        )
    ours = type(specification) in (Linear, Network, Posteriors)  # subclasses may read rows
    secret = specification.learns_from & task.hidden.keys()
    if not ours or secret:
        what = "groups" if ours and secret == {"group"} else "rows"
        raise ValueError(
            f"{name}.model must be 'linear', a network or a frozen classifier (FrozenEstimator, "
            f"fitted to public rows) with epsilon: {task.params['model']!r} reads the {what} "
            "exactly, and its output would leak them without noise."
        )
    if isinstance(specification, Posteriors) and task.feature_range is not None:
        raise ValueError(
            f"{name}.feature_range must be None with a classifier as model, whose posteriors have "
            f"ranges of their own; got {task.feature_range!r}."
        )


def solve(fit: Fit, problem: Any) -> Solved:
    """Solve the problem once: a second solution would cost a part of the budget."""
    x = problem.start()
    return Solved([run_watched(fit, problem, x, x.new_zeros(problem.n_constraints))])


# ---------------------------------------------------------------------- rows


def read(task: Task, estimator: Any, inputs: FitInputs, workers: Workers) -> TrainingRows:
    """Read the samples, with all values of public domains: which values occur is secret."""
    # What numpy and scikit-learn warn of depends on single entries and labels.
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The number of unique classes")
        warnings.filterwarnings("ignore", ".* has times with nanoseconds")
        with workers.agreeing():
            check_inputs(task, inputs)
            domains = declared_domains(inputs.y, inputs.sensitive_features)
        refuse_difference("categories of y and sensitive_features", workers.gather(domains))
        return columns.read(task, estimator, inputs, workers, domains)


def check_inputs(task: Task, inputs: FitInputs) -> None:
    """Raise ValueError for inputs that the planned noise does not cover; quote no entry."""
    only_groups = "y" not in task.hidden
    if not only_groups and inputs.sample_weight is not None:
        raise ValueError(
            "sample_weight must be None with epsilon: a row of weight w would need w times the "
            "noise."
        )
    groups = inputs.sensitive_features
    if isinstance(groups, UncertainGroups) and groups.encoded().codes.ndim == 2:
        raise ValueError(
            "sensitive_features must hold one group per row, or a missing value, with epsilon: a "
            f"row may add to the noisy count of one group only; got {groups!r}."
        )
    if not isinstance(task.specification, Posteriors):
        check_numbers(inputs.X)
    if only_groups:  # by the names of columns, which are public
        refuse_groups_in(inputs.X, groups)


# ---------------------------------------------------------------------- columns


def with_noise(fit: Fit) -> Fit:
    """Return the fit with its source of noise: the operating system, unless there is a seed."""
    rng: Generator = SystemGenerator() if fit.task.random_state is None else fit.rng
    if fit.task.random_state is not None:
        warn_caller(
            "random_state seeds the noise of private training: anyone who knows or guesses it "
            "can subtract the noise, which leaves no privacy. Use it for experiments only; a model "
            "to be released needs random_state=None.",
            PrivacyWarning,
        )
    steps = pipeline_steps_above()
    refuse_steps_with_groups(steps)
    if "y" in fit.task.hidden:
        warn_of_learning_steps(steps)
    trainer = trainer_above()
    if trainer:
        warn_caller(
            f"{trainer} trains this private estimator: each fit spends a whole budget, and "
            "choices by exact scores or labels are covered by none of them. privacy_ describes "
            "one fit. Use PrivateGridSearch, or public rows.",
            PrivacyWarning,
        )
    workers = fit.rows.workers
    return replace(fit, rng=SharedGenerator(rng, workers) if workers.size > 1 else rng)


def learn_table(fit: Fit) -> Any:
    """Return the table of columns, from a specification that sees nothing secret."""
    task, rows = fit.task, fit.rows
    parts, shown = partial(part_of_cell, task, rows), replace(rows, **task.hidden)
    return task.specification.fit_transform(shown, parts, fit.rng)


def learn_public(fit: Fit) -> Fit:
    """Return the fit with its columns, which are public: the groups alone are secret."""
    fit = with_noise(fit)
    # A frozen model may warn of single rows, such as unknown categories.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = rows_on_device(fit.rows, learn_table(fit), device=fit.task.device)
    return replace(fit, data=data)


# ---------------------------------------------------------------------- problems by releases


def pose_by_releases(
    fit: Fit,
    plan: PrivacyGuarantee,
    model: Any,
    *,
    release_model: Callable[[Fit, Releases], tuple[Fit, Any]] | None = None,
    release_counts: Callable[[Fit, Releases], Tensor],
) -> tuple[Any, Sequence[str]]:
    """Build the problem from releases, after a trial on one row and without releases."""
    # A problem that cannot be solved is refused there, before anything is spent.
    task, rows, data, releases = fit.task, fit.rows, fit.data, Releases(plan)
    constraint = stack_of_all(task, rows, rows.ample, 1)
    counts = constraint.partition.pooled(rows.ample.to(data.weight).reshape(-1)).clamp_min(1.0)
    one_row = data.subset(torch.zeros(1, dtype=torch.long).to(data.y), data.weight[:1])
    commit(fit, plan, task.build(fit, model, one_row, constraint, counts, releases))
    if release_model is not None:
        fit, model = release_model(fit, releases)
    cells = release_counts(fit, releases)
    constraint, left_out = stack(task, rows, cells.round(), least_rows(task, plan.noise(COUNTS)))
    task.warn_of_parts(constraint, cells, plan)
    counts = constraint.partition.pooled(cells.reshape(-1)).clamp_min(1.0)
    return task.build(fit, model, fit.data, constraint, counts, releases), left_out


def commit(fit: Fit, plan: PrivacyGuarantee, trial: Any) -> None:
    """Note that the plan may be spent; before, raise an error if the trial cannot be solved."""
    task = fit.task
    check_solves(task.solver, trial)
    task.solver.check(trial)
    warn_of_plan(task, fit.rows, plan)
    fit.ledger.append(plan)


def least_rows(task: Task, counts_noise: float) -> int:
    """Return the least released count of a group: below two deviations it may be empty."""
    least = 1 if isinstance(task.min_group_size, str) else task.min_group_size
    # Of a single group nothing is secret.
    return least if np.isinf(counts_noise) else int(max(least, np.ceil(2 * counts_noise)))


def warn_of_small_parts(
    constraint: MomentConstraint, cells: Tensor, plan: PrivacyGuarantee
) -> None:
    """Warn of parts with few rows in a batch, by the released counts of labels and groups."""
    small = [
        f"{constraint.space.describe(part)} (about {in_rows(int(cells[part].sum()))})"
        for part in constraint.partition.cells()
        if 0 < plan.sampling_rate * cells[part].sum() < _FEW_ROWS
    ]
    if small:
        warn_caller(
            f"{listed(small, between='; ')}, by the released counts, which are noisy: fewer than "
            f"{_FEW_ROWS} in an expected batch. Their rates are mostly noise; set "
            "min_group_size to leave them out.",
            SmallGroupWarning,
        )


def warn_of_plan(task: Task, rows: TrainingRows, plan: PrivacyGuarantee) -> None:
    """Warn if the guarantee means little, or exceeds the user's budget."""
    budget: Any = task.budget
    delta = plan.delta
    steps = (p for p in plan.phases if p.sampling_rate < 1)
    seldom = [p for p in steps if p.sampling_rate * p.n_steps < _SELDOM * delta]
    if seldom:
        warn_caller(
            f"delta={delta:g} is more than {1 / _SELDOM:g} of the probability that a row is in "
            f"any batch ({seldom[0].sampling_rate:.3g} x {seldom[0].n_steps} steps): the plan "
            "may leave it almost without noise where it is. Choose a smaller delta, a larger "
            "sampling rate or more steps.",
            PrivacyWarning,
        )
    if plan.epsilon > budget.epsilon:
        warn_caller(
            f"{type(task.solver).__name__} spends epsilon = {plan.epsilon:.3g}, more than the "
            f"{budget.epsilon:g} asked for: see privacy_.",
            PrivacyWarning,
        )
    n_rows = rows.n_rows
    if plan.phases and delta >= 1 / n_rows:
        warn_caller(
            f"delta={delta:g} is not below 1/n = {1 / n_rows:.1g}: a mechanism that publishes a "
            "random row in full would keep such a promise. Choose a smaller delta.",
            PrivacyWarning,
        )


# ---------------------------------------------------------------------- secret groups


def public_mean_loss(
    fit: Fit, model: Any, data: Any, constraint: MomentConstraint, counts: Tensor
) -> FairERM:
    """Build the problem of the mean loss on rows whose groups are known or estimated."""
    return FairERM(model, data, fit.task.risk(fit.rows), constraint, fit.task.alpha)


def as_secret_groups(task: Task, *, public: BuildPublic = public_mean_loss, **steps: Any) -> Task:
    """Return the task with the steps of a fit where the groups alone are secret."""
    defaults = {
        "solver": ReleasedMoments(),
        "problem_class": SecretGroups,
        "learn": learn_public,
        "pose": pose_secret_groups,
        "build": partial(build_secret_groups, public),
    }
    task = as_private(task, **{**defaults, **steps})
    if task.feature_range is not None:
        raise ValueError(
            f"{task.name}.feature_range must be None with protect='sensitive_features', where "
            f"features are public; got {task.feature_range!r}."
        )
    return task


def build_secret_groups(public: BuildPublic, fit: Fit, *posed: Any) -> SecretGroups:
    """Build the problem in which the groups are seen through noisy sums only."""
    model, data, constraint, counts, releases = posed
    without = replace(data, group=torch.zeros_like(data.group))
    problem = public(fit, model, without, constraint, counts)
    return SecretGroups(problem, data.group, counts, releases)


def pose_secret_groups(fit: Fit) -> tuple[Any, Sequence[str]]:
    """Build the problem of secret groups; with a single group nothing is secret."""
    task, rows = fit.task, fit.rows
    if rows.space.shape[1] < 2:
        _, delta, unit = task.budget  # type: ignore[misc]
        releases = privacy_guarantee([], delta=delta, unit=unit)
    else:
        releases = task.plan(rows.n_rows)
    model = build_model(fit)
    return pose_by_releases(fit, releases, model, release_counts=released_group_counts)


def released_group_counts(fit: Fit, releases: Releases) -> Tensor:
    """Return the noisy weight of the rows of each label and group; labels are public."""
    shape, weight = fit.rows.space.shape, fit.data.weight[:, None]
    return noisy_sums(COUNTS, weight, fit.data, shape, releases, fit.rng)[0][..., 0]
