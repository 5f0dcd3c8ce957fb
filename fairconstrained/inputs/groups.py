"""Sensitive features as the group of each row: known, missing, or known with a probability.

Estimators, metrics and splitters accept the same inputs because all of them call
:func:`encode_groups`.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Sequence
from itertools import product
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils.multiclass import type_of_target

from fairconstrained.arrays import Array, computed
from fairconstrained.inputs.samples import check_length, is_unsplit, refuse_text
from fairconstrained.inputs.values import (
    Description,
    check_kind,
    declared_values,
    described,
    examples_of,
    in_words,
    kind_of,
    levels_of,
    listed,
    to_array,
    typed_array,
    warn_of_values,
)

_STRATA = "control_features "  # before names of columns that groups are crossed with
# Parameters that messages on missing groups name where groups are crossed with strata.
CROSSED = "sensitive_features or control_features"


class Groups(NamedTuple):
    """The group of each row: its position in the sorted labels, or -1 where it is not known.

    Or the shares (n, n_groups) of each row in the groups, which add up to one.
    """

    codes: NDArray[Any]
    labels: NDArray[Any]  # (n_groups,): values, or tuples of the values of several columns

    @property
    def known(self) -> NDArray[np.bool_]:
        """Whether the group of each row, or its shares, are known, (n,)."""
        codes = self.codes if self.codes.ndim == 1 else np.zeros(len(self.codes))
        return np.asarray(codes >= 0)

    def likeliest(self) -> NDArray[np.int64]:
        """Return the index of each row's group, or of the group with its largest share, (n,)."""
        return self.codes if self.codes.ndim == 1 else self.codes.argmax(axis=1)

    def certain(self, user: str) -> Groups:
        """Return the groups; raise ValueError, naming the `user`, if rows have shares in groups."""
        if self.codes.ndim == 2:
            raise ValueError(
                f"{user} takes groups, of which some may be missing; got shares of the rows in "
                f"{self.labels.tolist()} (GroupProbabilities or RecordedGroups)."
            )
        return self

    def copies(self) -> tuple[Any, NDArray[np.int64], Any]:
        """Return row index, group and share, with an entry for each group that a row belongs to."""
        if self.codes.ndim == 2:
            row, group = np.nonzero(self.codes)
            return row, group, self.codes[row, group]
        if self.known.all():
            return slice(None), self.codes, 1.0
        row = np.flatnonzero(self.known)
        return row, self.codes[row], 1.0


