"""One number from the rates of groups: a difference, a ratio, the rate of the worst group."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

import numpy as np
from sklearn.exceptions import UndefinedMetricWarning

from fairconstrained.arrays import Array
from fairconstrained.exceptions import SmallGroupWarning, warn_caller

T = TypeVar("T")


class GroupRates(NamedTuple):
    """Fractions of rows, by group (rows of the arrays) and by event (columns)."""

    hits: Array  # (n_groups, n_events): weight of the rows where the event happened
    rows: Array  # the same, or one column: weight of the rows where it could
    given: list[str]  # the condition of each column of `rows`, for messages
    groups: list[str]

    def values(self) -> Array:
        """Return the fractions, nan where there are no rows; a warning names these."""
        empty = self.rows <= 0
        if empty.any():
            absent = (
                f"group {self.groups[g]} has no rows{self.given[e]}" for g, e in np.argwhere(empty)
            )
            warn_absent(dict.fromkeys(absent))
        return np.asarray(self.hits / np.where(empty, np.nan, self.rows))


def gap(rates: GroupRates, method: str = "between_groups", agg: str = "worst_case") -> float:
    """Return the largest difference between groups of the worst event, or of the mean event."""
    low, high = _bounds(rates, method)
    summaries: dict[str, Callable[[Array], Any]] = {"worst_case": np.max, "mean": np.mean}
    return float(choose(summaries, "agg", agg)((high - low).max(axis=0)))


def summed_gap(rates: GroupRates) -> float:
    """Return the largest difference between groups given each condition, summed over these.

    The events of one condition stand side by side.
    """
    low, high = _bounds(rates, "between_groups")
    gaps = (high - low).max(axis=0).reshape(len(set(rates.given)), -1)
    return float(gaps.max(axis=1).sum())


def ratio(rates: GroupRates, method: str = "between_groups", agg: str = "worst_case") -> float:
    """Return the smallest ratio between groups of the worst event, or of the mean event."""
    low, high = _bounds(rates, method)
    summaries: dict[str, Callable[[Array], Any]] = {"worst_case": np.min, "mean": np.mean}
    summary = choose(summaries, "agg", agg)
    defined = high.max(axis=0) != 0
    if not defined.all():
        warn_caller(
            f"{int((~defined).sum())} of the {len(defined)} rates compared are zero in every "
            "group and have no ratio; they are left out (nan when none is left).",
            UndefinedMetricWarning,
        )
    ratios = (low[:, defined] / high[:, defined]).min(axis=0)
    return float(summary(ratios)) if ratios.size else float("nan")


def _bounds(rates: GroupRates, method: str) -> tuple[Array, Array]:
    """Return the lower and the higher rate of each comparison, (n_comparisons, n_events)."""
    to_overall = choose({"between_groups": False, "to_overall": True}, "method", method)
    if len(rates.groups) == 1:
        warn_single_group(rates.groups[0])
    by_group = rates.values()
    if not to_overall:
        return by_group.min(axis=0, keepdims=True), by_group.max(axis=0, keepdims=True)
    with np.errstate(invalid="ignore"):  # no rows at all: nan, as announced for each group
        overall = rates.hits.sum(axis=0) / rates.rows.sum(axis=0)
    return np.minimum(by_group, overall), np.maximum(by_group, overall)


def choose(table: Mapping[str, T], parameter: str, value: str) -> T:
    """Return the entry `value` of a table of options; an error lists them."""
    if value not in table:
        raise ValueError(f"{parameter} must be one of {list(table)}; got {value!r}.")
    return table[value]


def warn_single_group(group: str) -> None:
    """Warn that there is nothing to compare."""
    warn_caller(
        f"sensitive_features has the single group {group}: there is nothing to "
        "compare it with, so that any gap is 0 and any ratio 1.",
        SmallGroupWarning,
    )


def warn_absent(cells: Iterable[str]) -> None:
    """Warn of rates that do not exist."""
    warn_caller(
        f"{'; '.join(cells)} (or rows of zero weight only): the metric is nan.", SmallGroupWarning
    )
