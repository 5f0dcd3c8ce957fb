"""The task of a fit: its parameters, checked, and the functions that it goes through."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import check_random_state
from torch import Generator, Tensor, nn

from fairconstrained.arrays import as_numpy, is_number
from fairconstrained.comparison import SIZES, is_size
from fairconstrained.constraints.moments import MomentConstraint, stacked
from fairconstrained.constraints.notions import naming
from fairconstrained.exceptions import SmallGroupWarning, UndoneSettingWarning, warn_caller
from fairconstrained.fit.undone_settings import undone_settings
from fairconstrained.inputs.values import Description, listed
from fairconstrained.losses import LOSSES, log_loss
from fairconstrained.models.cross_fitting import is_scoring_classifier
from fairconstrained.models.posteriors import Posteriors
from fairconstrained.models.specification import Linear, Network, Specification, are_sizes
from fairconstrained.privacy.accounting import Budget, PrivacyGuarantee
from fairconstrained.problems.objectives import MeanLoss, Objective
from fairconstrained.sharing import NO_STORE
from fairconstrained.solvers.base import Solution, Solver, check_solves

# ---------------------------------------------------------------------- rules of parameters

Rule = tuple[str, Callable[[Any], bool]]  # the allowed values in words, and a check of one


def is_range(value: Any) -> bool:
    """Return whether a value is a pair of ends (low, high), numbers or one for each column."""
    try:
        low, high = (np.asarray(end, dtype=float) for end in value)
        with np.errstate(all="ignore"):
            squares = np.square(high - low)  # norms of rows in units of the range need them
            finite = np.isfinite([low + high, 1.0 / squares, squares])
        return bool(finite.all() and (low < high).all())
    except (TypeError, ValueError):
        return False


def is_seed(value: Any) -> bool:
    """Return whether scikit-learn accepts a value as a seed."""
    try:
        check_random_state(value)
    except ValueError:
        return False
    return True


def callbacks_in(callbacks: Any) -> list[Callable[..., object]] | None:
    """Return the callables in a ``callbacks`` parameter, or None if it holds anything else."""
    callbacks = [callbacks] if callable(callbacks) else callbacks or ()
    valid = isinstance(callbacks, (list, tuple)) and all(map(callable, callbacks))
    return list(callbacks) if valid else None


def as_specification(model: Any) -> Specification:
    """Convert a ``model`` parameter to a specification; raise ValueError for anything else."""
    if isinstance(model, Specification):
        return model
    if isinstance(model, str) and model == "linear":
        return Linear()
    if isinstance(model, type) and not issubclass(model, nn.Module):
        raise ValueError(f"model is a class; give an object of it, {model.__name__}().")
    if not isinstance(model, type) and is_scoring_classifier(model):
        return Posteriors(model)
    if callable(model) or are_sizes(model):
        return Network(model)
    raise ValueError(
        "model must be 'linear', a tuple of hidden sizes such as (64, 32), a callable (n_features, "
        "n_outputs) -> nn.Module, a scikit-learn classifier, or an object of "
        f"fairconstrained.models; got {model!r}."
    )


_FLAG: Rule = "True or False", lambda v: isinstance(v, (bool, np.bool_))
_NOT_NEGATIVE: Rule = "a finite number >= 0", lambda v: is_number(v) and 0 <= v < inf
_POSITIVE: Rule = "a finite number > 0", lambda v: is_number(v) and 0 < v < inf
_COUNT: Rule = "an integer >= 1", lambda v: is_number(v, Integral) and v >= 1
_DELTA: Rule = "a number in [1e-10, 1)", lambda v: is_number(v) and 1e-10 <= v < 1

# Parameters that are not listed are checked by their readers.
_RULES: dict[str, Rule] = {
    "solver": (
        "None or a solver object, such as fairconstrained.solvers.SGDA()",
        lambda v: v is None or isinstance(v, Solver),
    ),
    "alpha": _NOT_NEGATIVE,
    "max_iter": (f"None or {_COUNT[0]}", lambda v: v is None or _COUNT[1](v)),
    "tol": ("a number > 0", lambda v: is_number(v) and v > 0),
    "callbacks": ("a callable or a list of callables", lambda v: callbacks_in(v) is not None),
    "verbose": ("an integer >= 0", lambda v: isinstance(v, (Integral, np.bool_)) and int(v) >= 0),
    "warm_start": _FLAG,
    "slack": ("a number >= 0", lambda v: is_number(v) and v >= 0),
    "margin": _NOT_NEGATIVE,
    "missing_sensitive": (
        "one of ['raise', 'warn']",
        lambda v: isinstance(v, str) and v in ("warn", "raise"),
    ),
    "min_group_size": (SIZES, is_size),
    "random_state": ("None, an integer in [0, 2**32) or a numpy.random.RandomState", is_seed),
    "group_features": _FLAG,
    "penalty": _NOT_NEGATIVE,
    "loss": (f"one of {sorted(LOSSES)}", lambda v: isinstance(v, str) and v in LOSSES),
    "objective": ("one of ['auc', 'log']", lambda v: isinstance(v, str) and v in ("auc", "log")),
    "stream_memory": _COUNT,
    "epsilon": (
        f"None or {_POSITIVE[0]}",
        lambda v: v is None or isinstance(v, Budget) or _POSITIVE[1](v),
    ),
    "delta": _DELTA,
    "epsilon.epsilon": _POSITIVE,  # of a Budget
    "epsilon.delta": _DELTA,
    "feature_range": (
        "None or a pair (low, high) of finite numbers or of arrays of shape (n_features,), with "
        "low < high in every column, and widths whose squares are finite",
        lambda v: v is None or is_range(v),
    ),
}


def check_parameters(owner: str, params: Mapping[str, Any], units: Sequence[str]) -> None:
    """Raise ValueError for the first invalid parameter; `units` are allowed units of privacy."""
    unit = f"one of {sorted(units)}", lambda v: isinstance(v, str) and v in units
    rules = {**_RULES, "protect": unit, "epsilon.unit": unit}
    budget = params.get("epsilon")
    if isinstance(budget, Budget):
        # A budget is checked entry by entry, so that the error names the entry.
        params = {**params, **{f"epsilon.{k}": value for k, value in budget._asdict().items()}}
    for name, value in params.items():
        if name in rules and not rules[name][1](value):
            raise ValueError(f"{owner}.{name} must be {rules[name][0]}; got {value!r}.")


# ---------------------------------------------------------------------- tasks


@dataclass(frozen=True, eq=False, kw_only=True)
class Task:
    """The checked parameters of one fit, and the functions that carry it out.

    Estimators choose each function by itself: `read` the rows, `learn` the columns of the model,
    `pose` a problem on them, `solve` it, and return the `attributes` of the trained model.
    """

    name: str  # of the estimator, in messages
    params: Mapping[str, Any]  # as the user gave them
    notions: Sequence[Any]
    bounds: tuple[Any, ...] = ()  # arguments with which criteria are bound: a slack, an interval
    specification: Any  # a Specification; `learn` fits it
    solver: Any = None  # a Solver, once the task is complete
    problem_class: Any = None  # says what the problem will offer to solvers
    risk: Callable[[Any], Objective] = lambda rows: MeanLoss(log_loss)  # the objective on rows
    multi_class: bool
    within_strata: bool  # whether groups may be compared within strata of control features
    alpha: float
    max_iter: int | None
    tol: float
    margin: float = 0.0
    missing_sensitive: str
    min_group_size: int | str
    callbacks: Any
    random_state: Any
    verbose: int
    device: str
    feature_range: Any = None
    budget: Budget | None = None  # of a private fit
    last: Mapping[str, Any] | None = None  # attributes of the last fit, from which this one starts
    described: Description | None = None  # of the data of the last fit
    read: Any = None  # Task, estimator, FitInputs, Workers -> TrainingRows
    learn: Any = None  # Fit -> Fit, with the columns of the model
    pose: Any = None  # Fit -> problem, and descriptions of groups that are not compared
    build: Any = None  # Fit, model, rows, constraint, counts of its parts, Releases -> problem
    warn_of_parts: Any = None  # constraint, released counts of labels and groups, PrivacyGuarantee
    solve: Any = None  # Fit, problem -> Solved
    # Fit, problem, parameters -> the attributes of the trained model
    attributes: Any = lambda fit, problem, w: problem.model.attributes(w)
    # Fit, problem, point -> hard values of a fitted classifier on its training rows; the problem's
    # own values are out of fold.
    measure: Any = None
    plan: Any = None  # number of rows -> PrivacyGuarantee of all releases
    expand: Any = None  # rows, table, groups -> a table of more columns
    measured_on: str = "the training data"  # words of warnings, as are the remedies
    remedies: str = "more iterations (max_iter), a richer model"

    @property
    def is_private(self) -> bool:
        """Whether the fit has a budget of differential privacy."""
        return self.budget is not None

    @property
    def hidden(self) -> dict[str, None]:
        """Attributes of rows that private fits withhold from the model, for ``replace``."""
        if self.budget is None:
            return {}
        only_groups = self.budget.unit == "sensitive_features"
        return {"group": None} if only_groups else {"y": None, "group": None}


@dataclass(frozen=True, eq=False, repr=False)
class Fit:
    """A fit under way, as its steps see it. Only the ledger grows."""

    task: Task
    rows: Any  # TrainingRows
    rng: Generator  # the only source of randomness, except for dropout in networks
    ledger: list[PrivacyGuarantee]  # of all releases that may have been made so far
    watch: Callable[..., object] | None = None  # of the fit, a problem and each iterate
    data: Any = None  # Rows with the columns of the model, as problems see them, by `learn`
    learnt: Any = None  # other results of `learn`, for later steps

    def shared(self, name: str, compute: Callable[[], Any]) -> Any:
        """Return the result of `compute`, once for all fits of clones to these rows."""
        if self.digest is None:
            return compute()
        return self.task.specification.handle.recall((self.digest, name), compute)

    @cached_property
    def digest(self) -> bytes | None:
        """A digest of rows and parameters without the slack; None if it could miss other rows."""
        task, rows = self.task, self.rows
        # Other workers' rows and files may change while these rows stay the same.
        outside = rows.workers.size > 1 or not self.data.in_memory
        if outside or task.specification.handle is NO_STORE:
            return None
        # What is shared does not depend on the slack, and callbacks have no value of their own.
        params = {k: v for k, v in task.params.items() if k not in ("slack", "callbacks")}
        columns = as_numpy(self.data.X.X)
        inputs = task.name, params, columns, rows.y, rows.group, rows.weight
        digest: bytes | None = task.specification.handle.digest(*inputs)
        return digest


class Stage(NamedTuple):
    """A problem and its solution."""

    problem: Any
    solution: Solution


class Solved(NamedTuple):
    """The stages of a solution; the last one counts."""

    stages: list[Stage]
    looser: Stage | None = None  # with larger slacks, where equal scores are nearly as good


def checked(task: Task) -> Task:
    """Return the task; raise an error if its solver or its model is for other problems."""
    if task.specification.needs_label_rates:
        raise ValueError(
            f"{task.name}.model cannot be {type(task.specification).__name__}, which needs rates "
            "of predicted labels: RateConstrainedClassifier without epsilon."
        )
    check_solves(task.solver, task.problem_class)
    # With costs the user has said how labels weigh, and does not miss the classifier's weights.
    if task.params.get("costs") is None and isinstance(task.specification, Posteriors):
        settings = undone_settings(task.specification.estimator)
        if settings:
            warn_caller(
                f"{'; '.join(settings)}: undone, because the constrained head calibrates the "
                "classifier's probabilities and sets the thresholds itself, for the least error. "
                'To weigh labels, write RateConstrainedClassifier(..., costs="balanced"), which '
                "counts errors within each label alike, or a matrix of costs: a threshold t is "
                "costs=[[0, t], [1 - t, 0]].",
                UndoneSettingWarning,
            )
    return task


# ---------------------------------------------------------------------- constraints of a task

COUNTED = ", by the released counts, which are noisy"


def bound_constraints(
    task: Task, rows: Any, counts: Tensor, least: int | str
) -> list[tuple[MomentConstraint, list[str]]]:
    """Return each constraint without values that are not compared, and descriptions of these."""
    space, bound = rows.space, []
    for place, notion in enumerate(task.notions):
        # A single group satisfies every comparison; a warning has said so.
        labels = space.labels_of(notion.attributes)
        if len(labels) > 1 or not notion.needs_groups:
            constraint = naming(notion, rows.favourable).bind(space, *task.bounds)
            member, words = constraint.without_small(counts.cpu().numpy(), least)
            columns = zip(*labels, strict=True) if space.partly else ()
            empty = [k for k, column in enumerate(columns) if set(column) == {None}]
            names = [f"all groups by {space.columns[k]} (0 rows)" for k in empty]
            if notion.needs_groups and not task.is_private:  # weights may tell secret groups
                names += rows.without_weight(notion.attributes)
            bound.append((member.at(place), [*names, *words]))
    return bound


def stack_of_all(task: Task, rows: Any, counts: Tensor, least: int | str) -> MomentConstraint:
    """Stack all constraints without their small groups, also constraints without any values."""
    bound = bound_constraints(task, rows, counts, least)
    return stacked(rows.space, [member for member, _ in bound])


def stack(
    task: Task, rows: Any, counts: Tensor, least: int | str
) -> tuple[MomentConstraint, list[str]]:
    """Stack the constraints, and warn of values that are not compared; also return their names."""
    members, left_out = [], []
    counted = COUNTED if task.is_private else ""
    for member, dropped in bound_constraints(task, rows, counts, least):
        if dropped:
            left_out += [f"{words}{counted}" for words in dropped]
            rest = "says nothing about them"
            if not len(member.slack):
                rest = "has nothing left to compare, so that feasible_ is False"
            warn_caller(
                f"{member.name} leaves out {listed(dropped, between='; ')}{counted} "
                f"(min_group_size={least!r}). The constraint {rest}.",
                SmallGroupWarning,
            )
        # A criterion without values would be "kept" by every model.
        if len(member.slack):
            members.append(member)
    return stacked(rows.space, members), left_out


def part_of_cell(task: Task, rows: Any) -> Any:
    """Return the index of the part of each label and known group; -1 for those in no part."""
    counts, least = rows.cells, task.min_group_size
    if task.is_private:
        # Which cells are small is secret, and the columns of a private fit must not reveal it.
        counts, least = rows.ample, 1
    parts = stack_of_all(task, rows, counts, least).partition.part_of_cell.numpy()
    return parts[:, : len(rows.space.groups)]


def check_label_based(fit: Fit) -> None:
    """Raise ValueError for criteria that are not about predicted labels."""
    task, space = fit.task, fit.rows.space
    bound = bound_constraints(task, fit.rows, fit.rows.cells, task.min_group_size)
    others = [one.name for one, _ in bound if not stacked(space, [one]).label_based]
    if others:
        raise ValueError(
            f"{type(task.specification).__name__} needs criteria on predicted labels; got "
            f"{', '.join(others)}. Posteriors takes it."
        )
