"""A table of rates by group, each with its interval."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from fairconstrained import rate_definitions
from fairconstrained.arrays import Array, Floats, Ints, check_confidence
from fairconstrained.engines.columns import accepts_tables
from fairconstrained.inputs.groups import (
    Groups,
    column_names,
    free_name,
    group_name,
    n_complete,
    read_groups,
    recoded,
)
from fairconstrained.inputs.labels import refuse_unknown
from fairconstrained.inputs.samples import check_samples, check_weights
from fairconstrained.metrics.auc import Ranked
from fairconstrained.metrics.bounds import newcombe_auc, wilson
from fairconstrained.metrics.inputs import (
    Counts,
    GroupedRows,
    check_scores,
    counted,
    read_labels,
    rows_of_groups,
)
from fairconstrained.rate_definitions import Rates

#: The rates of each group in reports and audits, by their names.
GROUP_RATES: Mapping[str, Rates] = {
    "base_rate": rate_definitions.base_rates,
    "selection_rate": rate_definitions.selection_rates,
    "true_positive_rate": rate_definitions.true_positive_rates,
    "false_positive_rate": rate_definitions.false_positive_rates,
    "error": rate_definitions.error_rates,
    "precision": rate_definitions.precisions,
    "false_omission_rate": rate_definitions.false_omission_rates,
}


class Estimates(NamedTuple):
    """A rate of each group with its interval, and the number of rows that it rests on."""

    rate: Array
    low: Array
    high: Array
    rows: Array

    def columns(self, name: str) -> dict[str, Array]:
        """Return the columns of a table: the rate and the ends of its interval."""
        return {name: self.rate, f"{name}_low": self.low, f"{name}_high": self.high}


@accepts_tables("y_true", "y_pred", "sensitive_features", "y_score", "sample_weight")
def group_report(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: Any,
    y_score: ArrayLike | None = None,
    confidence: float = 0.95,
    sample_weight: ArrayLike | None = None,
    pos_label: Any = None,
    reference: str | None = None,
    X: Any = None,
) -> pd.DataFrame:
    r"""Compute the rates of each group and overall, each with a confidence interval.

    Every group is listed, however small: its intervals say how little is known about it.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        True labels.
    y_pred : array-like of shape (n_samples,)
        Predicted labels.
    sensitive_features : array-like of shape (n_samples,) or (n_samples, n_columns)
        For several columns, the groups of each column are listed, then their combinations. A row
        that lacks one of several values counts by the others.
    y_score : array-like of shape (n_samples,), optional
        Scores that grow with the chance of the positive class, for AUCs.
    confidence : float, default=0.95
        The confidence of each single interval.
    sample_weight : array-like of shape (n_samples,), optional
        Non-negative weights of the rows.
    pos_label : label, optional
        The favourable class, whose rates are listed. It may be left out if it is known: 1 of 0 and
        1 (or -1 and 1), True, and the last of ordered categories.
    reference : str, optional
        A group, as the index names it, to compare all others with.
    X : DataFrame of Dask or Spark, or Dataset of Ray, optional
        The table whose columns the others are, by name.

    Returns
    -------
    DataFrame
        A row per group and the row "overall", or "overall: all rows" where a group is "overall";
        the columns ``samples``, and for each rate ``<rate>``, ``<rate>_low`` and ``<rate>_high``:
        ``base_rate`` (of positive labels), ``selection_rate`` (of positive predictions),
        ``true_positive_rate``, ``false_positive_rate``, ``error``, ``precision``,
        ``false_omission_rate``, and ``auc`` with `y_score`. nan where a group has no rows that the
        rate is about. With `reference` also ``<rate>_difference`` and ``<rate>_ratio``: the rate
        minus, and divided by, that group's.

    Raises
    ------
    ValueError
        Lengths that differ, missing values, negative weights, labels of which the favourable one is
        not known without `pos_label`, a confidence that is not between 0 and 1, a `reference` that
        is no group.

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
    labels = read_labels(y_true, y_pred, pos_label)
    samples = {"y_true": y_true, "y_pred": y_pred, "y_score": y_score}
    check_samples(**samples, sensitive_features=sensitive_features, sample_weight=sample_weight)
    labels.classes.require_known()
    if len(labels.classes.targets) > 1:
        refuse_unknown(labels.classes.labels)
    scores = None if y_score is None else check_scores(y_score)
    weight = check_weights(sample_weight, len(labels.true))
    index, tables = [], []
    for grouped in _groupings(sensitive_features, labels.true, weight):
        inside = labels.of(grouped)
        table = {"samples": grouped.sizes()}
        estimates = compute_rates(counted(grouped, inside), confidence)
        if scores is not None:
            positive = inside.true == labels.classes.targets[0]
            ranked = Ranked.of(scores[grouped.row], positive, grouped)
            estimates["auc"] = compute_aucs(ranked, confidence)
        for name, estimate in estimates.items():
            table |= estimate.columns(name)
        index += grouped.labels
        tables.append(pd.DataFrame(table))
    report = pd.concat(tables, ignore_index=True)
    report.index = pd.Index(index)
    report.attrs["confidence"] = confidence  # for displays
    if reference is None:
        return report
    if reference not in report.index:
        raise ValueError(f"reference must be one of {list(report.index)}; got {reference!r}.")
    rates = report[[rate for rate in [*GROUP_RATES, "auc"] if rate in report]]
    other = rates.loc[reference]
    return report.join(
        [(rates - other).add_suffix("_difference"), (rates / other).add_suffix("_ratio")]
    )


