"""A description of inputs, which whoever sees data more than once compares with later data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fairconstrained.exceptions import InputWarning, warn_caller
from fairconstrained.inputs.values import alternatives, kind_of, listed


@dataclass(frozen=True)
class Description:
    """The columns of groups as they were first given or named, and the labels."""

    columns: tuple[Any, ...] | None = None  # names in order; None: none given, or uncertain groups
    groups: tuple[Any, ...] = ()  # in the order in which they came
    labels: tuple[Any, ...] = ()  # in the order in which they came
    favourable: Any = None  # one of two labels; None: not known

    def in_order(self, columns: dict[Any, Any], name: str) -> dict[Any, Any]:
        """Return later columns in this order; raise ValueError if they are others."""
        one = len(self.columns or ()) == len(columns) == 1
        if self.columns is None or (one and 0 in (*self.columns, *columns)):  # without a name
            return columns
        missing = [key for key in self.columns if key not in columns]
        further = [key for key in columns if key not in self.columns]
        if missing or further:
            parts = {"missing": missing, "further": further}
            others = "; ".join(f"{word}: {listed(map(repr, k))}" for word, k in parts.items() if k)
            raise ValueError(
                f"{name} must have the same columns as before, {listed(map(repr, self.columns))}, "
                f"which are found by their names; {others}."
            )
        return {key: columns[key] for key in self.columns}

    def with_labels(self, labels: Sequence[Any], name: str) -> Description:
        """Describe further labels too; raise ValueError if they are of another kind."""
        check_kind(labels[:1], self.labels[:1], name)
        return replace(self, labels=tuple(dict.fromkeys([*self.labels, *labels])))

    def with_favourable(self, label: Any) -> Description:
        """Describe the favourable label too, None if not known; raise ValueError for another."""
        if None not in (label, self.favourable) and label != self.favourable:
            raise ValueError(
                f"the favourable label must be the same as before, {self.favourable!r}; got "
                f"{label!r}."
            )
        return self if label is None else replace(self, favourable=label)

    def also(self, other: Description, name: str = "sensitive_features") -> Description:
        """Describe the data of another description too; raise ValueError if they differ."""
        both = self.with_labels(other.labels, "labels").with_favourable(other.favourable)
        groups = list(map(self.placing(other, name), other.groups))
        return described(groups, other.columns, both, name)

    def placing(self, other: Description, name: str = "sensitive_features") -> Callable[[Any], Any]:
        """Return a function that puts values of the other's groups in the order of columns here."""
        if self.columns is None or other.columns is None:
            return lambda group: group
        numbered = {column: at for at, column in enumerate(other.columns)}
        places = list(self.in_order(numbered, name).values())
        return lambda group: tuple(group[at] for at in places) if len(places) > 1 else group


def described(
    groups: Sequence[Any], columns: tuple[Any, ...] | None, before: Description | None, name: str
) -> Description:
    """Return the description of groups after those `before`; raise ValueError if kinds differ."""
    before = Description() if before is None else before
    if before.groups:
        check_kind(examples_of(groups), examples_of(before.groups), name)
        warn_of_spellings(groups, before.groups, name)
    if before.columns not in (None, (0,)) or columns is None:
        columns = before.columns
    return replace(before, columns=columns, groups=tuple(dict.fromkeys([*before.groups, *groups])))


def warn_of_spellings(groups: Sequence[Any], before: Sequence[Any], name: str) -> None:
    """Warn of groups that may be another spelling of groups before, of which they are none."""
    if set(groups) <= set(before):
        return
    every = [group if isinstance(group, tuple) else (group,) for group in [*before, *groups]]
    for column in zip(*every, strict=False):
        values = [v.item() if isinstance(v, np.generic) else v for v in column]
        first, now = (
            [value for value in dict.fromkeys(part) if value is not None]
            for part in (values[: len(before)], values[len(before) :])
        )
        alike = alternatives(list(dict.fromkeys([*first, *now])))
        new = {repr(value) for value in now if value not in first}
        # Two spellings that are both new have a note of their own.
        if not (new - set(alternatives(now))).isdisjoint(alike):
            note = f"{listed(alike)} in {name}, before and now, are different groups."
            warn_caller(note, InputWarning)


def examples_of(groups: Sequence[Any]) -> tuple[Any, ...]:
    """Return a value of each column of groups, which shows its kind; None where there is none."""
    rows = [group if isinstance(group, tuple) else (group,) for group in groups]
    if rows and None not in rows[0]:  # groups that lack a value come last
        return rows[0]
    columns = zip(*rows, strict=True)
    return tuple(next((v for v in column if v is not None), None) for column in columns)


def check_kind(values: Sequence[Any], before: Sequence[Any], name: str) -> None:
    """Raise ValueError if values, one of each column, are of another kind than those before."""
    for new, old in zip(values, before, strict=False):
        if None not in (new, old) and kind_of(new) != kind_of(old):
            raise ValueError(
                f"{name} holds values of another kind than before: {new!r} after {old!r}."
            )
