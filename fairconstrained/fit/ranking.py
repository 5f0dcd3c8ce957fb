"""Fits of scores that rank, from group moments where these suffice; private ones are noisy."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any

import torch
from torch import Tensor

from fairconstrained.arrays import as_numpy, in_rows
from fairconstrained.constraints.surrogates import Binormal, Quadratic
from fairconstrained.exceptions import PrivacyWarning, warn_caller
from fairconstrained.fit import exact, private, private_records
from fairconstrained.fit.columns import build_model
from fairconstrained.fit.private_records import MUCH_NOISE
from fairconstrained.fit.task import COUNTED, Fit, Solved, Task, stack, stack_of_all
from fairconstrained.inputs.values import listed
from fairconstrained.models.cross_fitting import log_odds_scale
from fairconstrained.privacy.mechanisms import Releases
from fairconstrained.problems.erm import FairERM
from fairconstrained.problems.moments import GroupMoments, MomentERM, RankingERM, whitened_model
from fairconstrained.problems.objectives import Objective, PairwiseLoss, RankedLoss
from fairconstrained.problems.private.moments import (
    PrivateMomentERM,
    made_up,
    plan_moments,
    release,
)
from fairconstrained.problems.rows import Rows
from fairconstrained.solvers.augmented_lagrangian import AugmentedLagrangian
from fairconstrained.solvers.base import solves


def surrogate_of(task: Task) -> Any:
    """Return the surrogate of true AUCs, in the constraint and in the objective."""
    (notion,) = task.notions
    return notion.chosen_surrogate()


def as_ranking(task: Task) -> Task:
    """Return the task with the steps of a fit without privacy.

    The problem is in group moments only if a solver given by the user accepts it.
    """
    suffice = task.params["objective"] == "auc" and surrogate_of(task).uses_score_moments
    free = task.solver is None or solves(task.solver, MomentERM)
    problem_class = MomentERM if task.specification.is_linear and suffice and free else FairERM
    return exact.as_exact(task, problem_class=problem_class, pose=pose, attributes=attributes)


def pose(fit: Fit) -> tuple[Any, Sequence[str]]:
    """Build the problem of a ranking, or of a log loss whose results are compared as rankings."""
    task, rows, data = fit.task, fit.rows, fit.data
    constraint, left_out = stack(task, rows, rows.cells, task.min_group_size)
    # Every cell keeps a matrix of the covariances of these columns: 32 MB.
    if task.problem_class is MomentERM and data.X.shape[1] <= 2048:
        moments = GroupMoments.from_rows(data, rows.space.shape[1])
        risk = pairwise_loss(task, data)
        surrogate: Any = risk.surrogate  # the quadratic one
        scale, curvature = moments.standard_scale(), 2.0 * surrogate.c1
        model = whitened_model(moments, scale, task.alpha, curvature)
        problem = MomentERM(model, data, risk, constraint, task.alpha, moments=moments)
        return problem, left_out
    objective: Objective = RankedLoss()
    model = build_model(fit)
    if task.params["objective"] == "auc":
        objective, model = pairwise_loss(task, data), model.for_ranking()
    kind = RankingERM if task.specification.is_linear else FairERM
    return kind(model, data, objective, constraint, task.alpha), left_out


def pairwise_loss(task: Task, data: Rows) -> PairwiseLoss:
    """Return the pairwise loss of positives against negatives, in a convex form if possible."""
    surrogate = surrogate_of(task)
    # If the constraint does not depend on scale, the quadratic and the binormal loss have the
    # same optimum up to scale, and the quadratic one is convex.
    quadratic = surrogate.uses_score_moments and not isinstance(surrogate, Quadratic)
    return PairwiseLoss.from_data(Quadratic() if quadratic else surrogate, data)


def attributes(fit: Fit, problem: Any, w: Tensor) -> dict[str, Any]:
    """Return the attributes of the trained model, whose scores are log odds by Platt scaling."""
    fitted = problem.model.attributes(w)
    if fit.task.params["objective"] == "auc":
        rows = problem.data.quantiles
        scores = problem.model.scores(w, rows.X)[:, 0]
        slope, offset = log_odds_scale(scores, rows.y, rows.weight)
        fitted = problem.model.rescaled(fitted, slope.item(), offset.item())
    return {**fitted, "pos_label_": fit.rows.classes[1]}


def as_private_ranking(task: Task) -> Task:
    """Return the task with the steps of a fit from group moments that are released once."""
    budget: Any = task.budget
    binormal = isinstance(surrogate_of(task), Binormal)
    wanted = (
        ("model", "'linear'", task.specification.is_linear),
        ("objective", "'auc'", task.params["objective"] == "auc"),
        ("constraint", "a name or one with surrogate='binormal'", binormal),
    )
    for name, allowed, holds in wanted:
        if not holds:
            raise ValueError(
                f"{task.name}.{name} must be {allowed} with epsilon: a private ranking is computed "
                f"from released moments; got {task.params[name]!r}."
            )
    return private.as_private(
        task,
        solver=AugmentedLagrangian(),
        problem_class=PrivateMomentERM,
        learn=partial(private_records.learn, default_range=(0.0, 1.0)),  # releases no scales
        pose=pose_privately,
        solve=solve_privately,
        attributes=private_attributes,
        plan=lambda n_rows: plan_moments(budget),  # for any number of rows
    )


def pose_privately(fit: Fit) -> tuple[PrivateMomentERM, Sequence[str]]:
    """Build the problem of released moments, after a trial without a release."""
    task, rows, X, public = fit.task, fit.rows, fit.data.X, fit.learnt.coordinates
    shape, n_cells, n_rows = rows.space.shape, prod(rows.space.shape), rows.n_rows
    guarantee = task.plan(n_rows)
    releases = Releases(guarantee)
    trial = made_up(n_cells, X.shape[1], n_rows)
    constraint = stack_of_all(task, rows, trial.counts.reshape(shape), 1)
    private.commit(fit, guarantee, PrivateMomentERM.of(trial, constraint, task.alpha, releases))
    in_cells = X, n_rows, cell_of_rows(fit), n_cells
    released = release(*in_cells, public.centre, public.scale, releases, fit.rng)
    if released.far:
        private_records.warn_of_range(fit)
    counts, deviations = released.counts.reshape(shape), released.mean_deviation.reshape(shape)
    warn_of_noise(fit, counts, deviations)
    least = private.least_rows(task, released.count_deviation)
    constraint, left_out = stack(task, rows, counts.round(), least)
    return PrivateMomentERM.of(released, constraint, task.alpha, releases), left_out


def cell_of_rows(fit: Fit) -> Tensor:
    """Return the index of each row's cell: its label and group."""
    cell: Tensor = fit.data.y * fit.rows.space.shape[1] + fit.data.group
    return cell