def _groupings(sensitive_features: Any, label: Ints, weight: Floats) -> Iterator[GroupedRows]:
    """Yield the rows in named groups: by each sensitive column, by all columns, and all as one."""
    groups, description = read_groups(sensitive_features, len(label), required=0)
    complete = n_complete(groups.labels)
    if len(names := column_names(description.columns or ())) > 1:
        for name, values in zip(names, zip(*groups.labels, strict=True), strict=True):
            of_label, levels = pd.factorize(np.array(values, dtype=object), sort=True)
            by_column = Groups(recoded(groups.codes, of_label), levels)
            rows = rows_of_groups(by_column, label, weight)
            yield rows._replace(labels=[f"{name}: {group_name(level)}" for level in levels])
        codes = np.where(groups.codes < complete, groups.codes, -1)
        groups = Groups(codes, groups.labels[:complete])
    if complete:
        rows = rows_of_groups(groups, label, weight)
        yield rows._replace(labels=rows.names)
    overall = free_name("overall", list(map(group_name, groups.labels.tolist())), "all rows")
    every = np.zeros(len(weight), dtype=np.int64)
    yield GroupedRows(slice(None), 1.0, every, [overall], weight)


def compute_rates(counts: Counts, confidence: float) -> dict[str, Estimates]:
    """Compute the rates of each group with their intervals."""
    squares, rows = counts._replace(table=counts.squares), counts._replace(table=counts.rows)
    estimates = {}
    for name, notion in GROUP_RATES.items():
        hits, total = (sums[:, 0] for sums in counts.rates(notion)[:2])
        rate = hits / np.where(total > 0, total, np.nan)
        squared = squares.rates(notion).rows[:, 0]
        effective = total**2 / np.where(squared > 0, squared, 1.0)
        ends = wilson(rate * effective, effective, confidence)
        estimates[name] = Estimates(rate, *ends, rows.rates(notion).rows[:, 0])
    return estimates


def compute_aucs(ranked: Ranked, confidence: float) -> Estimates:
    """Compute the AUC of each group with its interval; it rests on the rows of the rarer label."""
    (negative, positive), n_groups = ranked.weight.reshape(2, -1), len(ranked.groups)
    won, pairs = np.diag(ranked.table()[n_groups:, :n_groups]), negative * positive
    aucs = won / np.where(pairs > 0, pairs, np.nan)
    cells = ranked.cells
    negatives, positives = cells.effective().reshape(2, -1)
    rows = np.bincount(cells.group, cells.weight != 0, 2 * n_groups).reshape(2, -1).min(axis=0)
    return Estimates(aucs, *newcombe_auc(aucs, positives, negatives, confidence), rows)
