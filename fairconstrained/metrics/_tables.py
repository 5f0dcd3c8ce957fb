"""Rates from labels, predictions and groups, and one number from rates.

Every rate metric is ``gap(notion(count_table(...)))`` (or ``ratio``, ``least``, ``largest``): one
table of weighted counts, one small function of it (in ``_notions.py``), one summary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import UndefinedMetricWarning

from fairconstrained.arrays import Array, check_array
from fairconstrained.exceptions import SmallGroupWarning, warn_caller
from fairconstrained.groups import encode_groups, group_name
from fairconstrained.samples import check_samples

T = TypeVar("T")

UNSEEN = "another label"  # stands for the second class where only one label was seen


class Counts(NamedTuple):
    """Weight of the rows of each group with each true and each predicted label.

    With two classes the rates of the positive one are compared, with more those of each class. If
    the smaller of two labels is 1, either may be the positive one: scikit-learn and fairlearn take
    1 for predicted labels, and the larger label for scores. Gaps are equal for both.
    """

    table: Array  # (n_groups, n_classes true, n_classes predicted)
    groups: list[str]
    classes: list[Any]
    candidates: list[int]  # positions of the classes that are compared; of two, both if either may

    @property
    def targets(self) -> list[int]:
        """The same where it matters which of two classes is the positive one."""
        return self.decided().candidates

    def decided(self) -> Counts:
        """These counts, if the positive one of two classes is known."""
        if len(self.candidates) == len(self.classes) == 2:
            raise ValueError(
                f"pos_label must say which of the labels {self.classes} is the positive one; got "
                f"None. scikit-learn and fairlearn take 1, the larger label is {self.classes[1]!r}."
            )
        return self


class Rates(NamedTuple):
    """Fractions of rows, by group (rows of the arrays) and by event (columns)."""

    hits: Array  # (n_groups, n_events): weight of the rows where the event happened
    rows: Array  # weight of the rows where it could: n_events columns, or one
    given: list[str]  # what the columns of `rows` condition on, for messages
    groups: list[str]


# --- input ---------------------------------------------------------------------------------------


def check_labels(values: ArrayLike, name: str, n_samples: int | None = None) -> Array:
    """One-dimensional class labels without missing values; `name` stands in the errors."""
    labels = check_array(values, ensure_2d=False, dtype=None, input_name=name)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        raise ValueError(f"{name} must have one label per row; got shape {labels.shape}.")
    if n_samples is not None and len(labels) != n_samples:
        raise ValueError(f"{name} has {len(labels)} rows, but y_true has {n_samples}.")
    if pd.isna(labels).any():
        raise ValueError(f"{name} has missing values.")
    if pd.api.types.infer_dtype(labels).startswith("mixed"):
        raise ValueError(f"{name} must hold labels of one type; got some text and some numbers.")
    if labels.dtype.kind == "f" and (fractions := labels[labels != np.floor(labels)]).size:
        raise ValueError(
            f"{name} must hold class labels; got {fractions[0]}. Turn scores or probabilities "
            "into labels first (scores > 0, probabilities > 0.5)."
        )
    return np.asarray(labels)


def check_weights(sample_weight: ArrayLike | None, n_samples: int) -> NDArray[np.float64]:
    """Non-negative weights, one per row; ones when None."""
    if sample_weight is None:
        return np.ones(n_samples)
    weight = check_array(
        sample_weight, ensure_2d=False, dtype=np.float64, input_name="sample_weight"
    )
    if weight.shape != (n_samples,):
        raise ValueError(
            f"sample_weight must have shape ({n_samples},), one weight per row; got {weight.shape}."
        )
    if weight.min() < 0:
        raise ValueError(f"sample_weight must not be negative; got {weight.min()}.")
    return np.asarray(weight)


def named_groups(sensitive_features: Any, n_samples: int) -> tuple[NDArray[np.int64], list[str]]:
    """The group of each row, and the names of the groups."""
    if sensitive_features is None:
        raise ValueError("sensitive_features must hold one group per row; got None.")
    groups = encode_groups(sensitive_features, n_samples)
    return groups.codes, [group_name(label) for label in groups.labels]


class GroupedRows(NamedTuple):
    """The group and the weight of each row."""

    group: NDArray[np.int64]
    names: list[str]  # of the groups
    weight: NDArray[np.float64]


def grouped_rows(
    n_samples: int, sensitive_features: Any, sample_weight: ArrayLike | None, **inputs: Any
) -> GroupedRows:
    """Check what all metrics take, and that `inputs` have the same samples in the same order."""
    check_samples(**inputs, sensitive_features=sensitive_features, sample_weight=sample_weight)
    weight = check_weights(sample_weight, n_samples)
    return GroupedRows(*named_groups(sensitive_features, n_samples), weight)


def encode_labels(*arrays: Array) -> tuple[list[NDArray[np.int64]], list[Any]]:
    """Codes of the labels of each array in the sorted union of their labels."""
    kinds = {"text" if isinstance(array[0], str) else "numbers" for array in arrays}
    if len(kinds) > 1:
        raise ValueError(
            f"y_true and y_pred must hold the same kind of labels; got {arrays[0][0]!r} and "
            f"{arrays[-1][0]!r} in their first rows."
        )
    codes, seen = pd.factorize(np.concatenate(arrays), sort=True)
    ends = np.cumsum([len(array) for array in arrays])[:-1]
    return np.split(codes.astype(np.int64), ends), seen.tolist()


def classes_of(seen: list[Any], pos_label: Any) -> tuple[list[Any], list[int]]:
    """All classes (`seen` first), and the positions of those that a notion looks at.

    With two classes this is the positive one (`pos_label`, or the larger), with more it is each. If
    only one label was seen, a second class without rows is added. 0, -1 and False are then the
    negative label, and anything else is the positive one.
    """
    if len(seen) == 1:
        negative = seen[0] in (0, -1) if pos_label is None else seen[0] != pos_label
        return [*seen, UNSEEN if pos_label is None else pos_label], [int(negative)]
    if pos_label is None:
        return seen, [1] if len(seen) == 2 else list(range(len(seen)))
    if pos_label not in seen:
        raise ValueError(f"pos_label must be one of the labels {seen}; got {pos_label!r}.")
    return seen, [seen.index(pos_label)]


def count_table(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    sensitive_features: Any,
    sample_weight: ArrayLike | None = None,
    pos_label: Any = None,
) -> Counts:
    """Count the rows of each group x true label x predicted label, in one pass."""
    true = check_labels(y_true, "y_true")
    predicted = check_labels(y_pred, "y_pred", len(true))
    group, groups, weight = grouped_rows(
        len(true), sensitive_features, sample_weight, y_true=y_true, y_pred=y_pred
    )
    (true, predicted), seen = encode_labels(true, predicted)
    classes, candidates = classes_of(seen, pos_label)
    if pos_label is None and len(seen) == 2 and seen[0] == 1:
        candidates = [0, 1]
    shape = (len(groups), len(classes), len(classes))
    cell = np.ravel_multi_index((group, true, predicted), shape)
    table = np.bincount(cell, weights=weight, minlength=int(np.prod(shape))).reshape(shape)
    return Counts(table, groups, classes, candidates)


# --- summaries -----------------------------------------------------------------------------------

# How groups are compared: the lower and the higher rate of each comparison, both of shape
# (n_comparisons, n_events), from the rates of the groups and the overall rates.
_Bounds = Callable[[Array, Array], tuple[Array, Array]]
METHODS: dict[str, _Bounds] = {
    "between_groups": lambda by_group, overall: (
        by_group.min(axis=0, keepdims=True),
        by_group.max(axis=0, keepdims=True),
    ),
    "to_overall": lambda by_group, overall: (
        np.minimum(by_group, overall),
        np.maximum(by_group, overall),
    ),
}

_Summary = Callable[[Array], Any]
_GAP_SUMMARIES: dict[str, _Summary] = {"worst_case": np.max, "mean": np.mean}
_RATIO_SUMMARIES: dict[str, _Summary] = {"worst_case": np.min, "mean": np.mean}


def gap(rates: Rates, method: str = "between_groups", agg: str = "worst_case") -> float:
    """Largest difference between the groups' rates; the worst event, or the mean over events."""
    low, high = _bounds(rates, method)
    summary = choose(_GAP_SUMMARIES, "agg", agg)
    return float(summary((high - low).max(axis=0)))