def warn_of_noise(fit: Fit, counts: Tensor, deviations: Tensor) -> None:
    """Warn of labels and groups whose mean is mostly noise, by their released counts."""
    space, budget = fit.rows.space, fit.task.budget
    noisy = [
        f"{space.describe(cell.numpy())} (about {in_rows(max(int(counts[cell]), 0))})"
        for cell in torch.eye(counts.numel(), dtype=torch.bool).reshape(-1, *counts.shape)
        if float(deviations[cell]) > MUCH_NOISE
    ]
    if noisy:
        warn_caller(
            f"With epsilon={budget.epsilon:g} the noise on the mean of "  # type: ignore[union-attr]
            f"{listed(noisy, between='; ')}{COUNTED}, is more than {MUCH_NOISE:g} of the norm of "
            "a row: gaps there are mostly noise. Use more rows, fewer columns, larger groups or a "
            "larger epsilon.",
            PrivacyWarning,
        )


def solve_privately(fit: Fit, problem: PrivateMomentERM) -> Solved:
    """Solve, correct the moments by a noisy table of the solution's scores, and solve again."""
    if problem.constraint.members:
        x = private.solve(fit, problem).stages[-1].solution.iterate.x
        problem = problem.corrected(x, fit.data.X, cell_of_rows(fit), fit.rng)
    return private.solve(fit, problem)


def private_attributes(fit: Fit, problem: Any, w: Tensor) -> dict[str, Any]:
    """Return coefficients in the units of X, whose scores are log odds."""
    slope, offset = problem.log_odds_scale(w)
    coef = slope * problem.model.unpack(w)[0][:, 0] / problem.released.scale
    intercept = offset - coef @ problem.released.centre
    return {
        "coef_": as_numpy(coef[None]).copy(),
        "intercept_": as_numpy(intercept[None]).copy(),
        "pos_label_": fit.rows.classes[1],
    }
