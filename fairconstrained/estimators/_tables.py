"""Fits on tables of an engine, whose rows stay where they are, and predictions of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial, wraps
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import numpy as np
import pandas as pd
import torch
from sklearn.base import clone
from torch import Generator, Tensor

from fairconstrained.arrays import Array
from fairconstrained.distributed import Workers, one_thread
from fairconstrained.engines import Parts, Table, as_table
from fairconstrained.engines.columns import RowsToPredict
from fairconstrained.estimators._inputs import Given, TrainingRows, last_description, own_rows
from fairconstrained.estimators._parts import refuse_lacking, refuse_other_kinds
from fairconstrained.inputs.groups import joined, kind_of_labels
from fairconstrained.models.specification import Specification
from fairconstrained.problems.rows import Rows

if TYPE_CHECKING:
    from fairconstrained.estimators._base import FairClassifier

_FROM_VALIDATION = ("n_features_in_", "feature_names_in_")
_MOST_LEARNT = 400_000  # rows that the calibration and group models of a classifier learn from
T = TypeVar("T")
Method = TypeVar("Method", bound=Callable[..., Any])


@dataclass(frozen=True, eq=False)
class RowsElsewhere(Rows):
    """Rows that an engine has: this process has none, and each partition is a worker.

    What a function that travels to the partitions refers to has only the numbers of all rows.
    """

    parts: Parts = field(kw_only=True)
    n_rows: int = field(kw_only=True)
    total_weight: Tensor = field(kw_only=True)

    def __getstate__(self) -> dict[str, Any]:
        return {name: vars(self)[name] for name in self.__dataclass_fields__} | {"parts": None}

    def sum(self, function: Callable[[Rows], Tensor]) -> Tensor:
        return self.parts.sum(partial(_alone, function))

    def gather(self, function: Callable[[Rows], T]) -> list[T]:
        return self.parts.gather(partial(_alone, function))

    def select(self, choose: Callable[[Rows], Rows]) -> Rows:
        """Gather here the rows that `choose` selects on each worker."""
        selected = self.gather(choose)
        columns = [(rows.y, rows.group, rows.weight) for rows in selected]
        y, group, weight = map(torch.cat, zip(*columns, strict=True))
        return Rows(tuple(block for rows in selected for block in rows.blocks), y, group, weight)


def _alone(function: Callable[[Rows], T], rows: Rows) -> T:
    """Call the function in one thread: a worker computes other partitions at the same time."""
    with one_thread():
        return function(rows)


# ---------------------------------------------------------------------- reading


@dataclass(frozen=True, kw_only=True)
class RowsOfTable(TrainingRows):
    """Classes and groups of a table whose rows, coded, are the parts of an engine."""

    parts: Parts

    @cached_property
    def cells(self) -> Tensor:
        cells: Tensor = self.parts.sum(lambda own: own.cells)
        return cells

    @property
    def weight_of_labels(self) -> Tensor:
        weights: Tensor = self.parts.sum(lambda own: own.weight_of_labels)
        return weights


class Columns(NamedTuple):
    """The roles of the columns of a table, by name."""

    features: list[str]
    y: str
    sensitive_features: list[str]
    sample_weight: str | None

    @classmethod
    def of(cls, given: Given) -> Columns:
        """Roles as given to ``fit``; all other columns are features."""
        found = {
            name: given.X.names(name, values)
            for name, values in given._asdict().items()
            if name not in ("X", "n_control") and values is not None
        }
        for name in ("y", "sample_weight"):
            if len(found.get(name, ["one"])) != 1:
                raise ValueError(f"{name} must be one column of X; got {found[name]}.")
        if "y" not in found:
            raise ValueError("y must be the name of a column of X; got None.")
        used = {column for names in found.values() for column in names}
        features = [column for column in given.X.columns if column not in used]
        if not features:
            raise ValueError("X has no columns but those of y, groups and weights.")
        (y,), (weight,) = found["y"], found.get("sample_weight", [None])
        return cls(features, y, found.get("sensitive_features", []), weight)

    def of_frame(self, frame: pd.DataFrame) -> Given:
        """The columns of some rows, as ``fit`` takes them in memory."""
        groups: Any = self.sensitive_features
        groups = groups[0] if len(groups) == 1 else groups
        return Given(
            frame[self.features],
            frame[self.y],
            frame[groups] if groups else None,
            frame[self.sample_weight] if self.sample_weight else None,
        )


class OwnPart(NamedTuple):
    """The rows of a partition with its own codes, and what validation found about their columns."""

    rows: TrainingRows
    found: dict[str, Any]


def rows_of_table(estimator: FairClassifier, given: Given) -> RowsOfTable:
    """Rows whose labels and groups are coded alike in all partitions."""
    columns, bare = Columns.of(given), clone(estimator).set_params(callbacks=None)
    if (before := last_description(estimator)) is not None:
        named = before.in_order(dict.fromkeys(columns.sensitive_features), "sensitive_features")
        columns = columns._replace(sensitive_features=list(named))
    parts = given.X.parts(partial(_own_part, bare, columns))
    said = parts.gather(_said)
    for own in said:
        if isinstance(own, Exception):
            raise own
    if not said:
        raise ValueError("X has no rows, or none of positive weight.")
    found, all_classes, all_groups, all_missing, lightest, heaviest, orders = zip(
        *said, strict=True
    )
    for name, labels in (("y", all_classes), ("sensitive_features", all_groups)):
        refuse_other_kinds(name, list(map(kind_of_labels, labels)))
    for name, value in found[0].items():
        setattr(estimator, name, value)
    classes, places = joined(all_classes)
    groups, group_places = None, [np.zeros(1, dtype=np.int64)] * len(said)
    if columns.sensitive_features:
        groups, group_places = joined(all_groups)
    names = tuple(columns.sensitive_features) or None
    unknown = groups is not None and len(groups) > 0 and any(all_missing)
    none, some = np.zeros(0, dtype=np.int64), np.full(int(unknown), -1)
    rows = TrainingRows(None, none, some, np.ones(0), classes, groups)
    rows = replace(
        rows, weight_range=(min(lightest), max(heaviest)), order=orders[0], columns=names
    )
    of_parts = replace(
        rows, unknown=unknown, groups=groups if any(map(len, group_places)) else None
    )
    own_places = list(zip(places, group_places, strict=True))
    return RowsOfTable(**vars(rows), parts=parts.map_parts(partial(_coded, of_parts), own_places))


def rows_here(given: Given) -> Given:
    """The rows of a table, brought to this process, which then draws batches of them.

    Batches drawn by an engine would be others where it computes a lost partition again.
    """
    columns = Columns.of(given)
    return columns.of_frame(RowsToPredict(given.X, {}).frame())


def _own_part(bare: FairClassifier, columns: Columns, frame: pd.DataFrame) -> Any:
    """On a worker: the validated rows of a partition, None if there are none, or what is wrong."""
    if columns.sample_weight is not None:
        frame = frame[frame[columns.sample_weight] != 0]
    if frame.empty:
        return None
    given = columns.of_frame(frame)
    try:
        with one_thread():
            rows = own_rows(bare, given)
    except ValueError as error:
        return error
    if given.sample_weight is None:  # one number in memory
        rows = replace(rows, weight=np.broadcast_to(1.0, len(rows.y)))
    return OwnPart(rows, {k: vars(bare)[k] for k in _FROM_VALIDATION if k in vars(bare)})


def _said(part: Any) -> Any:
    """What the driver has to know about a partition."""
    if isinstance(part, Exception):
        return part
    rows = part.rows
    missing = rows.group is not None and bool((rows.group < 0).any())
    ends = rows.weight.min(), rows.weight.max()
    return part.found, rows.classes, rows.groups, missing, *ends, rows.order


def _coded(of_all: TrainingRows, part: OwnPart, places: tuple[Array, Array]) -> TrainingRows:
    """On a worker: the rows with the codes of all partitions, in integers of few bytes."""
    n_classes, n_groups = of_all.space.shape
    own, (of_class, of_group) = part.rows, places
    group = np.zeros(len(own.y), dtype=np.int64) if own.group is None else own.group
    y = of_class.astype(np.min_scalar_type(-n_classes))[own.y]
    # Rows of unknown group have -1 at first, and the index after the last group from now on.
    at = np.append(of_group, n_groups - 1).astype(np.min_scalar_type(-n_groups))
    return replace(of_all, X=own.X, y=y, group=at[group], weight=own.weight)


# ---------------------------------------------------------------------- columns of the model


class Learnt(NamedTuple):
    """Columns, out of fold, of every so-manieth row of a partition."""

    spacing: int
    columns: Array


def learnt_from_some(
    specification: Specification, rows: RowsOfTable, part_of_cell: Callable[[], Any], rng: Generator
) -> list[Learnt]:
    """Let a specification learn its columns from up to about 400,000 rows, which are gathered."""
    spacing = -(-int(rows.cells.sum()) // _MOST_LEARNT)
    found = rows.parts.gather(partial(_every, spacing))
    X, *columns = zip(*found, strict=True)
    y, group, weight = map(np.concatenate, columns)
    some = TrainingRows(pd.concat(X), y, group, weight, rows.classes, rows.groups)
    some = replace(some, unknown=rows.unknown)
    refuse_lacking(rows, some.cells, "a sample of the rows")
    table = specification.fit_transform(some, part_of_cell, rng)
    ends = np.cumsum([len(own) for own in X])[:-1]
    return [Learnt(spacing, own) for own in np.split(table, ends)]


def _every(spacing: int, own: TrainingRows) -> tuple[Any, Array, Array, Array]:
    some = slice(None, None, spacing)
    return own.X[some], own.y[some], own.group[some], own.weight[some]


def prepared(
    estimator: FairClassifier,
    specification: Specification,
    rows: RowsOfTable,
    learnt: Sequence[Any],
) -> RowsElsewhere:
    """The rows with the columns of the model, which a fitted specification gives."""
    bare = clone(estimator).set_params(callbacks=None, model="linear")
    size = len(rows.parts.gather(lambda own: None))
    places = [Workers(rank, size) for rank in range(size)]
    each = list(zip(places, learnt or [None] * size, strict=True))
    parts = rows.parts.map_parts(partial(_as_rows, bare, specification), each)
    totals = parts.gather(lambda own: (len(own.y), own.weight.sum()))
    n_rows, weights = zip(*totals, strict=True)
    weight = torch.stack(weights).sum()
    none = torch.zeros(0, dtype=torch.long, device=weight.device)
    numbers = {"n_rows": sum(n_rows), "total_weight": weight}
    return RowsElsewhere((), none, none, weight.new_zeros(0), parts=parts, **numbers)


def _as_rows(
    bare: FairClassifier,
    specification: Specification,
    own: TrainingRows,
    about: tuple[Workers, Learnt | None],
) -> Rows:
    """On a worker: its rows as a problem sees them."""
    workers, learnt = about
    with one_thread():
        columns = specification.transform(own.X)
        if learnt is not None:
            columns[:: learnt.spacing] = learnt.columns
        training = bare._training()
        training.prepare(replace(own, X=columns), torch.Generator())
    return replace(training.data, blocks=list(training.data.blocks), workers=workers)


# ---------------------------------------------------------------------- predictions


def of_tables(method: Method) -> Method:
    """Let a method that predicts take tables of an engine, and give lazy columns of its kind."""

    @wraps(method)
    def of_any(self: Any, X: Any, **groups: Any) -> Any:
        table = as_table(X)
        if not isinstance(table, Table):
            return method(self, X, **groups)
        return _mapped(self, method, table, groups)

    return cast("Method", of_any)


def _mapped(clf: Any, method: Callable[..., Any], table: Table, groups: dict[str, Any]) -> Any:
    """The predictions for a table, by the columns that the model was fitted to."""
    classes = [str(label) for label in clf.classes_]
    names = list(getattr(clf, "feature_names_in_", table.columns))
    given = {k: table.names(k, v) for k, v in groups.items() if v is not None}
    several = "proba" in method.__name__ or len(classes) > 2
    like = np.empty((0, len(classes)) if several else 0)
    if method.__name__ == "predict":
        like = clf.classes_[:0]

    def of_frame(frame: pd.DataFrame) -> Any:
        columns = {k: frame[v[0] if len(v) == 1 else v] for k, v in given.items()}
        return method(clf, frame[names], **columns)

    return table.mapped(of_frame, like, classes)
