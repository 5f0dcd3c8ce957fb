"""The parameters and samples of a fit, validated, with labels and groups as indices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from sklearn.utils import _safe_indexing, check_random_state
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from torch import Tensor

from fairconstrained.arrays import Array, Floats, Ints
from fairconstrained.constraints.notions import naming
from fairconstrained.constraints.tables import Space
from fairconstrained.distributed import ALONE, Workers, check_device
from fairconstrained.engines import Table
from fairconstrained.exceptions import (
    MissingSensitiveFeaturesWarning,
    SmallGroupWarning,
    warn_caller,
)
from fairconstrained.groups import GroupsOfAll
from fairconstrained.inputs.description import Description, described
from fairconstrained.inputs.groups import (
    categories,
    group_name,
    read_groups,
    recoded,
    within_strata,
)
from fairconstrained.inputs.labels import best_of, order_of
from fairconstrained.inputs.samples import check_samples, check_weights
from fairconstrained.losses import LOSSES
from fairconstrained.models.short_forms import as_specification
from fairconstrained.privacy.accounting import Budget
from fairconstrained.solvers.base import Solver

if TYPE_CHECKING:
    from fairconstrained.estimators._base import FairClassifier

_MANY_GROUPS = 20
_FEW_SAMPLES = 5


Rule = tuple[str, Callable[[Any], bool]]  # the allowed values in words, and a check of one


def is_number(value: Any, kind: type = Real) -> bool:
    """Whether a value is a number of this kind; booleans are none."""
    return isinstance(value, kind) and not isinstance(value, (bool, np.bool_))


def is_range(value: Any) -> bool:
    """Whether a value is a pair of ends of intervals, one interval or one for each column."""
    try:
        low, high = (np.asarray(end, dtype=float) for end in value)
        with np.errstate(all="ignore"):
            squares = np.square(high - low)  # norms of rows in units of the range need them
            finite = np.isfinite([low + high, 1.0 / squares, squares])
        return bool(finite.all() and (low < high).all())
    except (TypeError, ValueError):
        return False


def given_callbacks(callbacks: Any) -> list[Callable[..., object]] | None:
    """The callables in a ``callbacks`` parameter, or None if it holds anything else."""
    given = [callbacks] if callable(callbacks) else callbacks or ()
    valid = isinstance(given, (list, tuple)) and all(map(callable, given))
    return list(given) if valid else None


_FLAG: Rule = "True or False", lambda v: isinstance(v, (bool, np.bool_))
_NOT_NEGATIVE: Rule = "a finite number >= 0", lambda v: is_number(v) and 0 <= v < inf
_POSITIVE: Rule = "a finite number > 0", lambda v: is_number(v) and 0 < v < inf
_COUNT: Rule = "an integer >= 1", lambda v: is_number(v, Integral) and v >= 1
_DELTA: Rule = "a number in [1e-10, 1)", lambda v: is_number(v) and 1e-10 <= v < 1

# What values of a parameter must be, and whether one is that; others are checked by their readers.
_RULES: dict[str, Rule] = {
    "solver": (
        "None or a solver object, such as fairconstrained.solvers.SGDA()",
        lambda v: v is None or isinstance(v, Solver),
    ),
    "alpha": _NOT_NEGATIVE,
    "max_iter": (f"None or {_COUNT[0]}", lambda v: v is None or _COUNT[1](v)),
    "tol": ("a number > 0", lambda v: is_number(v) and v > 0),
    "callbacks": ("a callable or a list of callables", lambda v: given_callbacks(v) is not None),
    "verbose": ("an integer >= 0", lambda v: isinstance(v, (Integral, np.bool_)) and int(v) >= 0),
    "warm_start": _FLAG,
    "slack": ("a number >= 0", lambda v: is_number(v) and v >= 0),
    "margin": _NOT_NEGATIVE,
    "missing_sensitive": (
        "one of ['raise', 'warn']",
        lambda v: isinstance(v, str) and v in ("warn", "raise"),
    ),
    "min_group_size": (
        "'auto' or an integer >= 0",
        lambda v: v == "auto" if isinstance(v, str) else is_number(v, Integral) and v >= 0,
    ),
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


def check_parameters(estimator: Any) -> None:
    """Raise ValueError for the first parameter that is not valid, before any work."""
    owner, params, rules = type(estimator).__name__, estimator.get_params(deep=False), _RULES
    if "epsilon" in params:
        allowed = estimator._protects
        units = f"one of {sorted(allowed)}", lambda v: isinstance(v, str) and v in allowed
        rules = {**_RULES, "protect": units, "epsilon.unit": units}
        if isinstance(estimator.epsilon, Budget):
            budget = estimator.epsilon._asdict()
            params |= {f"epsilon.{name}": value for name, value in budget.items()}
    for name, value in params.items():
        if name in rules and not rules[name][1](value):
            raise ValueError(f"{owner}.{name} must be {rules[name][0]}; got {value!r}.")
    as_specification(estimator.model).check()
    check_device(f"{owner}.device", estimator.device)
    estimator._notions()


def check_strata(estimator: FairClassifier, given: Given) -> None:
    """Raise ValueError for a table of an engine, or a criterion, that takes no control features."""
    if isinstance(given.X, Table):
        raise ValueError(
            f"control_features must be None if X is a table of {given.X.engine}, whose rows stay "
            "where they are: read them in Blocks, or train on one shard a worker."
        )
    for notion in estimator._notions():
        if not (estimator._within_strata and notion.within_strata):
            raise ValueError(
                "control_features must be None: groups are compared within strata by parity of "
                "rates and of losses (RateConstrainedClassifier, LossParityClassifier); got "
                f"{type(estimator).__name__}(constraint={notion!r})."
            )


class Given(NamedTuple):
    """The data as the user gave them to ``fit``."""

    X: Any
    y: Any
    sensitive_features: Any
    sample_weight: Any
    n_control: int = 0  # how many of the sensitive features, the last ones, are control features

    def within_strata(self, control_features: Any) -> Given:
        """The groups crossed with the strata of control features."""
        check_samples(X=self.X, y=self.y, control_features=control_features)
        if self.sensitive_features is None:  # a warning will say so
            return self
        crossed, n_control = within_strata(self.sensitive_features, control_features)
        return self._replace(sensitive_features=crossed, n_control=n_control)


@dataclass(frozen=True)
class TrainingRows:
    """Samples with class and group indices, and the classes and groups behind the indices."""

    X: Any  # as the model takes it
    y: Array  # (n,) class indices
    # (n,) group indices: -1, or the one after the last if `unknown`, for no known one; or shares
    # (n, n_groups) of each row in the groups.
    group: Any
    weight: Floats  # (n,) positive
    classes: Array
    groups: Array | None  # None if there are no sensitive features
    workers: Workers = ALONE  # that have the other rows
    weight_range: tuple[float, float] | None = None  # of all workers; None: that of these rows
    unknown: bool = False  # whether any worker has rows of unknown group
    n_control: int = 0  # columns of control features among those whose values name the groups
    columns: tuple[Any, ...] | None = None  # names of those of the groups, in order
    order: list[Any] | None = None  # of the labels as ordered categories, the best one last
    stands_for: Tensor | None = None  # how many rows of its label a row of known group stands for

    @property
    def favourable(self) -> Any:
        """The best of two labels by the order of categories; None: they have none."""
        return best_of(self.classes.tolist(), self.order) if len(self.classes) == 2 else None

    @property
    def description(self) -> Description:
        """The groups, their columns and the labels, with which later data must agree."""
        groups = [] if self.groups is None else self.groups.tolist()
        labels = Description(labels=tuple(self.classes.tolist()), favourable=self.favourable)
        return described(groups, self.columns, labels, "sensitive_features")

    @cached_property
    def cells(self) -> Tensor:
        """Number of rows of each label and group, of all workers."""
        n_classes, n_groups = shape = self.space.shape
        if self.group.ndim == 2:
            shares = torch.as_tensor(self.group)
            own = torch.zeros(shape, dtype=shares.dtype)
            own.index_add_(0, torch.as_tensor(self.y.astype(np.int64)), shares)
            return self.workers.sum(own).round().clamp_min(0).long()
        cell = (self.y.astype(np.int64) * n_groups + self.group)[self.group >= 0]
        counted = np.bincount(cell, minlength=n_classes * n_groups).reshape(shape)
        return self.workers.sum(torch.as_tensor(counted, dtype=torch.int64))

    def groups_or_draws(self, seed: int) -> Ints:
        """Group indices (n,), -1 where no group is known; drawn where rows have shares in groups.

        Models of the group learn the same probabilities from draws as from shares. Where known
        groups correct the shares, models learn from the known groups alone: the shares of other
        rows were estimated from the groups of rows in all folds, and would leak them.
        """
        n_groups = len(self.space.groups)
        if self.group.ndim == 1:
            return np.where(self.group < n_groups, self.group, -1)
        below = np.cumsum(np.maximum(self.group, 0.0), axis=1)
        drawn = np.random.default_rng(seed).random((len(below), 1)) * below[:, -1:]
        found = np.minimum((below <= drawn).sum(axis=1), n_groups - 1)
        if self.group.min() < 0:
            found[(self.group.min(axis=1) >= 0) & (self.group.max(axis=1) < 1)] = -1
        return np.asarray(found)

    @property
    def space(self) -> Space:
        """The labels and groups to which criteria are bound."""
        groups: Any = ["all"] if self.groups is None else self.groups
        classes: Any = self.classes
        return Space(classes, groups, self.unknown, self.n_control, self.stands_for)

    @property
    def weight_of_labels(self) -> Tensor:
        """Weight of the rows of known group, and of all rows, of each label, (2, n_classes)."""
        n_classes, n_groups = len(self.classes), len(self.space.groups)
        known = self.group < n_groups if self.group.ndim == 1 else np.ones(len(self.y))
        weights = [np.bincount(self.y, w, n_classes) for w in (self.weight * known, self.weight)]
        return self.workers.sum(torch.as_tensor(np.stack(weights)))

    def standing_for_all(self) -> TrainingRows:
        """The rows, of which those of known group stand for all rows of their label."""
        some, every = self.weight_of_labels
        return replace(self, stands_for=torch.where(some > 0, every / some, 1.0))


def own_rows(estimator: FairClassifier, given: Given) -> TrainingRows:
    """Validate the samples of this worker; drop those of weight zero."""
    X, y = as_specification(estimator.model).training_rows(estimator, given.X, given.y)
    check_classification_targets(y)
    weight = checked_weight(given.sample_weight, len(y))
    codes = labels = columns = None
    if given.sensitive_features is not None:
        before = last_description(estimator)
        (codes, labels), after = read_groups(given.sensitive_features, len(y), before)
        columns = after.columns
    used = weight > 0
    if not used.all():  # as if these rows were not there
        X, y, weight = _safe_indexing(X, np.flatnonzero(used)), y[used], weight[used]
        if codes is not None and labels is not None:  # groups that still have rows, renumbered
            codes = codes[used]
            if codes.ndim == 1:
                seen = np.isin(np.arange(len(labels)), codes)
                codes, labels = recoded(codes, np.cumsum(seen) - 1), labels[seen]
    classes, y = np.unique(y, return_inverse=True)
    rows = TrainingRows(X, y.reshape(-1), codes, weight, classes, labels)
    return replace(rows, columns=columns, order=order_of(given.y))


def last_description(estimator: FairClassifier) -> Description | None:
    """Return the description of the data of the last fit, if a fit goes on from there."""
    return getattr(estimator, "_description_", None) if estimator.warm_start else None


def checked_rows(estimator: FairClassifier, rows: TrainingRows) -> TrainingRows:
    """Return the rows, in one group if none are known, if the criteria are defined for them."""
    name, classes, groups = type(estimator).__name__, rows.classes, rows.groups
    if groups is not None and len(groups) > _MANY_GROUPS:
        n_samples = int(rows.cells[:, : len(groups)].sum())
        if getattr(estimator, "epsilon", None) is not None:  # how many are missing is protected
            n_samples = int(rows.workers.sum(torch.tensor(len(rows.y))))
        how = "Bin a measurement first, as by pandas.qcut(column, 4), and cross fewer columns."
        if _FEW_SAMPLES * len(groups) > n_samples:
            raise ValueError(
                f"sensitive_features has {len(groups):,} groups in {n_samples:,} samples, most of "
                f"them of fewer than {_FEW_SAMPLES}: {name} cannot compare them. {how}"
            )
        if groups.dtype.kind in "fiu":
            warn_caller(
                f"sensitive_features has {len(groups)} different numbers, each of which is taken "
                f"for a group. {how}",
                SmallGroupWarning,
            )
    if len(classes) < 2:
        raise ValueError(
            f"{name} needs samples of at least 2 classes; the data have only one class: "
            f"{classes[0]}."
        )
    if len(classes) > 2 and not estimator.__sklearn_tags__().classifier_tags.multi_class:
        raise ValueError(
            "Only binary classification is supported. The type of the target is "
            f"{type_of_target(classes)}: {name} ranks one class above one other."
        )
    for notion in estimator._notions():
        naming(notion, rows.favourable).positive(classes)
        if np.ndim(rows.group) == 2 and getattr(notion, "attributes", "crossed") != "crossed":
            raise ValueError(
                "sensitive_features must be columns of groups where attributes are compared side "
                f"by side; got shares of the rows in groups for {notion!r}."
            )
    return with_groups(estimator, rows)


def with_groups(estimator: FairClassifier, rows: TrainingRows) -> TrainingRows:
    """Return the rows, in one group if none are known; say what constraints then leave out."""
    groups, declared = rows.groups, rows.unknown
    missing = groups is not None and rows.group.ndim == 1
    missing = missing and any(rows.workers.gather(bool((rows.group < 0).any())))
    if groups is None or not len(groups):
        found = "not given" if groups is None else "missing in every row"
        rows = replace(rows, group=np.zeros(len(rows.y), dtype=np.int64), groups=None)
    elif missing or declared:
        places = np.arange(len(groups) + 1, dtype=rows.group.dtype)
        rows = replace(rows, group=places[rows.group], unknown=True)
        if missing and (not declared or estimator.missing_sensitive == "raise"):
            tell(estimator, unknown_groups(estimator, rows))
        found = f"{group_name(groups[0])} wherever it is known, a single group"
    else:
        found = f"all {group_name(groups[0])}, a single group"
    if rows.groups is None or len(rows.groups) < 2:
        tell(
            estimator,
            f"sensitive_features is {found}: {type(estimator).__name__} cannot compare groups and "
            "imposes no constraint between them, so that feasible_ is False. Pass "
            "sensitive_features to fit, through a pipeline or search with "
            "sklearn.set_config(enable_metadata_routing=True).",
        )
    return rows


def tell(estimator: FairClassifier, message: str) -> None:
    """Warn, or raise if ``missing_sensitive`` says so, where a criterion needs groups."""
    if any(notion.needs_groups for notion in estimator._notions()):
        if estimator.missing_sensitive == "raise":
            raise ValueError(message)
        warn_caller(message, MissingSensitiveFeaturesWarning)


def unknown_groups(estimator: FairClassifier, rows: TrainingRows) -> str:
    """Say what becomes of rows of unknown group; of a private fit their number is secret."""
    count = f"{int(rows.cells[:, -1].sum()):,} of {int(rows.cells.sum()):,} rows"
    rest = "the others of a label stand for all of it"
    right = "groups are missing at random within each label"
    if getattr(estimator, "epsilon", None) is not None:
        count, rest = "some rows", "others do not stand for them"
        right = "whether a group is missing depends on the group alone"
    return (
        f"sensitive_features is missing for {count}: they train the model, and in constraints "
        f"between groups {rest}. That is right if {right}."
    )


def checked_weight(sample_weight: Any, n_samples: int) -> Floats:
    """Return sample weights, of which one is positive at least; ones for None."""
    weight = check_weights(sample_weight, n_samples)
    if not weight.any():
        raise ValueError("sample_weight is zero for all samples; at least one must be positive.")
    return weight


def random_seed(random_state: Any) -> int:
    """A seed for torch from ``random_state``, as scikit-learn reads it."""
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


class Domains(NamedTuple):
    """The public labels and groups of a private fit, None where the rows themselves tell."""

    classes: list[Any] | None = None
    groups: list[Any] | None = None
    unknown: bool = False  # whether there is a place for rows of unknown group

    def of(self, rows: TrainingRows) -> TrainingRows:
        """Return the rows with all labels and groups of the domains, whether or not they occur."""
        if self.classes is not None:
            y, labels = _recoded(rows.y, rows.classes, self.classes)
            rows = replace(rows, y=y, classes=labels)
        if self.groups is not None and rows.groups is not None:
            group, labels = _recoded(rows.group, rows.groups, self.groups)
            rows = replace(rows, group=group, groups=labels)
        return replace(rows, unknown=True) if self.unknown else rows


def declared_domains(y: Any, sensitive_features: Any) -> Domains:
    """Return the domains that pandas categoricals declare, or the whole of which this is a part."""
    classes = categories(y, "y")
    if isinstance(sensitive_features, GroupsOfAll):
        return Domains(classes, None, sensitive_features.unknown)
    groups = categories(sensitive_features, "sensitive_features")
    return Domains(classes, groups, unknown=groups is not None)


def _recoded(codes: Array, labels: Array, domain: list[Any]) -> tuple[Array, Array]:
    """Codes of labels as codes in a domain that holds them, and the domain as an array."""
    place = {label: i for i, label in enumerate(domain)}
    places = [place[label] for label in labels.tolist()]
    array = np.empty(len(domain), dtype=object)  # labels of crossed columns are tuples
    array[:] = domain
    return recoded(codes, places), array if isinstance(domain[0], tuple) else np.array(domain)
