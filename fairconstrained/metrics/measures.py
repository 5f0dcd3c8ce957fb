"""Comparisons of rates that metrics of predicted labels measure, by the arguments they take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fairconstrained.metrics.inputs import Counts, count_table
from fairconstrained.metrics.metric import ratio
from fairconstrained.rate_definitions import Rates


class Comparison(NamedTuple):
    """The rates of a metric, and the function that compares those of the groups."""

    compare: Callable[..., float]
    rates: Rates

    def of_counts(self, counts: Counts, **options: str) -> float:
        """Compare the rates of the rows that were counted."""
        rates = counts.rates(self.rates, by_ratio=self.compare is ratio)
        return self.compare(rates, **options)


def groups_or_one(sensitive_features: Any, y_pred: Any) -> Any:
    """Return the groups, or one group of all rows."""
    return np.zeros(len(y_pred)) if sensitive_features is None else sensitive_features


def between(
    comparison: Comparison,
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: Any,
    method: str = "between_groups",
    sample_weight: ArrayLike | None = None,
    pos_label: Any = None,
    control_features: Any = None,
    attributes: str = "crossed",
) -> float:
    """Compare one rate between groups, or with that of all rows together."""
    counts = count_table(y_true, y_pred, sensitive_features, sample_weight, pos_label)
    return comparison.of_counts(counts, method=method)


def between_several(
    comparison: Comparison,
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: Any,
    method: str = "between_groups",
    agg: str = "worst_case",
    sample_weight: ArrayLike | None = None,
    pos_label: Any = None,
    control_features: Any = None,
    attributes: str = "crossed",
) -> float:
    """Compare several rates, of which the worst or the mean counts."""
    counts = count_table(y_true, y_pred, sensitive_features, sample_weight, pos_label)
    return comparison.of_counts(counts, method=method, agg=agg)


def between_errors(
    comparison: Comparison,
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: Any,
    method: str = "between_groups",
    sample_weight: ArrayLike | None = None,
    control_features: Any = None,
    attributes: str = "crossed",
) -> float:
    """Compare a rate that is the same for each label."""
    counts = count_table(y_true, y_pred, sensitive_features, sample_weight)
    return comparison.of_counts(counts, method=method)


def between_pairs(
    comparison: Comparison,
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: Any,
    sample_weight: ArrayLike | None = None,
    pos_label: Any = None,
    control_features: Any = None,
    attributes: str = "crossed",
) -> float:
    """Compare groups with each other only."""
    counts = count_table(y_true, y_pred, sensitive_features, sample_weight, pos_label)
    return comparison.of_counts(counts)


def within_groups(
    comparison: Comparison,
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: Any = None,
    sample_weight: ArrayLike | None = None,
    pos_label: Any = None,
    control_features: Any = None,
    attributes: str = "crossed",
) -> float:
    """Summarise the rates of groups; without groups all rows are one."""
    groups = groups_or_one(sensitive_features, y_pred)
    return comparison.of_counts(count_table(y_true, y_pred, groups, sample_weight, pos_label))