def summed_gap(rates: Rates) -> float:
    """Largest difference between the groups' rates given each condition, summed over these.

    The events of one condition stand side by side.
    """
    low, high = _bounds(rates, "between_groups")
    gaps = (high - low).max(axis=0).reshape(len(set(rates.given)), -1)
    return float(gaps.max(axis=1).sum())


def ratio(rates: Rates, method: str = "between_groups", agg: str = "worst_case") -> float:
    """Smallest ratio between the groups' rates; the worst event, or the mean over events."""
    low, high = _bounds(rates, method)
    summary = choose(_RATIO_SUMMARIES, "agg", agg)
    defined = high.max(axis=0) != 0
    if not defined.all():
        warn_caller(
            f"{int((~defined).sum())} of the {len(defined)} rates compared are zero in every "
            "group and have no ratio; they are left out (nan when none is left).",
            UndefinedMetricWarning,
        )
    ratios = (low[:, defined] / high[:, defined]).min(axis=0)
    return float(summary(ratios)) if ratios.size else float("nan")


def least(rates: Rates) -> float:
    """Smallest rate of any group and event."""
    return float(_by_group(rates).min())


def largest(rates: Rates) -> float:
    """Largest rate of any group and event."""
    return float(_by_group(rates).max())


def choose(table: Mapping[str, T], parameter: str, value: str) -> T:
    """The entry `value` of a table of options, or an error that lists them."""
    if value not in table:
        raise ValueError(f"{parameter} must be one of {list(table)}; got {value!r}.")
    return table[value]


def warn_single_group(group: str) -> None:
    """Say that there is nothing to compare."""
    warn_caller(
        f"sensitive_features has the single group {group}: there is nothing to "
        "compare it with, so that any gap is 0 and any ratio 1.",
        SmallGroupWarning,
    )


def warn_absent(cells: Iterable[str]) -> None:
    """Say which rates do not exist."""
    warn_caller(
        f"{'; '.join(cells)} (or rows of zero weight only): the metric is nan.", SmallGroupWarning
    )


def _bounds(rates: Rates, method: str) -> tuple[Array, Array]:
    compare = choose(METHODS, "method", method)
    if len(rates.groups) == 1:
        warn_single_group(rates.groups[0])
    by_group = _by_group(rates)
    with np.errstate(invalid="ignore"):  # no rows at all: nan, as announced for each group
        overall = rates.hits.sum(axis=0) / rates.rows.sum(axis=0)
    return compare(by_group, overall)


def _by_group(rates: Rates) -> Array:
    empty = rates.rows <= 0
    if empty.any():
        absent = (
            f"group {rates.groups[g]} has no rows{rates.given[e]}" for g, e in np.argwhere(empty)
        )
        warn_absent(dict.fromkeys(absent))
    return np.asarray(rates.hits / np.where(empty, np.nan, rates.rows))
