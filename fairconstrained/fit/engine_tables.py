"""Tables of an engine, whose rows stay where they are: rows, columns, and predictions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd
import torch
from sklearn.base import clone
from torch import Generator, Tensor

from fairconstrained.arrays import Array
from fairconstrained.distributed import Workers, one_thread
from fairconstrained.engines import Parts, Table
from fairconstrained.fit.rows import (
    FitInputs,
    TrainingRows,
    refuse_lacking,
    required,
    validated,
    weightless_everywhere,
)
from fairconstrained.fit.task import Task
from fairconstrained.inputs.groups import joined, n_complete
from fairconstrained.models.specification import Specification
from fairconstrained.problems.rows import Rows

# Set by scikit-learn when it validates X.
FROM_VALIDATION = ("n_features_in_", "feature_names_in_")
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class RowsElsewhere(Rows):
    """Rows in the partitions of an engine, each of which is a worker; this process has none."""

    parts: Parts = field(kw_only=True)
    n_rows: int = field(kw_only=True)
    total_weight: Tensor = field(kw_only=True)

    def __getstate__(self) -> dict[str, Any]:
        # Functions that travel to the partitions have only the numbers of all rows.
        return {name: vars(self)[name] for name in self.__dataclass_fields__} | {"parts": None}

    def sum(self, function: Callable[[Rows], Tensor]) -> Tensor:
        return self.parts.sum(partial(_alone, function))

    def gather(self, function: Callable[[Rows], T]) -> list[T]:
        return self.parts.gather(partial(_alone, function))

    def select(self, choose: Callable[[Rows], Rows]) -> Rows:
        """Gather the rows that `choose` selects on each worker in this process."""
        selected = self.gather(choose)
        columns = [(rows.y, rows.group, rows.weight) for rows in selected]
        y, group, weight = map(torch.cat, zip(*columns, strict=True))
        return Rows(tuple(block for rows in selected for block in rows.blocks), y, group, weight)


def _alone(function: Callable[[Rows], T], rows: Rows) -> T:
    """Call the function in one thread: a worker computes other partitions at the same time."""
    with one_thread():
        return function(rows)


@dataclass(frozen=True, kw_only=True)
class RowsOfTable(TrainingRows):
    """The classes and groups of a table; its coded rows stay in the parts of an engine."""

    parts: Parts

    # Sums over the parts, whose rows have the same properties.
    cells = cached_property(lambda self: self.parts.sum(attrgetter("cells")))
    weight_of_cells = property(lambda self: self.parts.sum(attrgetter("weight_of_cells")))
    weight_of_labels = property(lambda self: self.parts.sum(attrgetter("weight_of_labels")))


class Columns(NamedTuple):
    """Roles of the columns of a table, by name."""

    features: list[str]
    y: str
    sensitive_features: list[str]
    sample_weight: str | None

    @classmethod
    def named_by(cls, inputs: FitInputs) -> Columns:
        """Return the roles that the arguments of ``fit`` name; all other columns are features."""
        names = {
            role: inputs.X.names(role, values)
            for role, values in inputs._asdict().items()
            if role not in ("X", "n_control") and values is not None
        }
        for role in ("y", "sample_weight"):
            if len(names.get(role, ["one"])) != 1:
                raise ValueError(f"{role} must be one column of X; got {names[role]}.")
        if "y" not in names:
            raise ValueError("y must be the name of a column of X; got None.")
        used = {column for columns in names.values() for column in columns}
        features = [column for column in inputs.X.columns if column not in used]
        if not features:
            raise ValueError(
                "X has no columns left for features: all are used for y, groups or weights."
            )
        (y,), (weight,) = names["y"], names.get("sample_weight", [None])
        return cls(features, y, names.get("sensitive_features", []), weight)

    def inputs(self, frame: pd.DataFrame) -> FitInputs:
        """Return the columns of a DataFrame in the form that ``fit`` takes in memory."""
        groups: Any = self.sensitive_features
        groups = groups[0] if len(groups) == 1 else groups
        return FitInputs(
            frame[self.features],
            frame[self.y],
            frame[groups] if groups else None,
            frame[self.sample_weight] if self.sample_weight else None,
        )


def rows_of_table(task: Task, estimator: Any, inputs: FitInputs) -> RowsOfTable:
    """Return the rows of a table, with labels and groups coded alike in all partitions."""
    columns = Columns.named_by(inputs)
    if task.described is not None:
        groups_as_named = dict.fromkeys(columns.sensitive_features)
        named = task.described.in_order(groups_as_named, "sensitive_features")
        columns = columns._replace(sensitive_features=list(named))
    # For the validation by scikit-learn, which asks an estimator for its name.
    bare = clone(estimator).set_params(callbacks=None)
    needed = required(task, inputs)
    read = partial(_validated_partition, bare, task.specification, columns, needed)
    parts = inputs.X.parts(read)
    summaries = parts.gather(_summary)
    for summary in summaries:
        if isinstance(summary, Exception):
            raise summary
    if not summaries:
        raise ValueError("X has no rows, or none of positive weight.")
    noted, all_classes, all_groups, all_missing, lightest, heaviest, orders, without = zip(
        *summaries, strict=True
    )
    for attribute, value in noted[0].items():
        setattr(estimator, attribute, value)
    classes, places = joined(all_classes, "y")
    groups, group_places = None, [np.zeros(1, dtype=np.int64)] * len(summaries)
    if columns.sensitive_features:
        groups, group_places = joined(all_groups)
    incomplete = groups is not None and n_complete(groups) < len(groups)
    unknown = groups is not None and len(groups) > 0 and (any(all_missing) or incomplete)
    no_label, any_missing = np.zeros(0, dtype=np.int64), np.full(int(unknown), -1)
    rows = TrainingRows(None, no_label, any_missing, np.ones(0), classes, groups)
    ends, names = (min(lightest), max(heaviest)), tuple(columns.sensitive_features) or None
    rows = replace(rows, weight_range=ends, order=orders[0], columns=names)
    if groups is not None:
        rows = replace(rows, weightless=weightless_everywhere(without, groups))
    groups = groups if any(map(len, group_places)) else None
    recode = partial(_coded, replace(rows, unknown=unknown, groups=groups))
    return RowsOfTable(
        **vars(rows), parts=parts.map_parts(recode, list(zip(places, group_places, strict=True)))
    )


def _validated_partition(
    bare: Any,
    specification: Specification,
    columns: Columns,
    needed: int | None,
    frame: pd.DataFrame,
) -> Any:
    """Validate a partition on its worker; return rows and attributes, an error, or None."""
    if frame.empty or (columns.sample_weight and not frame[columns.sample_weight].any()):
        return None
    inputs = columns.inputs(frame)
    try:
        with one_thread():
            rows = validated(bare, specification, inputs, None, needed)
    except ValueError as error:
        return error
    if inputs.sample_weight is None:  # one number in memory
        rows = replace(rows, weight=np.broadcast_to(1.0, len(rows.y)))
    return rows, {k: vars(bare)[k] for k in FROM_VALIDATION if k in vars(bare)}


def _summary(part: Any) -> Any:
    """Return a summary of a partition for the driver, made on the worker, or its error."""
    if isinstance(part, Exception):
        return part
    rows, noted = part
    missing = rows.group is not None and bool((rows.group < 0).any())
    ends = rows.weight.min(), rows.weight.max()
    return noted, rows.classes, rows.groups, missing, *ends, rows.order, rows.weightless


def _coded(like: TrainingRows, part: Any, places: tuple[Array, Array]) -> TrainingRows:
    """Return a partition's rows with the codes shared by all partitions, as small integers."""
    n_classes, n_groups = like.space.shape
    (rows, _), (class_places, group_places) = part, places
    group = np.zeros(len(rows.y), dtype=np.int64) if rows.group is None else rows.group
    y = class_places.astype(np.min_scalar_type(-n_classes))[rows.y]
    # Rows of unknown group have -1 at first, and the index after the last group from now on.
    at = np.append(group_places, n_groups - 1).astype(np.min_scalar_type(-n_groups))
    return replace(like, X=rows.X, y=y, group=at[group], weight=rows.weight)


