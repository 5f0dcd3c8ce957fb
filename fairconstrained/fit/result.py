"""The result of a fit: the attributes of the estimator, and warnings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning, UndefinedMetricWarning
from torch import Tensor

from fairconstrained.comparison import NO_RATIO
from fairconstrained.constraints.moments import NEVER_BINDS
from fairconstrained.exceptions import ConstraintNotSatisfiedWarning, warn_caller
from fairconstrained.fit.engine_tables import FROM_VALIDATION
from fairconstrained.fit.exact import NEARLY_EQUAL, Record
from fairconstrained.fit.task import Fit, Solved, Stage, Task
from fairconstrained.inputs.labels import top_of_words
from fairconstrained.inputs.values import listed
from fairconstrained.losses import hard_classes
from fairconstrained.models.perceptron import auditable
from fairconstrained.problems.baselines import ERROR_TOL
from fairconstrained.problems.rows import Rows
from fairconstrained.solvers.base import Solution, Status

_SLACK, _RATIO = "a larger slack", "a smaller ratio"


def store(estimator: Any, fit: Fit, solved: Solved, left_out: Sequence[str]) -> None:
    """Write the fitted attributes to the estimator, and warn of a result that falls short."""
    task, (problem, solution) = fit.task, solved.stages[-1]
    problem.model.update_batch_norm(solution.iterate.x[: problem.model.n_params], problem.data.X)
    hard, m = solution.iterate.hard[1:], len(solution.iterate.dual)
    # By the user's slacks: a margin narrows them in training only.
    wider = (problem.constraint.slack - solved.stages[0].problem.constraint.slack).to(hard)
    excess = (hard[: len(wider)] + wider)[:m]
    errors = torch.zeros(problem.n_constraints).to(excess)
    if task.is_private and problem.n_constraints:  # two standard deviations of the noise
        errors = (2.0 * problem.deviations_of_estimates().cpu()).to(excess)
    # Noisy rates are never exactly zero: a released ratio always has a value.
    undefined = {} if task.is_private else problem.constraint.undefined(hard)
    excess = excess.index_fill(0, excess.new_tensor([*undefined]).long(), -torch.inf)
    # Of noisy values the one that is most surely exceeded.
    worst = int((excess - errors).argmax()) if len(excess) else None
    fitted = {
        **attributes_to_predict(fit, problem, solution.iterate.x),
        **measures(task, problem, solution, excess),
        "excess_": np.nan if worst is None or worst in undefined else float(excess[worst]),
        "excess_error_": 0.0 if worst is None else float(errors[worst]),
        "left_out_": [
            *left_out,
            *(f"{'; '.join(names)} ({NO_RATIO})" for names in dict.fromkeys(undefined.values())),
        ],
        "privacy_": fit.ledger[-1] if fit.ledger else None,
        **history(task, solved.stages),
    }
    if task.multi_class and not task.is_private:  # rankings have a threshold that is not zero
        fitted["label_shares_"] = label_shares(problem, solution.iterate.x)
    for name in tuple(vars(estimator)):
        if name.endswith("_") and name not in FROM_VALIDATION:
            delattr(estimator, name)  # of a former fit, perhaps with another model
    for name, value in fitted.items():
        setattr(estimator, name, value)
    report(task, fitted, solution, worst, undefined)
    if task.is_private:
        warn_of_one_label(fit, problem, solution)
    elif fitted["feasible_"] and solution.equal - float(solution.iterate.hard[0]) < NEARLY_EQUAL:
        report_equal(task, solved.stages[-1], solved.looser)


def attributes_to_predict(fit: Fit, problem: Any, x: Tensor) -> dict[str, Any]:
    """Return the attributes with which the model at `x` predicts."""
    attributes: dict[str, Any] = fit.task.attributes(fit, problem, x[: problem.model.n_params])
    if "module_" in attributes:
        attributes["module_"] = auditable(attributes["module_"])
    attributes["model_"] = fit.task.specification
    attributes["classes_"], attributes["groups_"], *_ = problem.constraint.space
    attributes["_description_"] = fit.rows.description
    return attributes


def measures(task: Task, problem: Any, solution: Solution, excess: Tensor) -> dict[str, Any]:
    """Return the attributes about the solver's outcome, and about whether the slacks are kept."""
    constraint, iterate = problem.constraint, solution.iterate
    hard = iterate.hard[1:]
    value, values = constraint.measure(hard), [np.nan] * len(task.notions)
    names = [notion.name for notion in task.notions]
    for member, piece in constraint.split(hard):
        names[member.place], values[member.place] = member.name, member.measure(piece)
    # A criterion that compares no groups any more is not satisfied.
    compares = not any(map(np.isnan, [value, *values]))
    keys = [f"{n}_{i}" if names.count(n) > 1 else n for i, n in enumerate(names)]
    return {
        "converged_": solution.status is Status.CONVERGED,
        "status_": solution.words,
        "residual_": iterate.residual,
        "multipliers_": iterate.dual.cpu().numpy().copy(),
        # Values that a penalty replaces are measured, and have no multipliers.
        "constraints_": list(map(constraint.describe, range(len(iterate.dual)))),
        "violations_": dict(zip(keys, values, strict=True)),
        "violation_": value,
        "training_violation_": value,
        "feasible_": compares and bool((excess <= 0.0).all()),
    }


