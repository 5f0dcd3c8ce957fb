r"""The components of each metric, and draws of their errors.

Rates are functions of a table of counts, so thousands of bootstrap tables are one multinomial draw
per group. Distributions of scores are tables as well, of counts between thresholds. AUCs and mean
losses are nearly normal with the covariance of their influence functions, from one sort. Groups
keep their sizes; with weights the size is the effective one, :math:`(\sum w)^2 / \sum w^2`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from copy import copy
from typing import Any

import numpy as np

from fairconstrained.arrays import Array
from fairconstrained.metrics import _notions as notions
from fairconstrained.metrics import _score_components as scores
from fairconstrained.metrics import auc, gaps, information, losses, partial, rates
from fairconstrained.metrics._draws import Rows
from fairconstrained.metrics._summaries import Components, Extreme, Largest, Norm, Range
from fairconstrained.metrics._tables import (
    Counts,
    Rates,
    count_table,
)
from fairconstrained.percentiles import fraction_inside

Reader = Callable[..., Components | None]


def components_of(
    metric: Callable[..., float],
    y_true: Any,
    y_pred: Any,
    sensitive_features: Any,
    sample_weight: Any,
    options: Mapping[str, Any],
    rng: np.random.RandomState,
) -> Components | None:
    """Give the components of a metric on these rows; None where they are not known."""
    if metric not in COMPONENTS:
        return None
    rows = Rows(y_true, y_pred, sensitive_features, sample_weight, rng)
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(metric).parameters.items()
        if parameter.default is not parameter.empty
    }
    return COMPONENTS[metric](rows, **{**defaults, **options, "sample_weight": None})


# --- predicted labels -----------------------------------------------------------------------------


def _group_rates(
    notion: Callable[[Counts], Rates], rows: Rows, pos_label: Any
) -> tuple[Array, Array, Array, Counts]:
    """Rates (n_groups, n_events) with the errors of their draws, overall rates' too.

    A notion is linear in the table, and the same in every group: its two matrices come from
    tables of a single row.
    """
    y_true = rows.y_pred if rows.y_true is None else rows.y_true
    counts = count_table(y_true, rows.y_pred, rows.sensitive_features, rows.weight, pos_label)
    k = len(counts.classes)
    of_one_row = [
        notion(counts._replace(table=unit.reshape(1, k, k), groups=["one"]))
        for unit in np.eye(k * k)
    ]
    hits = np.stack([rates.hits[0] for rates in of_one_row])
    possible = np.stack(
        [np.broadcast_to(rates.rows[0], rates.hits[0].shape) for rates in of_one_row]
    )

    def rates_of(table: Array) -> Array:
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray((table @ hits) / (table @ possible))

    cells = counts.table.reshape(len(counts.groups), -1)
    p, drawn = rows.tables(cells)
    noise = np.nan_to_num(rates_of(drawn) - rates_of(p))  # a draw without rows of a label: no error
    return rates_of(cells), noise, _overall(cells, p, drawn, rates_of), counts


def _overall(cells: Array, p: Array, drawn: Array, rates_of: Callable[[Array], Array]) -> Array:
    """Overall rates and the errors of their draws, (1 + n_draws, n_events)."""
    weight = cells.sum(axis=1)
    per_row = weight / np.maximum(drawn[0].sum(axis=1), 1.0)
    draws = np.einsum("bgc,g->bc", drawn, per_row)
    noise = np.nan_to_num(rates_of(draws) - rates_of(weight @ p))
    return np.concatenate((rates_of(cells.sum(axis=0))[None], noise))


_COMBINED: dict[str, Callable[[Array], Array] | None] = {
    "worst_case": None,
    "mean": lambda ranges: ranges.mean(axis=-1),
}


def _difference(notion: Callable[[Counts], Rates]) -> Reader:
    def components(
        rows: Rows,
        method: str = "between_groups",
        agg: str = "worst_case",
        pos_label: Any = None,
        **_: Any,
    ) -> Components | None:
        values, noise, overall, _counts = _group_rates(notion, rows, pos_label)
        if method == "between_groups":
            return Components(values, noise, Range(_COMBINED[agg]), most=1.0)
        if agg != "worst_case":
            return None
        contrasts = (values - overall[0]).ravel()
        errors = (noise - overall[1:, None]).reshape(len(noise), -1)
        return Components(contrasts, errors, Largest(), most=1.0)

    return components


def _ratio(notion: Callable[[Counts], Rates]) -> Reader:
    """A ratio of rates is the difference of their logarithms."""

    def components(
        rows: Rows,
        method: str = "between_groups",
        agg: str = "worst_case",
        pos_label: Any = None,
        **_: Any,
    ) -> Components | None:
        values, noise, overall, _counts = _group_rates(notion, rows, pos_label)
        if agg != "worst_case":
            return None
        values, noise = _logs(values, noise, rows)
        if method == "between_groups":
            return Components(values, noise, Range(), _ratio_of)
        value, errors = _logs(overall[:1], overall[1:], rows)
        contrasts = (values - value).ravel()
        errors = (noise - errors[:, None]).reshape(len(noise), -1)
        return Components(contrasts, errors, Largest(), _ratio_of)

    return components


def _ratio_of(size: float) -> float:
    return float(np.exp(-size))


def _logs(values: Array, noise: Array, rows: Rows) -> tuple[Array, Array]:
    """Logarithms of rates and the errors of their draws; rates are at least a quarter of a row."""
    least = 0.25 / np.maximum(rows.effective.max(), 1.0)
    values = np.maximum(values, least)
    return np.log(values), np.log(np.maximum(values + noise, least)) - np.log(values)


def _summed(notion: Callable[[Counts], Rates]) -> Reader:
    def components(rows: Rows, pos_label: Any = None, **_: Any) -> Components:
        values, noise, _overall, counts = _group_rates(notion, rows, pos_label)

        def summed(ranges: Array) -> Array:
            blocks = ranges.reshape(*ranges.shape[:-1], len(counts.classes), -1)
            return np.asarray(blocks.max(axis=-1).sum(axis=-1))

        return Components(values, noise, Range(summed))

    return components


def _largest(notion: Callable[[Counts], Rates]) -> Reader:
    def components(rows: Rows, pos_label: Any = None, **_: Any) -> Components:
        values, noise, *_rest = _group_rates(notion, rows, pos_label)
        return Components(values.ravel(), noise.reshape(len(noise), -1), Extreme(), most=1.0)

    return components


def _least(notion: Callable[[Counts], Rates]) -> Reader:
    """The smallest rate is one minus the largest complement of a rate."""

    def components(rows: Rows, pos_label: Any = None, **_: Any) -> Components:
        values, noise, *_rest = _group_rates(notion, rows, pos_label)
        missing, errors = 1.0 - values.ravel(), -noise.reshape(len(noise), -1)
        return Components(missing, errors, Extreme(), _missing_to_one, 1.0)

    return components


def _missing_to_one(size: float) -> float:
    return 1.0 - size


def _mutual_information(
    rows: Rows, pos_label: Any = None, constraint: str = "demographic_parity", **_: Any
) -> Components:
    """ERMI is the squared norm of (P(j, s) - P(j) P(s)) / sqrt(P(j) P(s)), within each label."""
    counts = information.counted(
        rows.y_true, rows.y_pred, rows.sensitive_features, rows.weight, pos_label
    )
    shape = counts.table.shape
    p, drawn = rows.tables(counts.table.reshape(len(counts.groups), -1))
    weight = counts.table.sum(axis=(1, 2))[:, None]

    def components(table: Array) -> Array:
        tables = information.CONDITIONS[constraint](counts._replace(table=table.reshape(shape)))
        total = np.maximum(tables.sum(axis=(1, 2), keepdims=True), 1e-300)
        joint = tables / total
        independent = joint.sum(axis=1, keepdims=True) * joint.sum(axis=2, keepdims=True)
        scaled = (joint - independent) / np.sqrt(np.where(independent > 0, independent, 1.0))
        return np.asarray((scaled * np.sqrt(total / total.sum())).ravel())

    centre = components(weight * p)
    size = drawn[0].sum(axis=1)[:, None]
    noise = np.stack([components(weight * draw / size) for draw in drawn]) - centre
    return Components(components(counts.table), noise, Norm(), lambda size: float(size**2))


def _decisions(notion: Callable[[Counts], Rates], labelled: bool) -> Reader:
    """Rates of scores above a threshold, seen through the interval."""

    def components(
        rows: Rows, interval: Any, threshold: float = 0.0, pos_label: Any = None, **_: Any
    ) -> Components:
        data = partial.Scored(rows.y_pred, rows.sensitive_features, interval, rows.weight)
        above = data.scores > threshold
        decided = copy(rows)
        decided.y_true = decided.y_pred = above
        if labelled:
            found, (positive,) = partial.two_labels(rows.y_true, len(above), pos_label)
            decided.y_true = found[positive]
        values, noise, *_rest = _group_rates(notion, decided, True)
        lower, upper = data.intervals
        inside = fraction_inside(values, lower, upper)
        return Components(inside, fraction_inside(values + noise, lower, upper) - inside, Range())

    return components


_WAYS: Mapping[rates.Way, Callable[[Callable[[Counts], Rates]], Reader]] = {
    rates.DIFFERENCE: _difference,
    rates.RATIO: _ratio,
    rates.GROUP_MAX: _largest,
    rates.GROUP_MIN: _least,
}


def _of_rates() -> dict[Callable[..., float], Reader]:
    """Components of all rates that are ratios of counts: balanced accuracies are not."""
    found = {}
    for name in rates.__all__:
        metric = getattr(rates, name)
        compared: rates.Comparison = metric.measure
        if compared.rate is not rates.BALANCED_ACCURACY:
            found[metric] = _WAYS[compared.way](compared.rate.of)
    return found


def _of_auc_gaps() -> dict[Callable[..., float], Reader]:
    metrics = [getattr(auc, name) for name in auc.__all__ if name.endswith("_gap")]
    return {metric: scores.auc_components(metric.measure.notion) for metric in metrics}


COMPONENTS: Mapping[Callable[..., float], Reader] = {
    **_of_rates(),
    gaps.independence_gap: _difference(notions.selections),
    gaps.separation_gap: _summed(notions.odds),
    gaps.sufficiency_gap: _summed(notions.predictive_values),
    information.exponential_renyi_mutual_information: _mutual_information,
    losses.loss_gap: scores.loss_components,
    losses.log_loss_group_max: scores.largest_loss_components,
    auc.roc_auc_score_group_min: scores.least_auc_components,
    **_of_auc_gaps(),
    partial.partial_statistical_parity: scores.distributions_components,
    partial.ccdf_gap: scores.ranks_components,
    partial.partial_demographic_parity: _decisions(notions.selections, labelled=False),
    partial.partial_equal_opportunity: _decisions(notions.true_positives, labelled=True),
    partial.partial_equalized_odds: _decisions(notions.odds, labelled=True),
    partial.partial_group_auc: scores.group_auc_inside_components,
}
