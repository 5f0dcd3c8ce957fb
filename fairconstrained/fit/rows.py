"""The samples of a fit: validated, with labels and groups as indices."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.utils import _safe_indexing
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from torch import Tensor

from fairconstrained.arrays import Array, Floats, Ints
from fairconstrained.constraints.notions import naming
from fairconstrained.constraints.tables import Space
from fairconstrained.distributed import ALONE, Workers
from fairconstrained.exceptions import (
    MissingSensitiveFeaturesWarning,
    SmallGroupWarning,
    warn_caller,
)
from fairconstrained.fit.task import Task
from fairconstrained.groups import GroupsOfAll
from fairconstrained.inputs.groups import (
    CROSSED,
    categories,
    coded_groups,
    column_names,
    group_name,
    n_complete,
    recoded,
    warn_of_groups,
)
from fairconstrained.inputs.labels import best_of, order_of
from fairconstrained.inputs.samples import check_weights
from fairconstrained.inputs.values import Description, described, listed, to_array, warn_of_values
from fairconstrained.models.specification import Specification

# Samples per group: columns with fewer hold names or numbers rather than groups.
_FEW_SAMPLES = 5


class FitInputs(NamedTuple):
    """Data in the form in which the user passed them to ``fit``."""

    X: Any
    y: Any
    sensitive_features: Any
    sample_weight: Any
    n_control: int = 0  # number of control features, the last of the sensitive features


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
    weight_range: tuple[float, float] | None = None  # of all workers; None: take it from these rows
    unknown: bool = False  # whether any worker has rows of unknown group
    n_control: int = 0  # number of control features, the last of the columns of groups
    columns: tuple[Any, ...] | None = None  # names of the columns of groups, in order
    order: list[Any] | None = None  # of the labels as ordered categories, the best one last
    partly: tuple[Any, ...] = ()  # labels of the first indices after the groups, with some None
    stood_for: Tensor | None = None  # weight of cells, where rows of known group represent all
    weightless: tuple[Any, ...] = ()  # groups whose rows all weigh zero, which are dropped

    @property
    def read_from(self) -> str:
        """The parameters of ``fit`` that have the columns of groups, for messages."""
        return CROSSED if self.n_control else "sensitive_features"

    @property
    def favourable(self) -> Any:
        """The best of two labels by the order of categories, or None."""
        return best_of(self.classes.tolist(), self.order)

    @property
    def description(self) -> Description:
        """The groups, their columns and the labels, with which later data must agree."""
        groups = [] if self.groups is None else [*self.groups.tolist(), *self.partly]
        labels = Description(labels=tuple(self.classes.tolist()), favourable=self.favourable)
        return described(groups, self.columns, labels, "sensitive_features")

    @cached_property
    def cells(self) -> Tensor:
        """Number of rows of each label and group, of all workers."""
        n_classes, n_groups = shape = self.space.shape
        if self.group.ndim == 2:
            shares = torch.as_tensor(self.group)
            sums = torch.zeros(shape, dtype=shares.dtype)
            sums.index_add_(0, torch.as_tensor(self.y.astype(np.int64)), shares)
            # Shares may be negative where known groups correct them, and add up to fractions of
            # rows.
            return self.workers.sum(sums).round().clamp_min(0).long()
        cell = (self.y.astype(np.int64) * n_groups + self.group)[self.group >= 0]
        counted = np.bincount(cell, minlength=n_classes * n_groups).reshape(shape)
        return self.workers.sum(torch.as_tensor(counted, dtype=torch.int64))

    @property
    def n_rows(self) -> int:
        """Number of rows of all workers."""
        return int(self.cells.sum())

    def without_weight(self, attributes: str) -> list[str]:
        """List groups whose rows all weigh zero, attribute by attribute if these are parallel."""
        if not self.weightless:
            return []
        n = len(self.space.crossed)

        def compared(label: Any) -> list[tuple[int, Any]]:
            if attributes != "parallel" or n == 1:
                return [(0, label)]
            return [(k, (label[k], *label[n:])) for k in range(n) if label[k] is not None]

        left = {one for label in self.space.labels_of(attributes) for one in compared(label)}
        gone = dict.fromkeys(one for label in self.weightless for one in compared(label))
        return [f"group {group_name(one[1])} (0 rows)" for one in gone if one not in left]

    @property
    def ample(self) -> Tensor:
        """Counts of each label and group that are so large that no constraint leaves one out."""
        return torch.full(self.space.shape, self.n_rows)

    def groups_or_draws(self, seed: int) -> Ints:
        """Return group indices (n,), -1 for unknown; draw them where rows have shares in groups.

        Models of the group learn the same probabilities from draws as from shares. Where known
        groups correct the shares, models learn from the known groups alone: the shares of other
        rows were estimated from the groups of rows in all folds, and would leak them.
        """
        n_groups = len(self.space.groups)
        if self.group.ndim == 1:
            return np.where(self.group < n_groups, self.group, -1)
        # Corrected shares outside [0, 1] are no probabilities: draw in proportion to the positive
        # ones.
        below = np.cumsum(np.maximum(self.group, 0.0), axis=1)
        drawn = np.random.default_rng(seed).random((len(below), 1)) * below[:, -1:]
        index = np.minimum((below <= drawn).sum(axis=1), n_groups - 1)
        if self.group.min() < 0:
            index[(self.group.min(axis=1) >= 0) & (self.group.max(axis=1) < 1)] = -1
        return np.asarray(index)

    @property
    def space(self) -> Space:
        """The labels and groups to which criteria are bound."""
        groups: Any = np.array(["all"]) if self.groups is None else self.groups
        classes: Any = self.classes
        unknown = len(self.partly) + self.unknown
        names = column_names(self.columns or ())
        return Space(classes, groups, unknown, self.n_control, self.stood_for, self.partly, names)

    @property
    def weight_of_labels(self) -> Tensor:
        """Weight of the rows of each label, (n_classes,)."""
        weights = np.bincount(self.y, self.weight, len(self.classes))
        return self.workers.sum(torch.as_tensor(weights))

    @property
    def weight_of_cells(self) -> Tensor:
        """Weight of the rows of each label and index of a group, of the shape of the space."""
        shape = self.space.shape
        cell = self.y.astype(np.int64) * shape[1] + self.group
        weights = np.bincount(cell, self.weight, shape[0] * shape[1])
        return self.workers.sum(torch.as_tensor(weights.reshape(shape)))


def validated(
    estimator: Any,
    specification: Specification,
    inputs: FitInputs,
    before: Description | None,
    needed: int | None = None,
) -> TrainingRows:
    """Validate the samples of this worker; drop rows of weight zero.

    scikit-learn notes the columns of X on the estimator. Groups agree with the description of an
    earlier fit, if there is one. See :func:`required` for the columns of groups that are `needed`.
    """
    # First, because scikit-learn's messages about X and y are those that users know.
    X, y = specification.training_rows(estimator, inputs.X, inputs.y)
    check_classification_targets(y)
    weight = checked_weight(inputs.sample_weight, len(y))
    codes = labels = columns = None
    weightless: tuple[Any, ...] = ()
    if inputs.sensitive_features is not None:
        # `checked_rows` compares the kinds of the groups with those before, wherever rows are.
        before = before and Description(before.columns)
        groups = inputs.sensitive_features
        (codes, labels), after = coded_groups(groups, len(y), before, required=needed)
        columns = after.columns
    used = weight > 0
    if not used.all():  # as if these rows were not there
        X, y, weight = _safe_indexing(X, np.flatnonzero(used)), y[used], weight[used]
        if codes is not None and labels is not None:
            codes, labels, weightless = with_rows(codes[used], labels)
    # After rows of weight zero are gone: a label of such rows alone is no class.
    classes, y = np.unique(y, return_inverse=True)
    rows = TrainingRows(X, y.reshape(-1), codes, weight, classes, labels)
    return replace(rows, columns=columns, order=order_of(inputs.y), weightless=weightless)


def with_rows(codes: Array, labels: Array) -> tuple[Array, Array, tuple[Any, ...]]:
    """Return the codes among groups that have rows, these groups, and groups without rows."""
    if codes.ndim == 2:
        return codes, labels, ()
    seen = np.isin(np.arange(len(labels)), codes)
    moved = recoded(codes, np.cumsum(seen) - 1).astype(codes.dtype)
    return moved, labels[seen], tuple(labels[~seen].tolist())


def weightless_everywhere(parts: Iterable[tuple[Any, ...]], groups: Array) -> tuple[Any, ...]:
    """Return the groups that weigh zero in some part of the rows, and have a weight in no part."""
    left = set(groups.tolist())
    return tuple(group for group in dict.fromkeys(chain(*parts)) if group not in left)


def required(task: Task, inputs: FitInputs) -> int | None:
    """Return the number of last columns that no row may lack to be compared; None: all columns."""
    parallel = any(notion.attributes == "parallel" for notion in task.notions)
    # Groups of private releases are a public domain, whatever is missing.
    return inputs.n_control if parallel and not task.is_private else None


def checked_rows(task: Task, rows: TrainingRows) -> TrainingRows:
    """Return the rows, in one group if no group is known, after checks by the criteria."""
    name, classes, groups = task.name, rows.classes, rows.groups
    names = [] if groups is None else groups.tolist()
    is_crossed = bool(names) and isinstance(names[0], tuple)
    if groups is not None and is_crossed and (complete := n_complete(groups)) < len(names):
        groups, partly = groups[:complete], tuple(names[complete:])
        rows = replace(rows, groups=groups, partly=partly, unknown=True)
    described(names, rows.columns, task.described, "sensitive_features")
    # For all rows: a warning about one worker or block would reveal which of them has a value.
    warn_of_values(classes.tolist(), "y", "label")
    warn_of_groups(names, rows.columns)
    attributes = {notion.attributes for notion in task.notions}
    n_groups = 0 if groups is None else len(groups)
    if is_crossed and attributes == {"parallel"}:
        n_groups = max(len({*column} - {None}) for column in zip(*names, strict=True))
    # Few groups may well have few rows each; many with few rows are hardly ever groups.
    if groups is not None and n_groups > 20:
        n_samples = int(rows.cells[:, : len(names)].sum())
        if task.is_private:  # how many are missing is protected
            n_samples = int(rows.workers.sum(torch.tensor(len(rows.y))))
        how = "Bin a measurement first, as by pandas.qcut(column, 4), and cross fewer columns."
        if _FEW_SAMPLES * n_groups > n_samples:
            raise ValueError(
                f"sensitive_features has {n_groups:,} groups in {n_samples:,} samples, most of "
                f"them of fewer than {_FEW_SAMPLES}: {name} cannot compare them. {how}"
            )
        if groups.dtype.kind in "fiu":
            warn_caller(
                f"sensitive_features has {n_groups} different numbers, each of which is taken "
                f"for a group. {how}",
                SmallGroupWarning,
            )
    if len(classes) < 2:
        raise ValueError(
            f"{name} needs samples of at least 2 classes; the data have only one class: "
            f"{classes[0]}."
        )
    if len(classes) > 2 and not task.multi_class:
        raise ValueError(
            "Only binary classification is supported. The type of the target is "
            f"{type_of_target(classes)}: {name} ranks one class above one other."
        )
    for notion in task.notions:
        naming(notion, rows.favourable).positive(classes)
        if np.ndim(rows.group) == 2 and attributes != {"crossed"}:
            raise ValueError(
                "sensitive_features must be columns of groups where attributes are compared side "
                f"by side; got shares of the rows in groups for {notion!r}."
            )
    return with_groups(task, rows)


def with_groups(task: Task, rows: TrainingRows) -> TrainingRows:
    """Return the rows, in one group if no group is known; warn if groups cannot be compared."""
    groups, declared = rows.groups, rows.unknown and not rows.partly
    messages = []
    names = [] if groups is None else [*groups.tolist(), *rows.partly]
    missing = groups is not None and rows.group.ndim == 1
    missing = missing and any(rows.workers.gather(bool((rows.group < 0).any())))
    missing = missing or len(rows.partly) > 0
    if not names:
        state = "is not given" if groups is None else "is missing in every row"
        rows = replace(rows, group=np.zeros(len(rows.y), dtype=np.int64), groups=None)
    elif missing or declared:
        # Index -1, for unknown, becomes the index after the last group: sums by cell need no
        # branch.
        places = np.arange(len(names) + 1, dtype=rows.group.dtype)
        rows = replace(rows, group=places[rows.group], unknown=True)
        if not task.is_private:  # rows of known group represent others in all later sums
            rows = replace(rows, stood_for=rows.weight_of_cells)
        if missing and (not declared or task.missing_sensitive == "raise"):
            messages.append(unknown_groups(task, rows))
        state = f"contains only the group {group_name(names[0])} where it is known"
        state = "lacks a value in every row" if names[0] in rows.partly else state
    else:
        state = f"contains only the group {group_name(names[0])}"
    compared = [len(rows.space.labels_of(n.attributes)) for n in task.notions if n.needs_groups]
    if min(compared, default=2) < 2:
        messages.append(
            f"{rows.read_from} {state}: {task.name} cannot compare groups and imposes no "
            "constraint between them, so that feasible_ is False. Pass sensitive_features to fit, "
            "through a pipeline or search with sklearn.set_config(enable_metadata_routing=True). "
            "The model of another constrained classifier gets none: the constraint is that one's."
        )
    if messages and any(notion.needs_groups for notion in task.notions):
        if task.missing_sensitive == "raise":
            raise ValueError(messages[0])
        for message in messages:
            warn_caller(message, MissingSensitiveFeaturesWarning)
    return rows


def unknown_groups(task: Task, rows: TrainingRows) -> str:
    """Return a message on rows of unknown group, whose number private fits keep secret."""
    n_unknown = int(rows.cells[:, len(rows.space.groups) :].sum())
    count = f"{n_unknown:,} of {int(rows.cells.sum()):,} rows"
    rest = "the others of a label stand for all of it"
    if rows.partly:
        rest += ", attribute by attribute where these are parallel"
    right = "groups are missing at random within each label"
    if task.is_private:
        count, rest = "some rows", "others do not stand for them"
        right = "whether a group is missing depends on the group alone"
    return (
        f"{rows.read_from} is missing for {count}: they train the model, and in constraints "
        f"between groups {rest}. That is right if {right}."
    )


def checked_weight(sample_weight: Any, n_samples: int) -> Floats:
    """Return sample weights, ones for None; at least one must be positive."""
    weight = check_weights(sample_weight, n_samples)
    if not weight.any():
        raise ValueError("sample_weight is zero for all samples; at least one must be positive.")
    return weight


class Domains(NamedTuple):
    """The public labels and groups of a private fit; None: the labels or groups of the rows."""

    classes: list[Any] | None = None
    groups: list[Any] | None = None
    unknown: bool = False  # whether rows of unknown group are possible

    def widen(self, rows: TrainingRows) -> TrainingRows:
        """Return the rows with all labels and groups of the domains, whether or not they occur."""
        if self.classes is not None:
            y, labels = _in_domain(rows.y, rows.classes, self.classes)
            rows = replace(rows, y=y, classes=labels)
        # Domains are public, so that a label without rows says nothing about the rows.
        if self.groups is not None and rows.groups is not None:
            group, labels = _in_domain(rows.group, rows.groups, self.groups)
            rows = replace(rows, group=group, groups=labels)
        return replace(rows, unknown=True) if self.unknown else rows


def declared_domains(y: Any, sensitive_features: Any) -> Domains:
    """Return the domains declared by categorical columns, or by groups of a whole data set."""
    classes = categories(y, "y")
    if isinstance(sensitive_features, GroupsOfAll):
        return Domains(classes, None, sensitive_features.unknown)
    groups = categories(sensitive_features, "sensitive_features")
    return Domains(classes, groups, unknown=groups is not None)


def _in_domain(codes: Array, labels: Array, domain: list[Any]) -> tuple[Array, Array]:
    """Recode labels by their places in a domain; return the codes and the domain as an array."""
    place = {label: i for i, label in enumerate(domain)}
    places = [place[label] for label in to_array(labels, "labels").tolist()]
    array = np.empty(len(domain), dtype=object)  # np.array would make a table of tuples
    array[:] = domain
    return recoded(codes, places), array if isinstance(domain[0], tuple) else np.array(domain)


def refuse_lacking(rows: TrainingRows, cells: Tensor, which: str) -> None:
    """Raise ValueError if some rows, given by their `cells`, lack labels and groups that exist."""
    lacking = ((rows.cells > 0) & (cells == 0)).numpy()
    lacking[:, len(rows.space.groups) :] = False  # nothing is learnt from rows of unknown group
    if lacking.any():
        without = np.eye(lacking.size, dtype=bool)[lacking.reshape(-1)].reshape(-1, *lacking.shape)
        raise ValueError(
            f"a classifier as model learns from {which}, which has no rows of "
            f"{listed(map(rows.space.describe, without), between='; ')}: shuffle the rows before "
            "they are divided."
        )