def label_shares(problem: Any, x: Tensor) -> Any:
    """Return the weighted share of the rows that are predicted to be of each class."""
    w, n_classes = x[: problem.model.n_params], len(problem.constraint.space[0])

    def weights(rows: Rows) -> Tensor:
        labels = hard_classes(problem.model.scores(w, rows.X))
        return torch.bincount(labels, rows.weight, n_classes)

    return (problem.data.total(weights) / problem.data.total_weight).cpu().numpy()


def history(task: Task, stages: Sequence[Stage]) -> dict[str, Any]:
    """Return the history of all stages, without times if these would reveal sizes of batches."""
    records, times, n_iter = [], np.zeros(1), 0
    for _, solution in stages:  # times go on from one to the next
        records += solution.history
        n_iter += solution.n_iter
        times = np.append(times, times[-1] + np.array(solution.times))
    columns = dict(zip(Record._fields, np.array(records).T, strict=True))
    # A step takes as long as its batch is large, and sizes of batches are secret.
    times = np.full(len(times) - 1, np.nan) if task.is_private else times[1:]
    return {"n_iter_": n_iter, "history_": {**columns, "time": times}}


def report(
    task: Task,
    fitted: Mapping[str, Any],
    solution: Solution,
    worst: int | None,
    undefined: Mapping[int, tuple[str, ...]],
) -> None:
    """Warn of a violated constraint, of `undefined` ratios, and of a fit that did not converge."""
    words = "" if worst is None else fitted["constraints_"][worst]
    excess, error = fitted["excess_"], fitted["excess_error_"]
    how, remedies = "", task.remedies
    if error > 0 and excess > error:  # an excess below its error says nothing
        how = f"by the released numbers it exceeds its slack by an estimated {excess:.4f}, with an "
        how += f"error of {error:.4f} (two standard deviations of the noise)"
        remedies = "a larger epsilon, more rows"
    elif error == 0 and not fitted["feasible_"] and excess > 0:
        how = f"exceeds its slack by {excess:.4g} on {task.measured_on}"
    if undefined:
        rates = [name for names in dict.fromkeys(undefined.values()) for name in names]
        left_out = f"left out of the constraint: {listed(rates, between='; ')} ({NO_RATIO})"
        empty = [name for name, value in fitted["violations_"].items() if np.isnan(value)]
        rest = f"; {' and '.join(empty)} has nothing left to compare, so that feasible_ is False"
        warn_caller(f"{left_out}{rest if empty else ''}.", UndefinedMetricWarning)
    if how:
        top = top_of_words(fitted["classes_"].tolist() if "pos_label_" in fitted else [])
        warn_caller(
            f"{words}: {how}{top and f'; {top}'}. Try {loosening(task)}, {remedies}, or "
            "min_group_size to leave small groups out.",
            ConstraintNotSatisfiedWarning,
        )
    result, better = solution.iterate, solution.better or solution.iterate
    if better is not result:
        name = type(task.solver).__name__
        warn_caller(
            f"{name} keeps its result, of error {float(result.hard[0]):.4f} and excess over the "
            f"slack {result.excess:.4f}. A baseline (equal scores, the model without constraints, "
            f"a relaxation, or another intercept) has {float(better.hard[0]):.4f} and "
            f"{better.excess:.4f}. To let baselines replace it, write takes_known = True in class "
            f"{name}.",
            ConvergenceWarning,
        )
    unfinished = solution.status is Status.FINISHED and task.tol < result.residual < np.inf
    if unfinished or solution.ended is Status.MAX_ITER:
        distance = f" with residual {result.residual:.1e} > tol={task.tol:g}"
        advice = "Increase max_iter, or tol."
        if np.isinf(result.residual):  # of solvers and baselines that have none
            distance, advice = "", "Increase max_iter."
        if unfinished:
            advice = "The solver got no further. Scale the features, or increase tol."
        warn_caller(
            f"{task.name} stopped after {solution.n_iter} iterations{distance}. {advice}",
            ConvergenceWarning,
        )