class UncertainGroups:
    """Base of sensitive features that are known with some uncertainty, sliced like arrays.

    A subclass calls ``__init__`` with a row per sample, the labels, and the index of pandas.
    """

    ndim = 1  # as a column has it

    def __init__(self, rows: NDArray[Any], labels: NDArray[Any], index: Any):
        self.rows = rows
        self.labels = labels
        self.index = index if hasattr(index, "equals") else None  # lists have a method `index`

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of a column: the number of samples."""
        return (len(self.rows),)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, rows: Any) -> Self:
        rows = rows[0] if isinstance(rows, tuple) else rows  # scikit-learn adds an ellipsis
        other = copy.copy(self)
        other.rows = self.rows[rows]
        if self.index is not None:
            other.index = self.index[rows]
        return other

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self)} samples, {self.labels.tolist()}>"

    def encoded(self) -> Groups:
        """Return the codes or shares of the rows, and the labels: here unchanged."""
        return Groups(self.rows, self.labels)


def encode_groups(
    sensitive_features: Any, n_samples: int | None = None, name: str = "sensitive_features"
) -> Groups:
    """Cross the columns of `sensitive_features` into one group per combination that occurs.

    These are a list, an array, a Series or DataFrame (pandas, polars or dask), an array or table of
    pyarrow, a dict of columns, or groups that are uncertain. A group is not known if a value is
    missing: None, NaN or pandas.NA.

    >>> encode_groups([["f", 1], ["m", None], ["f", 1]])
    Groups(codes=array([ 0, -1,  0]), labels=array([('f', 1)], dtype=object))
    """
    return read_groups(sensitive_features, n_samples, name=name)[0]


def read_groups(
    sensitive_features: Any,
    n_samples: int | None = None,
    before: Description | None = None,
    name: str = "sensitive_features",
    required: int | None = None,
) -> tuple[Groups, Description]:
    """Return the coded groups, and warn of values that may not have been meant as groups."""
    groups, after = coded_groups(sensitive_features, n_samples, before, name, required)
    warn_of_groups(groups.labels.tolist(), after.columns, name)
    return groups, after


def coded_groups(
    sensitive_features: Any,
    n_samples: int | None = None,
    before: Description | None = None,
    name: str = "sensitive_features",
    required: int | None = None,
) -> tuple[Groups, Description]:
    """Return the group of each row, and the description `before` extended by the columns.

    A row has a group if all values are known. Where only the last `required` columns have to be,
    any one other column suffices, and the label has None for the rest. Raises ValueError, naming
    columns or kinds of values that differ. Later data describe columns that have no rows.
    """
    if isinstance(sensitive_features, UncertainGroups):
        if n_samples is not None:
            check_length(name, len(sensitive_features), n_samples, "X")
        groups = sensitive_features.encoded()
        return groups, described(groups.labels.tolist(), None, before, name)
    columns = columns_of(sensitive_features, name)
    arrays = {key: to_array(column, name) for key, column in columns.items()}
    if before is not None and any(array.size for array in arrays.values()):
        columns, arrays = before.in_order(columns, name), before.in_order(arrays, name)
    groups = _crossed(arrays, name, required)
    if n_samples is not None:
        unsplit = is_unsplit(sensitive_features)
        check_length(name, len(groups.codes), n_samples, "X", unsplit)
    keys = tuple(columns) if len(groups.codes) else None  # an empty batch may lack its names
    return groups, described(groups.labels.tolist(), keys, before, name)


def warn_of_groups(
    labels: Sequence[Any], columns: Iterable[Any] | None, name: str = "sensitive_features"
) -> None:
    """Warn of values of these columns that may not have been meant as groups."""
    rows = [label if isinstance(label, tuple) else (label,) for label in labels]
    # No label has no columns, and a column of an uncertain group has no name.
    for key, column in zip(columns or (), zip(*rows, strict=True), strict=False):
        known = sorted({*column} - {None}, key=str)
        warn_of_values(known, _column_name(key, name), "group")


def _crossed(columns: dict[Any, Array], name: str, required: int | None = None) -> Groups:
    """Cross columns into one group per combination that occurs.

    Groups that lack a value, where that is allowed, come after all others.
    """
    if len(columns) == 1:
        ((key, column),) = columns.items()
        level, code = levels_of(column, _column_name(key, name))
        return Groups(code, level)
    names = [_column_name(key, name) for key in columns]
    # A row that lacks a value has no group, and no other value of it names or types one.
    has: Array = ~np.array([pd.isna(column) for column in columns.values()])
    known = np.asarray(has.all(axis=0))
    if required is not None:
        optional = len(has) - required
        known = np.asarray(has[optional:].all(axis=0) & has[:optional].any(axis=0))
    told_apart = [each[known] for each in columns.values()]
    levels, codes = zip(*map(levels_of, told_apart, names), strict=True)
    crossed: Array = np.zeros(int(known.sum()), dtype=np.int64)
    rows: list[Array] = []
    for level, code in zip(levels, codes, strict=True):
        size = len(level) + 1  # the last place is for a missing value
        pairs, crossed = levels_of(crossed * size + code % size)
        first, second = np.divmod(pairs, size)
        rows = [*(values[first] for values in rows), np.array([*level.tolist(), None])[second]]
    labels = np.empty(len(rows[0]), dtype=object)
    labels[:] = list(zip(*rows, strict=True))
    order = np.argsort([None in label for label in labels], kind="stable")
    placed = np.full(len(known), -1)
    placed[known] = np.argsort(order)[crossed]
    return Groups(placed, labels[order])


def joined(levels: Sequence[Array], name: str = "sensitive_features") -> tuple[Array, list[Array]]:
    """Return the joint labels of several parts of the rows, and the indices of each part's labels.

    Raises ValueError if the labels of two parts are of different kinds.
    """
    typed = [labels for labels in levels if len(labels)]  # others have no kind of values
    for examples in zip(*(examples_of(labels.tolist()) for labels in typed), strict=True):
        kinds = {kind_of(example) for example in examples if example is not None}
        if len(kinds) > 1:
            raise ValueError(
                f"{name} holds values of different kinds in parts of the rows: "
                f"{listed(sorted(kinds))}."
            )
    every = np.concatenate(typed or levels)
    values = {0: every}
    if any(isinstance(label, tuple) for label in every[-1:]):
        values = dict(enumerate(np.array(every.tolist(), dtype=object).T))
    codes, labels = _crossed(values, name, 0)
    ends = np.cumsum([len(labels) for labels in levels])[:-1]
    return labels.astype(every.dtype, copy=False), np.split(codes, ends)


def n_complete(labels: Array) -> int:
    """Return the number of groups that lack no value; the others come after them."""
    return sum(not isinstance(label, tuple) or None not in label for label in labels.tolist())


def _column_name(key: Any, name: str) -> str:
    """Return the name of a column in messages; names of strata hold their parameter already."""
    if not isinstance(key, str):
        return name
    return key if key.startswith(_STRATA) else f"{name} {key!r}"


def recoded(codes: NDArray[Any], places: Any) -> NDArray[np.int64]:
    """Replace each code by its entry of `places`; -1 stays."""
    moved: NDArray[np.int64] = np.append(places, -1).astype(np.int64)[codes]
    return moved


def categories(values: Any, name: str) -> list[Any] | None:
    """Return the declared categories, sorted and crossed, or None if no column declares any."""
    columns = [values]
    if isinstance(values, dict):
        columns = list(values.values())
    elif hasattr(values, "iloc") and hasattr(values, "columns"):  # elsewhere they are no names
        columns = [values[name] for name in values.columns]
    elif hasattr(values, "get_columns"):  # of polars
        columns = values.get_columns()
    declared: list[Any] = list(map(declared_values, columns))
    missing = [values is None for values in declared]
    if all(missing):
        return None
    if any(missing):
        raise ValueError(
            f"all columns of {name} must be categoricals, or none: with epsilon they declare its "
            f"values whether or not they occur; column {missing.index(True)} is not."
        )
    try:  # mixed types would be read differently, depending on which of them occur
        levels = [sorted(values) for values in declared]
    except TypeError as error:
        raise ValueError(
            f"the categories of {name} must be of one type, such as texts, because those that "
            f"occur are read as numbers or texts; got {declared}."
        ) from error
    if name == "y" and type_of_target(np.asarray(declared[0])) == "continuous":
        raise ValueError(f"the categories of y must be classes; got the numbers {levels[0]}.")
    return levels[0] if len(levels) == 1 else list(product(*levels))


def within_strata(sensitive_features: Any, control_features: Any) -> tuple[dict[Any, Any], int]:
    """Return the columns of groups and strata in one dict, and the number of strata columns."""
    strata = _strata(control_features)
    return columns_of(sensitive_features) | strata, len(strata)


def _strata(control_features: Any) -> dict[Any, Any]:
    """Return the columns of strata, with a prefix in their names that columns of groups lack."""
    columns = named_columns(control_features, _STRATA.strip(), "stratum")
    return {f"{_STRATA}{name}": column for name, column in columns.items()}


def as_described(sensitive_features: Any, before: Description | None) -> Any:
    """Reorder columns as a model has them, if the names agree; refuse other kinds of values."""
    if before is None or before.columns is None or sensitive_features is None:
        return sensitive_features
    examples = {
        key: example
        for key, example in zip(before.columns, examples_of(before.groups), strict=False)
        if isinstance(key, str) and not key.startswith(_STRATA)
    }
    columns = columns_of(sensitive_features)
    if set(columns) != set(examples):
        return sensitive_features
    for key, example in examples.items():
        values = to_array(columns[key], key)
        first = values[~pd.isna(values)][:1].tolist()
        check_kind(first, [example], f"sensitive_features {key!r}")
    return {key: columns[key] for key in examples}


def groups_by(
    model: Any, sensitive_features: Any, control_features: Any, place: int | None
) -> list[Any]:
    """Return the groups of a fitted model by these columns, or by only the column at `place`.

    If the model does not have all of these columns by name, its groups stay by its columns. Strata
    come last.
    """
    before, groups = getattr(model, "_description_", None), list(model.groups_)
    certain = sensitive_features is not None and not isinstance(sensitive_features, UncertainGroups)
    keys = list(columns_of(sensitive_features)) if certain else []
    strata = [] if control_features is None else list(_strata(control_features))
    # Positions are no names: the one column of an array may be any column of the model.
    if before is not None and len(before.columns or ()) > 1 and {str} == set(map(type, keys)):
        columns = [*keys, *strata]
        if set(columns) <= set(before.columns):
            places = [before.columns.index(column) for column in columns]
            groups = [tuple(group[at] for at in places) for group in before.groups]
    groups = [group if isinstance(group, tuple) else (group,) for group in groups]
    if place is not None:
        ends = [len(group) - len(strata) for group in groups]
        groups = [
            (group[place], *group[end:])
            for group, end in zip(groups, ends, strict=True)
            if end > place
        ]
    whole = dict.fromkeys(group for group in groups if None not in group)
    return [group if group[1:] else group[0] for group in whole]


def refuse_groups_in(X: Any, sensitive_features: Any) -> None:
    """Raise ValueError if a column of X has the name of a sensitive or control feature.

    Capitals and surrounding spaces do not count. Where names have levels, the last level names
    groups, and any level may name a column of X, which may be an indicator of a group.
    """

    def levels_of_name(name: Any) -> list[Any]:
        levels = name if isinstance(name, tuple) else (name,)
        return [level.strip().casefold() if isinstance(level, str) else level for level in levels]

    groups = computed(sensitive_features, "to_pydict")
    fields = getattr(getattr(groups, "dtype", None), "names", None) or ()  # of a structured array
    names_in = getattr(groups, "columns", fields)
    columns = groups if isinstance(groups, dict) else dict.fromkeys(names_in)
    # Positions are no names.
    named = [name for place, name in enumerate(columns) if name != place]
    named = [name.removeprefix(_STRATA) if isinstance(name, str) else name for name in named]
    named += [getattr(column, "name", None) for column in (groups, *columns.values())]
    names = {levels_of_name(name)[-1] for name in named if name is not None}
    features = getattr(X, "column_names", getattr(X, "columns", ()))
    shared = [name for name in features if not names.isdisjoint(levels_of_name(name))]
    if shared:
        raise ValueError(
            f"X must not hold the sensitive features where they alone are secret, and its columns "
            f"{shared} have their names: the model would be an exact function of them. Drop these "
            "columns from X. A public column that only has the same name must be renamed in X."
        )


def columns_of(table: Any, name: str = "sensitive_features") -> dict[Any, Any]:
    """Return the columns of a table, an array or a list by their names; errors mention `name`.

    Columns without a name are keyed by position. Raises ValueError for two columns of one name.

    >>> columns_of([["f", 1], ["m", 0]])
    {0: array(['f', 'm'], dtype=object), 1: array([1, 0], dtype=object)}
    """
    if table is None:
        raise ValueError(f"{name} must hold one group per row; got None.")
    refuse_text(table, name)
    if isinstance(table, UncertainGroups):
        raise ValueError(
            f"{name} must be columns of groups, of which some may be missing, where they are "
            f"crossed with strata, compared side by side or audited; got {table!r}."
        )
    names = list(getattr(table, "column_names", ()))  # of Arrow, whose dict has the last of two
    # Columns of Arrow become Python's types.
    table = computed(computed(table), "to_pydict", "to_pylist")
    names = list(getattr(table, "columns", names))
    names = list(table) if isinstance(table, dict) and not names else names
    texts = list(map(_text, names))  # 0 and "column 0" would be one name in tables
    if twice := [text for text in dict.fromkeys(texts) if texts.count(text) > 1]:
        raise ValueError(f"{name} has several columns of the name {listed(map(repr, twice))}.")
    if isinstance(table, dict):
        columns = {key: computed(computed(it), "to_pylist") for key, it in table.items()}
    elif hasattr(table, "columns"):  # a DataFrame, whose columns keep their dtypes
        columns = dict(zip(names, map(table.__getitem__, names), strict=True))
    else:
        columns = _columns_of_array(table, name)
    shapes = {key: np.shape(column) for key, column in columns.items()}
    if not shapes:
        raise ValueError(f"{name} has no columns; give at least one.")
    if len(set(shapes.values())) > 1 or {1} != set(map(len, shapes.values())):
        words = listed(f"{shape} of {key!r}" for key, shape in shapes.items())
        raise ValueError(f"{name} must hold columns of one value per row; got shapes {words}.")
    return columns


def _columns_of_array(table: Any, name: str) -> dict[Any, Any]:
    """Return the columns of an array, a list or a Series."""
    array = typed_array(table, name)
    if array.dtype == object and array.ndim == 1 and array.size and isinstance(array[0], tuple):
        array = typed_array(array.tolist(), name)  # rows of several values, such as a MultiIndex
    if array.dtype.names:  # a structured array
        return {key: array[key] for key in array.dtype.names}
    if array.ndim not in (1, 2):
        raise ValueError(
            f"{name} must have one or two dimensions; got {array.ndim}. Give one "
            "value, or one row of values, per sample."
        )
    if array.ndim == 2:
        return dict(enumerate(array.T))
    own_name = getattr(table, "name", None)
    return {own_name if isinstance(own_name, str) and own_name else 0: table}


def named_columns(
    table: Any, name: str = "sensitive_features", alone: str = "column 0"
) -> dict[str, Any]:
    """Return columns by name; number those without a name, and call a single one `alone`."""
    columns = columns_of(table, name)
    names = [alone] if list(columns) == [0] else column_names(columns)
    return dict(zip(names, columns.values(), strict=True))


def column_names(keys: Iterable[Any]) -> list[str]:
    """Return the names of columns as messages show them."""
    return [_text(key).removeprefix(_STRATA) for key in keys]


def _text(key: Any) -> str:
    return key if isinstance(key, str) else f"column {key}"


def group_name(label: Any) -> str:
    """Return the name of a group: its values, joined by ' & ', in quotes if they have this mark.

    >>> group_name(("a & b", "c")), group_name(("a", "b & c"))
    ("'a & b' & c", "a & 'b & c'")
    """
    if not isinstance(label, tuple):
        return in_words(label)
    return " & ".join(repr(word) if " & " in word else word for word in map(in_words, label))


def free_name(name: str, taken: Collection[str], more: str) -> str:
    """Return the name, with more words appended while it is taken."""
    while name in taken:
        name = f"{name}: {more}"
    return name
