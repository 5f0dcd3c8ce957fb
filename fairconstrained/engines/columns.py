"""Columns of an engine's table, for functions of columns in memory such as metrics and reports.

They need a label, a decision, a group and a score of each row, but no features: these few columns
come to this process, and models predict where the rows are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from functools import wraps
from inspect import signature
from typing import Any, TypeVar, cast

import numpy as np
import pandas as pd

from fairconstrained.engines import Table, as_table

Function = TypeVar("Function", bound=Callable[..., Any])


class RowsToPredict:
    """The rows of a table, in place of the X from which models predict."""

    def __init__(self, table: Table, roles: dict[str, list[str]]):
        self.table = table
        self.roles = roles

    def gathered(self, function: Callable[[pd.DataFrame], Any]) -> list[Any]:
        """Return the value of a function for each partition with rows, in order."""
        if not (values := self._of_partitions(function)):
            raise ValueError("X has no rows.")
        return values

    def _of_partitions(self, function: Callable[[pd.DataFrame], Any]) -> list[Any]:
        # Engines make empty partitions, for which functions of users have no answer.
        parts = self.table.parts(lambda frame: function(frame) if len(frame) else None)
        return list(parts.gather(lambda part: part))

    def frame(self) -> pd.DataFrame:
        """Return all rows, in memory."""
        frames = self.gathered(lambda frame: frame)
        dtypes = {name: _declared([each[name].dtype for each in frames]) for name in frames[0]}
        declared = {name: dtype for name, dtype in dtypes.items() if dtype is not None}
        return pd.concat([each.astype(declared) for each in frames], ignore_index=True)

    def outputs(self, function: Callable[[Any, Any], Any], model: Any) -> Any:
        """Return the values, one for each row, of a function of a model's features and groups."""
        used = {column for columns in self.roles.values() for column in columns}
        others = [column for column in self.table.columns if column not in used]
        # In the order of training: a table may have its columns in another.
        features = list(getattr(model, "feature_names_in_", others))
        groups: Any = self.roles.get("sensitive_features", [])
        groups = groups[0] if len(groups) == 1 else groups

        def predict(frame: pd.DataFrame) -> Any:
            return np.asarray(function(frame[features], frame[groups]))

        return np.concatenate(self.gathered(predict))

    def columns(self) -> dict[str, Any]:
        """Return the columns of each role, in memory."""
        names = list(dict.fromkeys(name for columns in self.roles.values() for name in columns))
        parts = self._of_partitions(lambda frame: [_packed(frame[name]) for name in names])
        columns = map(_joined, zip(*parts, strict=True)) if parts else [[] for _ in names]
        whole = pd.DataFrame(dict(zip(names, columns, strict=True)), copy=False)
        return {
            role: whole[at[0]] if len(at) == 1 else whole[at] for role, at in self.roles.items()
        }


def accepts_tables(*roles: str, models: Sequence[str] = ()) -> Callable[[Function], Function]:
    """Decorate a function of columns to take a table of Dask, Ray or Spark as X.

    Its parameters `roles` are then names or columns of this table; the `models` among them may also
    be models.
    """

    def decorated(function: Function) -> Function:
        parameters = signature(function)

        @wraps(function)
        def with_tables(*args: Any, **kwargs: Any) -> Any:
            for name in (name for name in kwargs if name not in parameters.parameters):
                near = get_close_matches(name, parameters.parameters, 1, 0.5)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise TypeError(f"{function.__name__}() has no parameter {name!r}{hint}")
            bound = parameters.bind_partial(*args, **kwargs)
            table = as_table(bound.arguments.get("X"))
            if not isinstance(table, Table):
                return function(*args, **kwargs)
            columns = {role: bound.arguments.get(role) for role in roles}
            named = {
                role: table.names(role, values)
                for role, values in columns.items()
                # Columns of Spark have any attribute, but their class does not.
                if values is not None
                and not (role in models and (callable(values) or hasattr(type(values), "predict")))
            }
            rows = RowsToPredict(table, named)
            bound.arguments |= {"X": rows, **(rows.columns() if named else {})}
            return function(*bound.args, **bound.kwargs)

        return cast("Function", with_tables)

    return decorated


def where_rows_are(
    function: Callable[[Any, Any], Any], model: Any, X: Any, sensitive_features: Any
) -> Any:
    """Return outputs of a model, by a function of features and groups, where the rows are."""
    if isinstance(X, RowsToPredict):
        return X.outputs(function, model)
    return function(X, sensitive_features)


def _packed(column: pd.Series[Any]) -> tuple[Any, Any, Any]:
    """Pack a column to travel: numbers unchanged, texts as codes of few bytes and their values."""
    values, dtype = column.to_numpy(), column.dtype
    if values.dtype.kind in "biuf":
        return values, None, dtype
    # Texts repeat, and would travel once for each row.
    codes, texts = pd.factorize(values)
    return codes.astype(np.min_scalar_type(-len(texts) - 1)), texts.astype(object), dtype


def _joined(parts: Sequence[tuple[Any, Any, Any]]) -> Any:
    """Return a column from its packed parts; code -1 takes the last entry, a missing value."""
    values = np.concatenate(
        [v if texts is None else np.concatenate([texts, [None]])[v] for v, texts, _ in parts]
    )
    dtype = _declared([dtype for *_, dtype in parts])
    return values if dtype is None else pd.Categorical(values, dtype=dtype)


def _declared(dtypes: Sequence[Any]) -> pd.CategoricalDtype | None:
    """Return the joint categories that partitions declare, or None for other columns.

    The categories of a partition may be just the values in its rows, and so differ between
    partitions. This must not decide whether values are declared.
    """
    if not all(isinstance(dtype, pd.CategoricalDtype) for dtype in dtypes):
        return None
    values = dict.fromkeys(value for dtype in dtypes for value in dtype.categories)
    return pd.CategoricalDtype([*values], ordered=all(dtype.ordered for dtype in dtypes))
