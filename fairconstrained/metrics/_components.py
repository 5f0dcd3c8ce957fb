r"""Which components each metric has, and draws of their errors.

Rates are functions of a table of counts, so thousands of bootstrap tables are one multinomial draw
per group. Distributions of scores are tables as well, of counts between thresholds. AUCs and mean
losses are nearly normal with the covariance of their influence functions, from one sort. Groups
keep their sizes; with weights the size is the effective one, :math:`(\sum w)^2 / \sum w^2`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairconstrained.auc import COMPARISONS, auc_differences, auc_influences, win_table
from fairconstrained.metrics import _notions as notions
from fairconstrained.metrics import auc, gaps, information, losses, partial, rates
from fairconstrained.metrics._summaries import Components, Extreme, Largest, Norm, Range
from fairconstrained.metrics._tables import (
    Counts,
    Rates,
    check_labels,
    check_weights,
    classes_of,
    count_table,
    encode_labels,
    named_groups,
)
from fairconstrained.percentiles import auc_inside, inside_intervals, rank_of_scores, share

__all__ = ["COMPONENTS", "components_of", "effective_rows"]

Array = NDArray[Any]
Reader = Callable[..., Components | None]
N_DRAWS = 10_000  # of tables of counts, and of errors of AUCs
N_DRAWS_OF_CURVES = 2_000  # of distributions of scores
N_THRESHOLDS = 200  # of distributions of scores: quantiles of all scores


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


def effective_rows(group: Array, weight: Array, n_groups: int) -> Array:
    """Number of equally weighted rows that say as much, by group (Kish 1965)."""
    total, squares = (
        np.bincount(group, weights=w, minlength=n_groups) for w in (weight, weight**2)
    )
    return np.asarray(total**2 / np.where(squares > 0, squares, 1.0))


class Rows:
    """The data, and draws of their errors."""

    def __init__(self, y_true: Any, y_pred: Any, groups: Any, weight: Any, rng: Any) -> None:
        self.y_true, self.y_pred, self.rng = y_true, y_pred, rng
        n_rows = len(y_pred)
        self.weight = check_weights(weight, n_rows)
        self.sensitive_features = np.zeros(n_rows) if groups is None else groups
        self.group, self.groups = named_groups(self.sensitive_features, n_rows)
        self.effective = effective_rows(self.group, self.weight, len(self.groups))

    def tables(self, cells: Array) -> tuple[Array, Array]:
        """Cell probabilities (n_groups, n_cells) and draws (n_draws, n_groups, n_cells) of counts.

        Half a row is added to each cell (Jeffreys' prior): a rate of 0 of 50 is not known exactly.
        """
        total = cells.sum(axis=1, keepdims=True)
        size = np.maximum(np.round(self.effective), 1).astype(np.int64)
        counts = cells * (size[:, None] / np.where(total > 0, total, 1.0))
        p = (counts + 0.5) / (counts + 0.5).sum(axis=1, keepdims=True)
        draws = [self.rng.multinomial(n, row, size=N_DRAWS) for n, row in zip(size, p, strict=True)]
        return p, np.stack(draws, axis=1).astype(float)

    def normal(self, covariance: Array) -> Array:
        """Draws of normal errors, (n_draws, m)."""
        values, vectors = np.linalg.eigh(covariance)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        return np.asarray(self.rng.normal(size=(N_DRAWS, len(root))) @ root.T)


# --- predicted labels -----------------------------------------------------------------------------


def _group_rates(
    notion: Callable[[Counts], Rates], rows: Rows, y_pred: Any, pos_label: Any
) -> tuple[Array, Array, Array, Counts]:
    """Rates (n_groups, n_events) with the errors of their draws, overall rates' too.

    A notion is linear in the table, and the same in every group: its two matrices come from
    tables of a single row.
    """
    y_true = y_pred if rows.y_true is None else rows.y_true
    counts = count_table(y_true, y_pred, rows.sensitive_features, rows.weight, pos_label)
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
        values, noise, overall, _counts = _group_rates(notion, rows, rows.y_pred, pos_label)
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
        values, noise, overall, _counts = _group_rates(notion, rows, rows.y_pred, pos_label)
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
        values, noise, _overall, counts = _group_rates(notion, rows, rows.y_pred, pos_label)

        def summed(ranges: Array) -> Array:
            blocks = ranges.reshape(*ranges.shape[:-1], len(counts.classes), -1)
            return np.asarray(blocks.max(axis=-1).sum(axis=-1))

        return Components(values, noise, Range(summed))

    return components


def _cap(notion: Callable[[Counts], Rates]) -> Reader:
    def components(rows: Rows, pos_label: Any = None, **_: Any) -> Components:
        values, noise, *_rest = _group_rates(notion, rows, rows.y_pred, pos_label)
        return Components(values.ravel(), noise.reshape(len(noise), -1), Extreme(), most=1.0)

    return components


def _mutual_information(
    rows: Rows, pos_label: Any = None, fairness: str = "demographic_parity", **_: Any
) -> Components:
    """ERMI is the squared norm of (P(j, s) - P(j) P(s)) / sqrt(P(j) P(s)), within each label."""
    counts = count_table(rows.y_true, rows.y_pred, rows.sensitive_features, rows.weight, pos_label)
    if pos_label is not None:
        counts = information._against_the_rest(counts)
    shape = counts.table.shape
    p, drawn = rows.tables(counts.table.reshape(len(counts.groups), -1))
    weight = counts.table.sum(axis=(1, 2))[:, None]

    def components(table: Array) -> Array:
        tables = information._CONDITIONS[fairness](counts._replace(table=table.reshape(shape)))
        total = np.maximum(tables.sum(axis=(1, 2), keepdims=True), 1e-300)
        joint = tables / total
        independent = joint.sum(axis=1, keepdims=True) * joint.sum(axis=2, keepdims=True)
        scaled = (joint - independent) / np.sqrt(np.where(independent > 0, independent, 1.0))
        return np.asarray((scaled * np.sqrt(total / total.sum())).ravel())

    centre = components(weight * p)
    size = drawn[0].sum(axis=1)[:, None]
    noise = np.stack([components(weight * draw / size) for draw in drawn]) - centre
    return Components(components(counts.table), noise, Norm(), lambda size: float(size**2))


# --- scores ---------------------------------------------------------------------------------------


def _auc(notion: str) -> Reader:
    def components(rows: Rows, pos_label: Any = None, **_: Any) -> Components:
        true = check_labels(rows.y_true, "y_true")
        scores = auc._scores(rows.y_pred, len(true))
        (codes,), seen = encode_labels(true)
        positive = classes_of(seen, pos_label)[1][0]
        n_groups = len(rows.groups)
        cell = np.where(codes == positive, n_groups, 0) + rows.group
        sets = COMPARISONS[notion](n_groups).reshape(-1, 4, 2 * n_groups)
        cell_weight: Array = np.bincount(cell, weights=rows.weight, minlength=2 * n_groups)
        table = win_table(scores, cell, rows.weight, 2 * n_groups)
        values = auc_differences(table, cell_weight, sets)
        influence = auc_influences(scores, cell, rows.weight, sets)
        return Components(values, rows.normal(influence @ influence.T), Largest(), most=1.0)

    return components


def _loss(
    rows: Rows,
    loss: str = "log",
    method: str = "between_groups",
    pos_label: Any = None,
    labels: Any = None,
    **_: Any,
) -> Components:
    true = check_labels(rows.y_true, "y_true")
    proba = losses._probabilities(rows.y_pred, len(true))
    of_row = losses.LOSSES[loss](
        losses._column_of_label(true, proba.shape[1], pos_label, labels), proba
    )
    member = (rows.group == np.arange(len(rows.groups))[:, None]) * rows.weight
    member = member / member.sum(axis=1, keepdims=True)
    overall = rows.weight / rows.weight.sum()
    values = member @ of_row
    influence = member * (of_row - values[:, None])
    if method == "between_groups":
        noise = rows.normal(influence @ influence.T)
        return Components(values[:, None], noise[:, :, None], Range())
    influence = influence - overall * (of_row - overall @ of_row)
    return Components(values - overall @ of_row, rows.normal(influence @ influence.T), Largest())


class _Distributions:
    """Ranks of thresholds in each group, and the draws of these."""

    def __init__(self, rows: Rows, interval: Any) -> None:
        data = partial.Scored(rows.y_pred, rows.sensitive_features, interval, rows.weight)
        self.intervals = data.intervals
        levels = np.linspace(0, 1, N_THRESHOLDS + 1)[1:-1]
        edges = np.unique(np.quantile(data.scores, levels, method="inverted_cdf"))
        binned = np.searchsorted(edges, data.scores, side="left")  # rows above edges[j]: bin > j
        n_groups, n_bins = len(data.groups), len(edges) + 1
        cells = np.bincount(
            data.group * n_bins + binned, weights=data.weight, minlength=n_groups * n_bins
        ).reshape(n_groups, n_bins)
        size = np.maximum(np.round(rows.effective), 1).astype(np.int64)
        p = cells / cells.sum(axis=1, keepdims=True)
        self.rank = self._above(p)
        draws = [
            rows.rng.multinomial(n, row, size=N_DRAWS_OF_CURVES) / n
            for n, row in zip(size, p, strict=True)
        ]
        self.drawn = self._above(np.stack(draws, axis=1))
        exact = rank_of_scores(data.scores, data.group, data.weight, n_groups).rank
        self.exact = exact

    @staticmethod
    def _above(p: Array) -> Array:
        """Share of the rows above each edge; before the first edge it is 1, after the last 0."""
        above = np.cumsum(p[..., ::-1], axis=-1)[..., ::-1]
        return np.concatenate((above, np.zeros((*p.shape[:-1], 1))), axis=-1)

    def inside(self, rank: Array) -> Array:
        """Share of the interval's rows above each threshold."""
        return np.asarray(share(rank, self.intervals.lower, self.intervals.upper))


def _distributions(rows: Rows, interval: Any, **_: Any) -> Components:
    found = _Distributions(rows, interval)
    values = found.inside(found.rank)
    return Components(values, found.inside(found.drawn) - values, Range())


def _ranks(rows: Rows, interval: Any, **_: Any) -> Components:
    found = _Distributions(rows, interval)
    inside = inside_intervals(found.rank, found.intervals)
    pairs = list(combinations(range(len(rows.groups)), 2))

    def contrasts(rank: Array) -> Array:
        between = [
            (rank[..., g, :] - rank[..., h, :])[..., inside[g] | inside[h]] for g, h in pairs
        ]
        return np.concatenate(between, axis=-1)

    return Components(contrasts(found.rank), contrasts(found.drawn - found.rank), Largest())


def _group_auc_inside(rows: Rows, interval: Any, **_: Any) -> Components:
    found = _Distributions(rows, interval)
    above = np.triu_indices(len(rows.groups), 1)

    def contrasts(rank: Array) -> Array:
        return np.asarray(auc_inside(found.inside(rank))[above] - 0.5)

    values = contrasts(found.rank)
    return Components(values, np.stack([contrasts(r) for r in found.drawn]) - values, Largest())


def _decisions(notion: Callable[[Counts], Rates], labelled: bool) -> Reader:
    """Rates of scores above a threshold, seen through the interval."""

    def components(
        rows: Rows, interval: Any, threshold: float = 0.0, pos_label: Any = None, **_: Any
    ) -> Components:
        data = partial.Scored(rows.y_pred, rows.sensitive_features, interval, rows.weight)
        above = data.scores > threshold
        if labelled:
            found, positive = partial._two_labels(rows.y_true, len(above), pos_label)
            rows.y_true = found[positive[0]]
        else:
            rows.y_true = above
        values, noise, *_rest = _group_rates(notion, rows, above, True)
        lower, upper = data.intervals
        inside = share(values, lower, upper)
        return Components(inside, share(values + noise, lower, upper) - inside, Range())

    return components


COMPONENTS: Mapping[Callable[..., float], Reader] = {
    rates.demographic_parity_difference: _difference(notions.selections),
    rates.demographic_parity_ratio: _ratio(notions.selections),
    rates.equal_opportunity_difference: _difference(notions.true_positives),
    rates.equalized_odds_difference: _difference(notions.odds),
    rates.equalized_odds_ratio: _ratio(notions.odds),
    rates.error_rate_difference: _difference(notions.error_rates),
    rates.false_positive_rate_difference: _difference(notions.false_positives),
    rates.false_negative_rate: _cap(notions.false_negatives),
    rates.false_positive_rate: _cap(notions.false_positives),
    gaps.independence_gap: _difference(notions.selections),
    gaps.separation_gap: _summed(notions.odds),
    gaps.sufficiency_gap: _summed(notions.predictive_values),
    information.exponential_renyi_mutual_information: _mutual_information,
    losses.loss_gap: _loss,
    auc.group_auc_gap: _auc("group_auc"),
    auc.inter_group_auc_gap: _auc("inter_group"),
    auc.intra_group_auc_gap: _auc("intra_group"),
    auc.positive_equality_gap: _auc("positive_equality_gap"),
    auc.negative_equality_gap: _auc("negative_equality_gap"),
    auc.bpsn_bnsp_gap: _auc("bpsn_bnsp"),
    partial.partial_statistical_parity: _distributions,
    partial.ccdf_gap: _ranks,
    partial.partial_demographic_parity: _decisions(notions.selections, labelled=False),
    partial.partial_equal_opportunity: _decisions(notions.true_positives, labelled=True),
    partial.partial_equalized_odds: _decisions(notions.odds, labelled=True),
    partial.partial_group_auc: _group_auc_inside,
}
