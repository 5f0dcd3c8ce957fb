"""The call of ``fit``: state after errors, callbacks, progress, the history, and warnings."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning, UndefinedMetricWarning
from torch import Tensor
from tqdm.auto import tqdm

from fairconstrained.constraints.moments import MomentConstraint
from fairconstrained.exceptions import (
    ConstraintNotSatisfiedWarning,
    UndoneSettingWarning,
    warn_caller,
)
from fairconstrained.inputs.labels import top_of_words
from fairconstrained.problems.rows import Rows
from fairconstrained.solvers.base import Iterate, Solution, Status

if TYPE_CHECKING:
    from fairconstrained.estimators._inputs import Given
    from fairconstrained.estimators._training import Stage, Training

try:
    from sklearn.callback import CallbackSupportMixin as CallbackSupportMixin
    from sklearn.callback import with_callbacks
except ImportError:  # scikit-learn before 1.9

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Nothing, where scikit-learn has no callbacks."""

    def with_callbacks(method: Any) -> Any:
        """Return the method as it is."""
        return method


_SPENT = (
    "Noisy numbers had been released before: up to epsilon = {:.4g} and delta = {:.4g} are spent "
    "(the attribute privacy of this error), although no model was returned. Another fit on the "
    "same rows adds its own."
)

NEARLY_EQUAL = 0.01  # more of the error than equal scores have is worth no warning

Method = TypeVar("Method", bound=Callable[..., Any])


def data_by_position(*names: str) -> Callable[[Method], Method]:
    """Refuse more positional arguments than these, in the words of the user's call."""

    def decorate(method: Method) -> Method:
        @wraps(method)
        def checked(estimator: Any, *args: Any, **kwargs: Any) -> Any:
            if len(args) > len(names):
                taken = ", ".join(names)
                raise TypeError(
                    f"{type(estimator).__name__}.{method.__name__} takes {taken} by position; got "
                    f"{len(args)} arguments. Name the others, as in "
                    f"{method.__name__}({taken}, sensitive_features=groups)."
                )
            return method(estimator, *args, **kwargs)

        return cast("Method", checked)

    return decorate


@contextmanager
def unchanged_on_error(estimator: object) -> Iterator[list[Training]]:
    """Restore the estimator after an error, which names the privacy spent by these trainings."""
    begun: list[Training] = []
    before = dict(vars(estimator))
    try:
        yield begun
    except BaseException as error:
        vars(estimator).clear()
        vars(estimator).update(before)
        error.add_note(f"This {type(estimator).__name__} is as it was before this call.")
        for spent in (training.spent for training in begun if training.spent is not None):
            vars(estimator)["_begun"] = True  # which hides the seed
            error.privacy = spent  # type: ignore[attr-defined]
            error.add_note(_SPENT.format(spent.epsilon, spent.delta))
        raise


# To decorate `fit` itself would put a line of scikit-learn between `fit` and its caller, to which
# our warnings would then point.
@with_callbacks  # type: ignore[untyped-decorator]
def _tear_down(estimator: Any) -> None:
    """Do nothing: scikit-learn ends the callbacks of a fit after the decorated method."""


@contextmanager
def fit_task(training: Training, given: Given) -> Iterator[Callable[..., object]]:
    """Tell scikit-learn's callbacks that a fit begins and ends; yield a callback of iterations.

    Callbacks get the rows as the user gave them, and the model of the moment if they ask for it. On
    private fits they get neither: a monitor scores rows exactly, and no budget covers that.
    """
    estimator = training.estimator
    X, y, weight = given.X, given.y, given.sample_weight
    metadata = None if weight is None else {"sample_weight": weight}
    rows = {} if training.is_private else {"X": X, "y": y, "metadata": metadata}

    def watch(problem: Any, iterate: Iterate) -> object:
        iteration = fit.subcontext(task_name="iteration")
        iteration.call_on_fit_task_begin(estimator=estimator, **rows)
        model = (lambda: training.fitted(problem, iterate.x)) if rows else None
        return iteration.call_on_fit_task_end(
            estimator=estimator, **rows, reconstruction_attributes=model
        )

    try:
        fit = estimator._init_callback_context(max_subtasks=None)
        fit.call_on_fit_task_begin(estimator=estimator, **rows)
        yield watch
        none: Any = {} if rows else None
        fit.call_on_fit_task_end(estimator=estimator, **rows, reconstruction_attributes=none)
    finally:
        _tear_down(estimator)


class Record(NamedTuple):
    """Record of an iterate in the history. Each field is an entry of ``history_``."""

    objective: float
    error: float
    violation: float
    soft_violation: float
    residual: float
    multiplier: float  # the largest


def recorded(stack: MomentConstraint, iterate: Iterate) -> Record:
    """Return the record of an iterate, in the units of these constraints."""
    return Record(
        objective=float(iterate.soft[0]),
        error=float(iterate.hard[0]),
        violation=stack.measure(iterate.hard[1:]),
        soft_violation=stack.measure(iterate.soft[1:]),
        residual=iterate.residual,
        multiplier=float(iterate.dual.max()) if len(iterate.dual) else 0.0,
    )


#: Options of the bar of a fit that was not asked for one.
LATE: Mapping[str, Any] = {"delay": 2.0, "leave": False}


