"""A table of rates by group, each with its interval."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from fairconstrained.arrays import Array
from fairconstrained.groups import encode_groups, group_name
from fairconstrained.metrics._draws import effective_rows
from fairconstrained.metrics._tables import (
    check_labels,
    check_weights,
    count_table,
    encode_labels,
)
from fairconstrained.metrics.auc import Ranked
from fairconstrained.metrics.bounds import check_confidence, newcombe_auc, wilson
from fairconstrained.metrics.partial import checked_scores
from fairconstrained.samples import check_samples

OVERALL = "overall"


def group_report(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: Any,
    y_score: ArrayLike | None = None,
    confidence: float = 0.95,
    sample_weight: ArrayLike | None = None,
    pos_label: Any = None,
) -> pd.DataFrame:
    r"""Rates of each group and overall, each with a confidence interval.

    Every group is listed, however small: its intervals say how little is known about it.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        True labels.
    y_pred : array-like of shape (n_samples,)
        Predicted labels.
    sensitive_features : array-like of shape (n_samples,) or (n_samples, n_columns)
        For several columns, the groups of each column are listed, then their combinations.
    y_score : array-like of shape (n_samples,), optional
        Scores that grow with the chance of the positive class, for AUCs.
    confidence : float, default=0.95
        The confidence of each single interval.
    sample_weight : array-like of shape (n_samples,), optional
        Non-negative weights of the rows.
    pos_label : label, optional
        The class whose rates are listed; by default the larger of two labels.

    Returns
    -------
    DataFrame
        A row per group and the row "overall"; the columns ``samples``, and for each rate
        ``<rate>``, ``<rate>_low`` and ``<rate>_high``: ``base_rate`` (of positive labels),
        ``selection_rate`` (of positive predictions), ``true_positive_rate``,
        ``false_positive_rate``, ``error``, ``precision``, and ``auc`` with `y_score`. nan where a
        group has no rows that the rate is about.

    Raises
    ------
    ValueError
        Lengths that differ, missing values, negative weights, more than two labels without
        `pos_label`, a confidence that is not between 0 and 1.

    Notes
    -----
    Intervals of rates are Wilson's. They cover with the stated probability on average, also for
    rates near 0 and 1 and for small groups, where the normal interval fails. Exact intervals
    (Clopper and Pearson) are longer and cover more than is stated (Brown, Cai and DasGupta 2001);
    :func:`fairconstrained.metrics.certify` uses those. Intervals of AUCs are Newcombe's. A weighted
    rate is as certain as one of :math:`(\sum w)^2 / \sum w^2` equally weighted rows (Kish 1965).

    Examples
    --------
    >>> from fairconstrained.metrics import group_report
    >>> report = group_report([0, 1, 0, 1, 1], [0, 1, 1, 1, 1], sensitive_features=list("aaabb"))
    >>> report[["samples", "selection_rate", "selection_rate_low", "selection_rate_high"]].round(2)
             samples  selection_rate  selection_rate_low  selection_rate_high
    a              3            0.67                0.21                 0.94
    b              2            1.00                0.34                 1.00
    overall        5            0.80                0.38                 0.96
    """
    check_confidence(confidence)
    check_samples(y_true=y_true, y_score=y_score)
    counts = count_table(y_true, y_pred, sensitive_features, sample_weight, pos_label)
    if len(counts.targets) > 1:
        raise ValueError(f"pos_label must name one of the labels {counts.classes}; got None.")
    targets = counts.targets
    true, predicted = check_labels(y_true, "y_true"), check_labels(y_pred, "y_pred")
    weight = check_weights(sample_weight, len(true))
    (true, predicted), _ = encode_labels(true, predicted)
    positive = true == targets[0], predicted == targets[0]
    scores = None if y_score is None else checked_scores(y_score)
    if scores is not None and len(scores) != len(true):
        raise ValueError(f"y_score has {len(scores)} rows, but y_true has {len(true)}.")
    index, columns = [], []
    for names, group in _groupings(sensitive_features, len(true)):
        index += names
        found = _counted(group, len(names), *positive, true != predicted, weight, confidence)
        if scores is not None:
            cell = np.where(positive[0], len(names), 0) + group
            found |= _aucs(Ranked(scores, cell, weight, names), confidence)
        columns.append(pd.DataFrame(found))
    report = pd.concat(columns, ignore_index=True)
    report.index = pd.Index(index)
    return report


def _groupings(sensitive_features: Any, n_samples: int) -> Iterator[tuple[list[str], Array]]:
    """Names of the groups and the group of each row: of each column, crossed, and overall."""
    crossed = encode_groups(sensitive_features, n_samples)
    if crossed.labels.dtype == object and isinstance(crossed.labels[0], tuple):
        values = zip(*crossed.labels, strict=True)
        for name, column in zip(_column_names(sensitive_features), values, strict=True):
            of_label, levels = pd.factorize(np.array(column, dtype=object), sort=True)
            yield [f"{name}: {level}" for level in levels], of_label[crossed.codes]
    yield [group_name(label) for label in crossed.labels], crossed.codes
    yield [OVERALL], np.zeros(n_samples, dtype=np.int64)


def _column_names(sensitive_features: Any) -> list[str]:
    names = getattr(sensitive_features, "columns", None)
    if names is None and isinstance(sensitive_features, dict):
        names = sensitive_features
    if names is None:
        names = range(np.shape(sensitive_features)[1])
        return [f"column {i}" for i in names]
    return [str(name) for name in names]


def _counted(
    group: Array,
    n_groups: int,
    true: Array,
    predicted: Array,
    wrong: Array,
    weight: Array,
    confidence: float,
) -> dict[str, Array]:
    """The rates of each group: of the rows in a condition those where something happened."""
    everywhere = np.ones(len(true), dtype=bool)
    rates = {
        "base_rate": (true, everywhere),
        "selection_rate": (predicted, everywhere),
        "true_positive_rate": (predicted, true),
        "false_positive_rate": (predicted, ~true),
        "error": (wrong, everywhere),
        "precision": (true, predicted),
    }

    def summed(values: Array) -> Array:
        return np.asarray(np.bincount(group, weights=values, minlength=n_groups))

    found: dict[str, Array] = {"samples": np.bincount(group, minlength=n_groups)}
    for name, (event, condition) in rates.items():
        inside = weight * condition
        total, effective = summed(inside), effective_rows(group, inside, n_groups)
        rate = summed(inside * event) / np.where(total > 0, total, np.nan)
        low, high = wilson(rate * effective, effective, confidence)
        found |= {name: rate, f"{name}_low": low, f"{name}_high": high}
    return found


def _aucs(ranked: Ranked, confidence: float) -> dict[str, Array]:
    """AUC of the positives against the negatives of each group."""
    n_groups = len(ranked.groups)
    won, pairs = ranked.within_groups()
    aucs = won / np.where(pairs > 0, pairs, np.nan)
    negatives, positives = effective_rows(ranked.cell, ranked.row_weight, 2 * n_groups).reshape(
        2, n_groups
    )
    low, high = newcombe_auc(aucs, positives, negatives, confidence)
    return {"auc": aucs, "auc_low": low, "auc_high": high}