def loosening(task: Task) -> str:
    """Return what makes the criteria looser, by the parameters that have their bounds."""
    bounds = {"max": "a larger max", "ratio": _RATIO}
    words = [
        next((bounds[name] for name in bounds if getattr(notion, name, None) is not None), _SLACK)
        for notion in task.notions
    ]
    return " or ".join(dict.fromkeys(words))


def report_equal(task: Task, stage: Stage, looser: Stage | None) -> None:
    """Warn if equal scores are as good as the result, or nearly, because of the constraint."""
    problem, solution = stage
    model, error, narrowed = problem.model, float(solution.iterate.hard[0]), task.margin > 0
    w = solution.iterate.x[: model.n_params]

    def ends(data: Rows) -> tuple[Tensor, Tensor]:
        scores = torch.cat([model.scores(w, rows.X) for rows in data.pieces()])
        return scores.amin(dim=0), scores.amax(dim=0)

    # Not the coefficients: a model may give equal scores to these rows only.
    low, high = map(torch.stack, zip(*problem.data.gather(ends), strict=True))
    allowed = "slack less the margin" if narrowed else "slack"
    because = looser is not None or solution.status is Status.KNOWN  # of the constraint
    if because and looser is None and problem.free is not None:  # or of the labels and their costs
        free = problem.evaluate(problem.variables(problem.free)).hard
        because = float(free[0]) < error - ERROR_TOL
    if because and torch.equal(low.amin(dim=0), high.amax(dim=0)):
        what = "gives all rows equal scores: the solver found nothing better that keeps the "
        what += allowed
    elif looser is not None:
        what = f"has an error of {error:.4f}, and equal scores have {solution.equal:.4f}: the "
        what += f"{allowed} allows hardly anything better"
    else:
        return
    larger = loosening(task)
    if looser is not None and _RATIO not in larger:
        slack, other = looser.problem.constraint.slack, float(looser.solution.iterate.hard[0])
        more = float((slack - problem.constraint.slack).max())
        same = not narrowed and len(slack.unique()) == 1 and larger == _SLACK
        how = f"slack={float(slack[0]):.3g}" if same else f"{more:.3g} more slack"
        if more > NEVER_BINDS / 2:  # gaps of distributions are at most one
            how = "no constraint"
        larger += f" (with {how} the error is {other:.4f})"
    smaller = " a smaller margin," if narrowed else ""
    warn_caller(
        f"{task.name} {what}. Try {larger},{smaller} another solver, a richer model, or "
        "min_group_size to leave small groups out.",
        ConvergenceWarning,
    )


def warn_of_one_label(fit: Fit, problem: Any, solution: Solution) -> None:
    """Warn if, by released or public numbers, a private model predicts one label for all rows."""
    answer = problem.one_label(solution.iterate.x[: problem.model.n_params])
    if answer is None:
        return
    code, which = answer
    warn_caller(
        f"{fit.task.name} predicts {fit.rows.classes[code]} for {which}: the noise, the slack or a "
        "rare label leaves nothing else. Try a larger epsilon or slack, more rows, or fewer "
        "columns.",
        ConvergenceWarning,
    )