Learnt = tuple[int, Array]  # n, and the columns, out of fold, of every n-th row of a partition


def learnt_from_sample(
    specification: Specification, rows: RowsOfTable, part_of_cell: Callable[[], Any], rng: Generator
) -> list[Learnt]:
    """Fit a specification to a gathered sample of up to about 400,000 rows; return its columns."""
    # The calibration and group models of a classifier learn from rows brought here.
    spacing = -(-int(rows.cells.sum()) // 400_000)
    X, *columns = zip(*rows.parts.gather(partial(_every, spacing)), strict=True)
    y, group, weight = map(np.concatenate, columns)
    sample = TrainingRows(pd.concat(X), y, group, weight, rows.classes, rows.groups)
    sample = replace(sample, unknown=rows.unknown, partly=rows.partly)
    refuse_lacking(rows, sample.cells, "a sample of the rows")
    table = specification.fit_transform(sample, part_of_cell, rng)
    ends = np.cumsum([len(part) for part in X])[:-1]
    return [(spacing, part) for part in np.split(table, ends)]


def _every(spacing: int, rows: TrainingRows) -> tuple[Any, Array, Array, Array]:
    sample = slice(None, None, spacing)
    return rows.X[sample], rows.y[sample], rows.group[sample], rows.weight[sample]


def rows_elsewhere(
    rows: RowsOfTable,
    specification: Specification,
    as_rows: Callable[[TrainingRows, Any], Rows],
    learnt: Sequence[Learnt | None] = (),
) -> RowsElsewhere:
    """Return rows that stay on the workers, where `as_rows` makes them from a specification."""
    size = len(rows.parts.gather(lambda _: None))
    places = [Workers(rank, size) for rank in range(size)]
    each = list(zip(places, learnt or [None] * size, strict=True))
    parts = rows.parts.map_parts(partial(_transformed, specification, as_rows), each)
    totals = parts.gather(lambda part: (len(part.y), part.weight.sum()))
    n_rows, weights = zip(*totals, strict=True)
    weight = torch.stack(weights).sum()
    none = torch.zeros(0, dtype=torch.long, device=weight.device)
    numbers = {"n_rows": sum(n_rows), "total_weight": weight}
    return RowsElsewhere((), none, none, weight.new_zeros(0), parts=parts, **numbers)


def _transformed(
    specification: Specification,
    as_rows: Callable[[TrainingRows, Any], Rows],
    rows: TrainingRows,
    about: tuple[Workers, Learnt | None],
) -> Rows:
    """Return the rows of a worker as a problem sees them, computed on the worker."""
    workers, learnt = about
    with one_thread():
        columns = specification.transform(rows.X)
        if learnt is not None:
            spacing, columns_of_sample = learnt
            columns[::spacing] = columns_of_sample
        data = as_rows(rows, columns)
    return replace(data, blocks=list(data.blocks), workers=workers)


def predictions_of_table(
    clf: Any, method: Callable[..., Any], table: Table, groups: dict[str, Any]
) -> Any:
    """Return predictions for a table, from the columns that the model was fitted to."""
    classes = [str(label) for label in clf.classes_]
    names = list(getattr(clf, "feature_names_in_", table.columns))
    roles = {k: table.names(k, v) for k, v in groups.items() if v is not None}
    several = "proba" in method.__name__ or len(classes) > 2
    like = np.empty((0, len(classes)) if several else 0)
    if method.__name__ == "predict":
        like = clf.classes_[:0]

    def on_frame(frame: pd.DataFrame) -> Any:
        columns = {k: frame[v[0] if len(v) == 1 else v] for k, v in roles.items()}
        return method(clf, frame[names], **columns)

    return table.mapped(on_frame, like, classes)
