"""Who is compared: which groups, also within labels and strata, and why others are left out.

Fits, metrics, certificates, audits and monitors ask :func:`compared`, so that they agree. A *rate*
here is any number that rests on rows of a group: a rate of predictions, a mean loss, an AUC.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fairconstrained.arrays import Array, Floats, in_rows, is_number

EMPTY, FEW, ALONE = "no rows", "too few rows", "nothing to compare it with"
#: Why a rate is left out; the guide prints this table.
REASONS: Mapping[str, str] = {
    EMPTY: "no row is in the group, in the stratum or with the label that the rate is about; or "
    "the sample lacks a group or a label that the model knows",
    FEW: "one row would move the rate by more than the slack, and the second largest group has "
    "more than four times as many rows (min_group_size='auto'); or an integer asks for more rows",
    ALONE: "no other group is left with this label, in this stratum and by this attribute",
}
#: Why a ratio is left out.
NO_RATIO = "rates of zero have no ratio"
#: The slack that decides which groups are compared where the user gives none.
DEFAULT_SLACK = 0.05
#: Values of the parameter `min_group_size`, in words.
SIZES = "'auto' or an integer >= 0"


def is_size(value: Any) -> bool:
    """Return whether a value is valid for `min_group_size`: 'auto' or an integer >= 0."""
    if isinstance(value, str):
        return value == "auto"
    return is_number(value, Integral) and value >= 0


def undecided(estimate: float, standing: float | None, slack: float) -> bool:
    """Return whether a criterion is within the slack only because groups are missing.

    `estimate` is its value on rows of known group. `standing` is the value with these weighted to
    represent all rows of their label, as in fits and metrics; None or nan if that changes nothing.
    """
    return standing is not None and not estimate > slack and standing > slack


class Compared(NamedTuple):
    """Which rates are compared. Arrays have an entry for each rate: groups by events."""

    rows: Array  # on which the rate rests
    least: Floats  # fewest on which it may rest
    alone: Array  # whether there are enough rows, but no other rate to compare it with

    @property
    def enough(self) -> Array:
        """Whether a rate rests on enough rows."""
        return np.asarray(self.rows >= self.least)

    @property
    def kept(self) -> Array:
        """Whether a rate is compared."""
        return self.enough & ~self.alone

    def without_ratio(self, hits: Array) -> Array:
        """Return whether the rates of an event are zero in all groups compared, (n_events,)."""
        zero = self.kept.any(axis=0) & ~(self.kept & (hits > 0)).any(axis=0)
        return np.asarray(zero)

    def left_out(self, name: Callable[..., str]) -> list[str]:
        """Return the name of each rate left out, and the reason."""
        places = map(tuple, np.argwhere(~self.kept).tolist())
        return list(dict.fromkeys(f"{name(*at)} ({self.reason(at)})" for at in places))

    def reason(self, at: tuple[int, ...], hidden: int = 0) -> str:
        """Return why a rate is left out: its rows, and the minimum or comparison that it lacks.

        Numbers of rows below `hidden` are not told.
        """
        rows = max(int(self.rows[at]), 0)  # a released number may be negative
        if 0 < rows < hidden:
            return f"fewer than {hidden} rows"
        if self.alone[at]:
            return f"{in_rows(rows)}, {ALONE}"
        return f"{in_rows(rows)}, fewer than {np.ceil(self.least[at]):.0f}" if rows else in_rows(0)


def compared(
    rows: ArrayLike,
    slack: float,
    min_rows: int | str,
    *,
    families: ArrayLike = 0,
    sets: ArrayLike | None = None,
    floor: int = 1,
) -> Compared:
    """Decide which rates are compared, separately for each event (a column).

    `rows` (n_groups, n_events) are numbers of rows of known group. `min_rows` is the fewest that a
    rate may rest on, or "auto": so many that one of them moves it by no more than the slack, but no
    more than a quarter of the second largest group of the same family. So a small table keeps its
    groups, and a mistyped label is left out of a large one. `families` numbers the attribute of
    each group (-1: no single group, for which "auto" requires one row), and `sets` the groups that
    are compared with each other. Without `sets` no rate is alone, as where each has its own cap.
    """
    rows = np.asarray(rows)
    families = np.broadcast_to(families, len(rows))
    least = np.full(rows.shape, 1.0 if min_rows == "auto" else max(float(min_rows), 1.0))
    if min_rows == "auto":
        most = max(round(1.0 / slack, 9), 1.0) if slack > 0 else np.inf  # 5 for 1 - 0.8
        for family in np.unique(families[families >= 0]):
            members = families == family
            if members.sum() > 1:
                second_largest = np.sort(rows[members], axis=0)[-2]
                least[members] = np.clip(second_largest / 4, 1.0, most)
    least = np.maximum(least, floor)
    alone = np.zeros(rows.shape, dtype=bool)
    if sets is not None:
        enough = rows >= least
        same = np.unique(np.broadcast_to(sets, len(rows)), return_inverse=True)[1].reshape(-1)
        others = np.zeros(rows.shape, dtype=int)
        np.add.at(others, same, enough)
        alone = enough & (others[same] < 2)
    return Compared(rows, least, alone)