@contextmanager
def progress(
    name: str, length: int | None, verbose: int, late: Mapping[str, Any] = LATE, **options: Any
) -> Iterator[Callable[[Iterate], None]]:
    """Show a progress bar, with these options of tqdm; yield a callback of iterations.

    Fits that are not `verbose` show one `late`: on a terminal, from two seconds on. Those of
    parallel searches show none, as their bars would overwrite each other.
    """
    if not verbose:
        is_first = multiprocessing.current_process().name == "MainProcess"
        options = dict(late) if is_first and sys.stderr.isatty() else {"disable": True}
    with tqdm(total=length, desc=name, unit="it", **options) as bar:

        def tick(iterate: Iterate) -> None:
            violation = float(iterate.hard[1:].max()) if len(iterate.hard) > 1 else np.nan
            bar.set_postfix(
                refresh=False,  # which would not wait
                objective=f"{float(iterate.soft[0]):.4f}",
                error=f"{float(iterate.hard[0]):.4f}",
                excess=f"{violation:+.4f}",
            )
            bar.update()

        yield tick


def warn_of_undone(settings: Sequence[str]) -> None:
    """Warn of settings of a wrapped classifier that its constrained head undoes."""
    if settings:
        warn_caller(
            f"{'; '.join(settings)}: undone, because the constrained head calibrates the "
            "classifier's probabilities and sets the thresholds itself, for the least error. To "
            'weigh labels, write RateConstrainedClassifier(..., costs="balanced"), which counts '
            "errors within each label alike, or a matrix of costs: a threshold t is "
            "costs=[[0, t], [1 - t, 0]].",
            UndoneSettingWarning,
        )


def report(
    training: Training, solution: Solution, worst: int | None, undefined: Mapping[int, str]
) -> None:
    """Warn of a violated constraint, of `undefined` ratios, and of a fit that did not converge."""
    estimator = training.estimator
    excess, error = estimator.excess_, estimator.excess_error_
    how, remedies = "", ""
    if error > 0 and excess > error:  # an excess below its error says nothing
        how = f"by the released numbers it exceeds its slack by an estimated {excess:.4f}, with an "
        how += f"error of {error:.4f} (two standard deviations of the noise)"
        remedies = "a larger epsilon, more rows"
    elif error == 0 and not estimator.feasible_ and excess > 0:
        how = f"exceeds its slack by {excess:.4f} on {training.measured_on}"
        remedies = training.remedies
    if undefined:
        left_out = f"left out of the constraint: {'; '.join(dict.fromkeys(undefined.values()))}"
        empty = [name for name, value in estimator.violations_.items() if np.isnan(value)]
        rest = f"; {' and '.join(empty)} has nothing left to compare, so that feasible_ is False"
        warn_caller(f"{left_out}{rest if empty else ''}.", UndefinedMetricWarning)
    if how:
        top = top_of_words(estimator.classes_.tolist() if hasattr(estimator, "pos_label_") else [])
        warn_caller(
            f"{estimator.constraints_[worst]}: {how}{top and f'; {top}'}. Try a larger slack, "
            f"{remedies}, or min_group_size to leave small groups out.",
            ConstraintNotSatisfiedWarning,
        )
    own, better = solution.iterate, solution.better or solution.iterate
    if better is not own:
        name = type(estimator.solver).__name__
        warn_caller(
            f"{name} keeps its result, of error {float(own.hard[0]):.4f} and excess over the slack "
            f"{own.excess:.4f}. A baseline (equal scores, the model without constraints, a "
            f"relaxation, or another intercept) has {float(better.hard[0]):.4f} and "
            f"{better.excess:.4f}. To let baselines replace it, write takes_known = True in class "
            f"{name}.",
            ConvergenceWarning,
        )
    residual = own.residual
    unfinished = solution.status is Status.FINISHED and estimator.tol < residual < np.inf
    if unfinished or solution.ended is Status.MAX_ITER:
        advice = "Increase max_iter, or tol."
        if unfinished:
            advice = "The solver got no further. Scale the features, or increase tol."
        warn_caller(
            f"{type(estimator).__name__} stopped after {solution.n_iter} iterations with residual "
            f"{residual:.1e} > tol={estimator.tol:g}. {advice}",
            ConvergenceWarning,
        )


def report_equal(estimator: Any, stage: Stage, looser: Stage | None, narrowed: bool) -> None:
    """Warn if equal scores are as good as the result, or nearly, because of the constraint."""
    problem, solution = stage
    model, error = problem.model, float(solution.iterate.hard[0])
    w = solution.iterate.x[: model.n_params]

    def ends(own: Rows) -> tuple[Tensor, Tensor]:
        scores = torch.cat([model.scores(w, rows.X).detach() for rows in own.pieces()])
        return scores.amin(dim=0), scores.amax(dim=0)

    low, high = map(torch.stack, zip(*problem.data.gather(ends), strict=True))
    kept = "slack less the margin" if narrowed else "slack"
    because = looser is not None or solution.status is Status.KNOWN  # of the constraint
    if because and torch.equal(low.amin(dim=0), high.amax(dim=0)):
        what = f"gives all rows equal scores: the solver found nothing better that keeps the {kept}"
    elif looser is not None:
        what = f"has an error of {error:.4f}, and equal scores have {solution.equal:.4f}: the "
        what += f"{kept} allows hardly anything better"
    else:
        return
    larger = "a larger slack"
    if getattr(estimator.constraint, "ratio", None) is not None:
        larger = "a smaller ratio"
    elif looser is not None:
        slack, other = looser.problem.constraint.slack, float(looser.solution.iterate.hard[0])
        more = float((slack - problem.constraint.slack).max())
        same = not narrowed and len(slack.unique()) == 1
        how = f"slack={float(slack[0]):.3g}" if same else f"{more:.3g} more slack"
        larger += f" (with {how} the error is {other:.4f})"
    smaller = " a smaller margin," if narrowed else ""
    warn_caller(
        f"{type(estimator).__name__} {what}. Try {larger},{smaller} another solver, a richer "
        "model, or min_group_size to leave small groups out.",
        ConvergenceWarning,
    )
