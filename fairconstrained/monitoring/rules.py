"""What is watched: the rates of a criterion, how they are compared, and what is allowed."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from fairconstrained.arrays import Array, as_numpy
from fairconstrained.metrics.claims import own_bound
from fairconstrained.monitoring.betting import Payoffs, of_cap, of_gap, of_ratio
from fairconstrained.rates import CAPS, PARITIES, Rates, needs_labels


class Rule(NamedTuple):
    """The rates of a criterion, and the largest violation that is allowed."""

    name: str
    events: list[str]
    hits: Array  # (n_events, 4) zeros and ones, for true label 0 or 1 by prediction 0 or 1
    possible: Array  # (n_events, 4) booleans
    payoffs: Payoffs
    most: float
    pooled: bool  # all rows are one group
    needs_labels: bool
    positive: Any  # None: 1

    @property
    def of_ratio(self) -> bool:
        """Whether violations are one minus a ratio."""
        return self.payoffs is of_ratio

    @property
    def of_cap(self) -> bool:
        """Whether each rate is compared with the cap, and not with that of another group."""
        return self.payoffs is of_cap


def read_rule(constraint: Any, slack: Any, pos_label: Any) -> Rule:
    """Check the parameters of a monitor."""
    name = constraint if isinstance(constraint, str) else getattr(constraint, "name", constraint)
    known: Mapping[str, Rates] = {**PARITIES, **CAPS}
    if not isinstance(name, str) or name not in known:
        raise ValueError(f"constraint must be one of {sorted(known)}; got {constraint!r}.")
    if getattr(constraint, "reference", "pairwise") != "pairwise":
        raise ValueError(
            "FairnessMonitor watches the largest difference between groups "
            f"(reference='pairwise'); got {constraint!r}."
        )
    if getattr(constraint, "attributes", "crossed") != "crossed":
        raise ValueError(
            "FairnessMonitor compares crossed groups (attributes='crossed'): watch each column of "
            f"sensitive_features by a monitor of its own; got {constraint!r}."
        )
    own = own_bound(constraint)
    most = slack if own is None else own
    if isinstance(most, bool) or not isinstance(most, Real) or not 0 <= float(most) < 1:
        raise ValueError(f"slack must be a number >= 0 and < 1; got {most!r}.")
    ratio = getattr(constraint, "ratio", None)
    rates = list(known[name]([0, 1], [1]))
    return Rule(
        name,
        [rate.event + rate.given for rate in rates],
        np.array([rate.hits.ravel() for rate in rates], dtype=np.int8),
        np.array([rate.possible.ravel() > 0 for rate in rates]),
        of_cap if name in CAPS else of_gap if ratio is None else of_ratio,
        float(most),
        name in CAPS and not getattr(constraint, "per_group", False),
        needs_labels(known[name]),
        getattr(constraint, "pos_label", None) if pos_label is None else pos_label,
    )


def label_codes(
    values: Any, name: str, labels: dict[Any, int], positive: Any, missing: bool = False
) -> Array:
    """Return 1 for the positive label, 0 for the other one and -1 for none; `labels` grows."""
    array = np.asarray(as_numpy(values))
    if array.ndim != 1:
        raise ValueError(f"{name} must have one label per row; got shape {array.shape}.")
    rows = array.tolist()
    for value in set(rows):
        known = value is not None and (value == value) is True  # not NaN, not pandas.NA
        if known and value not in labels:
            labels[value] = _code(value, name, labels, positive)
        if not known and not missing:
            raise ValueError(f"{name} has missing values.")
    return np.array([labels.get(value, -1) for value in rows], dtype=np.int64)


def _code(value: Any, name: str, labels: dict[Any, int], positive: Any) -> int:
    """The code of a label that has not been seen before."""
    if positive is None and value not in (0, 1, -1):
        raise ValueError(
            f"pos_label must say which label is the positive one if labels are not 0 and 1; {name} "
            f"holds {value!r}."
        )
    positive = 1 if positive is None else positive
    code = int(value == positive)
    if code in labels.values():
        other = next(label for label, known in labels.items() if known == code)
        raise ValueError(
            f"{name} must hold two labels, of which {positive!r} is the positive one; got "
            f"{other!r} and {value!r}."
        )
    return code
