"""Fits without privacy: pose a problem, solve it, and again with less or more slack if needed."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from tqdm.auto import tqdm

from fairconstrained.constraints.moments import MomentConstraint, stacked
from fairconstrained.exceptions import (
    ConstraintNotSatisfiedWarning,
    DivergenceError,
    InfeasibleError,
    warn_caller,
)
from fairconstrained.fit.columns import build_model, learn, measure_training_rows, read
from fairconstrained.fit.task import Fit, Solved, Stage, Task, callbacks_in, checked, stack
from fairconstrained.losses import n_outputs
from fairconstrained.models.perceptron import PerceptronModel
from fairconstrained.models.posteriors import Posteriors
from fairconstrained.models.specification import Linear
from fairconstrained.problems.baselines import ERROR_TOL
from fairconstrained.problems.erm import FairERM
from fairconstrained.solvers.augmented_lagrangian import AugmentedLagrangian
from fairconstrained.solvers.base import NEARLY, Iterate, Solver, Status, solves
from fairconstrained.solvers.run import run
from fairconstrained.solvers.sgda import EarlyStoppedSGDA

# Rounds after which standard errors differ by a few percent from those at the solution.
ROUGH = 4
# Added to slacks, one after another, if hardly anything within them is better than equal scores.
MORE_SLACK = (0.01, 0.04)
# A result that beats equal scores by less than this error is tried again (decisions: a result that
# is hardly better than a constant).
NEARLY_EQUAL = 0.01
# Options of the bar of a fit that is not verbose, and of private fits: times tell the sizes of
# their batches, also by how often a bar is drawn, and whether one comes late.
_LATE: dict[str, Any] = {"delay": 2.0, "leave": False}
_WITHOUT_TIMES: dict[str, Any] = {
    "bar_format": "{desc}: {n_fmt}/{total_fmt}{postfix}", "mininterval": 0.0, "miniters": 1,
}  # fmt: skip


def as_exact(task: Task, *, solver: Solver | None = None, **steps: Any) -> Task:
    """Return the task of :func:`exact_steps`; raise an error if its solver cannot solve it."""
    return checked(exact_steps(task, solver=solver, **steps))


def exact_steps(task: Task, *, solver: Solver | None = None, **steps: Any) -> Task:
    """Return the task with steps without privacy, and `solver` where the user gives none."""
    if solver is None:
        solver = AugmentedLagrangian() if task.specification.is_linear else EarlyStoppedSGDA()
    fitted = isinstance(task.specification, Posteriors) and not task.specification.is_frozen
    defaults: dict[str, Any] = {
        "problem_class": FairERM,
        "read": read,
        "learn": learn,
        "pose": pose,
        "solve": solve,
        "measure": measure_training_rows if fitted else None,
    }
    return replace(task, solver=task.solver or solver, **{**defaults, **steps})


# ---------------------------------------------------------------------- steps


def pose(fit: Fit) -> tuple[FairERM, Sequence[str]]:
    """Build the problem of the mean loss; also return names of groups that are not compared."""
    task, rows = fit.task, fit.rows
    constraint, left_out = stack(task, rows, rows.cells, task.min_group_size)
    model, risk = build_model(fit), task.risk(rows)
    return FairERM(model, fit.data, risk, constraint, task.alpha), left_out


# ---------------------------------------------------------------------- starts


def with_start(fit: Fit, problem: Any) -> Any:
    """Return the problem with the solution of a simpler one, for its solver to start from."""
    if fit.task.specification.is_linear:
        if not problem.n_constraints:
            return problem
        log_odds = fit.task.specification.log_odds
        if log_odds is not None and len(fit.rows.classes) == 2:
            columns = np.arange(fit.data.X.shape[1])
            one_column = {"coef_": columns[None] == log_odds, "intercept_": [0.0]}
            problem = replace(problem, log_odds=problem.model.restore(one_column))
        return replace(problem, free=without_constraints(fit, problem))
    model = problem.model
    contained = isinstance(model, PerceptronModel) and model.contains_linear
    if fit.task.last is not None or not contained or not solves(EarlyStoppedSGDA(), problem):
        return problem  # other solvers begin where they say themselves
    return replace(problem, simpler=partial(linear_start, fit))


def without_constraints(fit: Fit, problem: Any) -> Tensor:
    """Return the variables of a solution without constraints."""
    free = replace(problem, constraint=stacked(fit.rows.space, []))
    if not fit.task.specification.is_linear:
        return _solved(fit, free, fit.task.solver).x
    # The slack does not matter: one of the fits of clones computes the solution for all.
    shared: Iterate = fit.shared("free", partial(_solved, fit, free, AugmentedLagrangian()))
    return shared.x


def linear_start(fit: Fit, problem: Any) -> tuple[Tensor, Tensor]:
    """Return variables of a perceptron equal to the constrained linear model, and multipliers."""
    outputs = n_outputs(len(fit.rows.classes))
    data, alpha = problem.data, problem.alpha
    model: Any = Linear().build(data.X, data.weight, outputs, alpha)
    linear = replace(problem, model=model, simpler=None)
    solution = _solved(fit, linear, AugmentedLagrangian())
    w, aux = solution.x.tensor_split([model.n_params])
    coef, intercept = model.unpack(w)
    return torch.cat((problem.model.from_linear(coef.T, intercept), aux)), solution.dual


def _solved(fit: Fit, problem: Any, solver: Solver) -> Iterate:
    """Solve a simpler problem, unseen by callbacks, and return the last iterate."""
    x, dual = problem.start(), fit.data.weight.new_zeros(problem.n_constraints)
    return run(solver, problem, x, dual, fit.rng, max_iter=None, tol=fit.task.tol).iterate


def from_last_fit(task: Task, classes: Any, problem: Any) -> tuple[Tensor, Any]:
    """Return parameters and multipliers of the last fit; raise ValueError if they do not fit."""
    last: Any = task.last
    if not np.array_equal(classes, last["classes_"]):
        raise ValueError(
            f"{task.name} with warm_start=True needs the classes of the last fit, "
            f"{last['classes_']}; got {classes}."
        )
    try:
        w = problem.model.restore(last)
    except RuntimeError as error:  # of torch, for a module whose tensors have other shapes
        raise ValueError(
            f"warm_start=True needs the model and the features of the last fit. {error}"
        ) from error
    return w, last["multipliers_"]


# ---------------------------------------------------------------------- solutions


def solve(fit: Fit, problem: Any, start: Callable[[Fit, Any], Any] = with_start) -> Solved:
    """Solve the problem from a start; with a margin or a poor result, in several stages."""
    problem, task = start(fit, problem), fit.task
    # Points where fits with other slacks ended. Networks begin anew: held-out rows decide when
    # their training stops, and fits that start at each other overfit the training rows.
    follows = task.specification.is_linear and fit.digest and task.specification.handle.follows
    points: dict[float, tuple[Tensor, Tensor]] = fit.shared("ends", dict) if follows else {}
    x = problem.start()
    dual = x.new_zeros(problem.n_constraints)
    if task.last is not None:
        w, multipliers = from_last_fit(task, fit.rows.classes, problem)
        if len(multipliers) == len(dual):
            dual = torch.as_tensor(multipliers, dtype=dual.dtype, device=dual.device)
        x = problem.variables(w.to(x))
    elif points and (wider := [slack for slack in points if slack >= task.params["slack"]]):
        near = points[min(wider)]
        # Fits that leave out other groups have other variables.
        if (len(near[0]), len(near[1])) == (len(x), len(dual)):
            x, dual = near
    if task.margin > 0 and problem.constraint.members:
        stages = solve_with_margin(fit, problem, x, dual)
    else:
        stages = [run_watched(fit, problem, x, dual)]
    last, looser = stages[-1].solution, None
    if last.equal - float(last.iterate.hard[0]) < NEARLY_EQUAL:
        with suppress(DivergenceError, InfeasibleError):  # of another try, which loses nothing
            again, looser = solve_from_looser(fit, stages[-1])
            stages += again
    end = stages[-1].solution.iterate
    if "slack" in task.params:
        points[task.params["slack"]] = end.x, end.dual
    return Solved(stages, looser)


def solve_with_margin(fit: Fit, problem: Any, x: Tensor, dual: Tensor) -> list[Stage]:
    """Solve roughly, and again with slacks that are smaller by standard errors at that point."""
    task, constraint = fit.task, problem.constraint
    rough = run_watched(fit, problem, x, dual, rounds=min(ROUGH, task.max_iter or ROUGH))
    point = rough.solution.iterate
    errors = task.margin * problem.standard_errors(point.x)
    slack = constraint.slack.to(errors)  # on the device of the rows
    # Values that do not count labels are never exactly equal: a little slack is left.
    most = torch.where(slack > 0, (slack - NEARLY).clamp_min(0.0), torch.inf)
    nothing = torch.nonzero((errors >= slack) & (slack > 0))[:, 0].tolist()
    if nothing:
        worst = max(nothing, key=lambda j: float(errors[j] - slack[j]))
        error = float(errors[worst]) / task.margin
        warn_caller(
            f"margin={task.margin:g} uses up the slack of {len(nothing)} of {len(slack)} "
            f"constraints, such as {constraint.describe(worst)} (slack "
            f"{float(constraint.slack[worst]):g}, standard error {error:.3g}): they are trained "
            "with zero slack, and may still be violated on new data. Use more rows, a larger slack "
            "or a smaller margin.",
            ConstraintNotSatisfiedWarning,
        )
    # A network that starts at a rough solution ends at a larger error.
    if task.specification.is_linear:
        x, dual = point.x, point.dual
    narrow = replace(problem, constraint=constraint.narrowed(errors.minimum(most)))
    return [rough, run_watched(fit, narrow, x, dual)]


def solve_from_looser(fit: Fit, stage: Stage) -> tuple[list[Stage], Stage | None]:
    """Solve with larger slacks until that pays off, and again from there; empty if not better.

    Also return the stage of the larger slacks. Nothing is done if the constraint is not the reason:
    the model without it is then hardly better than equal scores.
    """
    task, (problem, solution) = fit.task, stage
    below, looser = solution.equal - NEARLY_EQUAL, None
    if problem.free is None or solution.ended is Status.STOPPED:
        return [], None
    zero = torch.zeros_like(solution.iterate.dual)
    hard = problem.evaluate(problem.variables(problem.free)).hard
    # Equal scores are then nearly the best of this model, and no slack helps.
    if float(hard[0]) >= below:
        return [], None
    enough = float(hard[1 : 1 + len(zero)].max())  # the constraint binds no longer
    # Solvers that require `more_slack` have already started with more: a little more is worth
    # another try, but from much more they end where they did.
    comes_from_more = "more_slack" in task.solver.requires
    slacks = MORE_SLACK[:1] if comes_from_more else MORE_SLACK
    for more in (*(more for more in slacks if more < enough), enough):
        wider = replace(problem, constraint=problem.constraint.narrowed(zero - more))
        options = {"max_iter": task.max_iter, "tol": task.tol, "known": wider.baselines}
        looser = Stage(wider, run(task.solver, wider, problem.start(), zero, fit.rng, **options))
        start = looser.solution.iterate
        if start.feasible and float(start.hard[0]) < below:
            break
    if comes_from_more and more == enough:
        return [], looser
    # From there the solver is past the equal scores at which it stayed.
    again = run_watched(fit, problem, start.x, start.dual)
    candidate = again.solution.iterate
    lower = float(candidate.hard[0]) < float(solution.iterate.hard[0]) - ERROR_TOL
    return ([again] if lower and candidate.feasible else []), looser


# ---------------------------------------------------------------------- runs that are watched


class Record(NamedTuple):
    """An iterate in numbers for the history. Each field is an entry of ``history_``."""

    objective: float
    error: float
    violation: float
    soft_violation: float
    residual: float
    multiplier: float  # the largest


def recorded(constraint: MomentConstraint, iterate: Iterate) -> Record:
    """Return the record of an iterate, in the units of the constraint."""
    return Record(
        objective=float(iterate.soft[0]),
        error=float(iterate.hard[0]),
        violation=constraint.measure(iterate.hard[1:]),
        soft_violation=constraint.measure(iterate.soft[1:]),
        residual=iterate.residual,
        multiplier=float(iterate.dual.max()) if len(iterate.dual) else 0.0,
    )


@contextmanager
def watchers(task: Task, length: int | None) -> Iterator[list[Any]]:
    """Show a progress bar; yield the callbacks of iterations: the user's, and one for the bar.

    Fits that are not `verbose` show it on a terminal only, after two seconds, and not in private
    fits or in processes of parallel searches, whose bars would overwrite each other.
    """
    options = _WITHOUT_TIMES if task.is_private else {}
    if not task.verbose:
        is_first = multiprocessing.current_process().name == "MainProcess"
        late = is_first and sys.stderr.isatty() and not task.is_private
        options = _LATE if late else {"disable": True}
    with tqdm(total=length, desc=task.name, unit="it", **options) as bar:

        def tick(iterate: Iterate) -> None:
            violation = float(iterate.hard[1:].max()) if len(iterate.hard) > 1 else np.nan
            bar.set_postfix(
                refresh=False,  # which would not wait
                objective=f"{float(iterate.soft[0]):.4f}",
                error=f"{float(iterate.hard[0]):.4f}",
                excess=f"{violation:+.4f}",
            )
            bar.update()

        yield [*(callbacks_in(task.callbacks) or []), tick]


def run_watched(
    fit: Fit,
    problem: Any,
    x: Tensor,
    dual: Tensor,
    *,
    rounds: int | None = None,
    solver: Solver | None = None,
) -> Stage:
    """Run a solver, the task's by default, and show its iterates to callbacks."""
    task, solver = fit.task, solver or fit.task.solver
    max_iter = rounds or task.max_iter
    # Runs with a limit of rounds are not compared with baselines.
    compared = rounds is None and not task.is_private and len(dual)
    with watchers(task, max_iter or solver.length) as callbacks:
        if fit.watch is not None:
            callbacks.insert(-1, partial(fit.watch, fit, problem))
        solution = run(
            solver,
            problem,
            x,
            dual,
            fit.rng,
            max_iter=max_iter,
            tol=task.tol,
            callbacks=fit.rows.workers.agreed_callbacks(callbacks),
            known=problem.baselines if compared else (),
            record=partial(recorded, problem.constraint),
        )
    return Stage(problem, solution)
