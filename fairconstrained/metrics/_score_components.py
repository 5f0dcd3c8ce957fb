"""Components of metrics of scores: AUCs, mean losses, distributions."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np

from fairconstrained.arrays import Array
from fairconstrained.auc import COMPARISONS, auc_influences
from fairconstrained.metrics import auc, losses, partial
from fairconstrained.metrics._draws import Rows
from fairconstrained.metrics._summaries import Components, CurveRange, Extreme, Largest, Range
from fairconstrained.percentiles import auc_inside, fraction_inside, inside_intervals

Reader = Callable[..., Components | None]
N_DRAWS_OF_CURVES = 2_000  # of distributions of scores
N_THRESHOLDS = 200  # of distributions of scores: quantiles of all scores


def auc_components(notion: str) -> Reader:
    """Differences of AUCs."""

    def components(rows: Rows, pos_label: Any = None, **_: Any) -> Components:
        values, noise = _compared(rows, COMPARISONS[notion](len(rows.groups)), pos_label)
        return Components(values, noise, Largest(), most=1.0)

    return components


def least_auc_components(rows: Rows, pos_label: Any = None, **_: Any) -> Components:
    """One minus the AUC of each group."""
    everything = np.ones((2, len(rows.groups)))
    sets = []
    for g in range(len(rows.groups)):
        positive, negative = np.zeros_like(everything), np.zeros_like(everything)
        positive[1, g] = negative[0, g] = 1.0
        sets.append((positive, negative, everything, everything))  # all against all: 1/2
    values, noise = _compared(rows, np.array(sets), pos_label)
    return Components(0.5 - values, -noise, Extreme(), lambda size: 1.0 - size, 1.0)


def _compared(rows: Rows, comparisons: Array, pos_label: Any) -> tuple[Array, Array]:
    """Differences of AUCs, and draws of their errors."""
    ranked = auc.ranked_rows(
        rows.y_true,
        rows.y_pred,
        sensitive_features=rows.sensitive_features,
        sample_weight=rows.weight,
        pos_label=pos_label,
    )
    sets = comparisons.reshape(-1, 4, 2 * len(rows.groups))
    influence = auc_influences(ranked.scores, ranked.cell, rows.weight, sets)
    return ranked.differences(sets), rows.normal(influence @ influence.T)


def loss_components(
    rows: Rows, loss: str = "log", method: str = "between_groups", **options: Any
) -> Components:
    """Mean losses of the groups."""
    values, influence, overall = _mean_losses(rows, loss, **options)
    if method == "between_groups":
        noise = rows.normal(influence @ influence.T)
        return Components(values[:, None], noise[:, :, None], Range())
    influence = influence - overall[1]
    return Components(values - overall[0], rows.normal(influence @ influence.T), Largest())


def largest_loss_components(rows: Rows, **options: Any) -> Components:
    """Mean log losses of the groups."""
    values, influence, _overall = _mean_losses(rows, "log", **options)
    return Components(values, rows.normal(influence @ influence.T), Extreme())


def _mean_losses(
    rows: Rows, loss: str, pos_label: Any = None, labels: Any = None, **_: Any
) -> tuple[Array, Array, tuple[Array, Array]]:
    """Mean losses of the groups, the influence of each row on them, and the same overall."""
    of_row, _rows = losses.row_losses(
        rows.y_true, rows.y_pred, rows.sensitive_features, loss, rows.weight, pos_label, labels
    )
    member = (rows.group == np.arange(len(rows.groups))[:, None]) * rows.weight
    member = member / member.sum(axis=1, keepdims=True)
    overall = rows.weight / rows.weight.sum()
    values, mean = member @ of_row, overall @ of_row
    return values, member * (of_row - values[:, None]), (mean, overall * (of_row - mean))


class _Distributions:
    """Ranks of thresholds in each group, and the draws of these."""

    def __init__(self, rows: Rows, interval: Any) -> None:
        data = partial.Scored(rows.y_pred, rows.sensitive_features, interval, rows.weight)
        self.intervals = data.intervals
        size = np.maximum(np.round(rows.effective), 1).astype(np.int64)
        levels = np.linspace(0, 1, N_THRESHOLDS + 1)[1:-1]
        edges = np.unique(np.quantile(data.scores, levels, method="inverted_cdf"))
        rank = self._above(self._fractions(data, edges))[:, 1:-1]
        edges = edges[self._can_matter(rank, size)]
        p = self._fractions(data, edges)
        self.rank = self._above(p)
        draws = [
            rows.rng.multinomial(n, row, size=N_DRAWS_OF_CURVES) / n
            for n, row in zip(size, p, strict=True)
        ]
        self.drawn = self._above(np.stack(draws, axis=1))

    @staticmethod
    def _fractions(data: Any, edges: Array) -> Array:
        """Fractions of each group's rows between these edges."""
        binned = np.searchsorted(edges, data.scores, side="left")  # rows above edges[j]: bin > j
        n_groups, n_bins = len(data.groups), len(edges) + 1
        cells = np.bincount(
            data.group * n_bins + binned, weights=data.weight, minlength=n_groups * n_bins
        ).reshape(n_groups, n_bins)
        return np.asarray(cells / cells.sum(axis=1, keepdims=True))

    def _can_matter(self, rank: Array, size: Array) -> Array:
        """Thresholds whose rank in some group is not for sure outside of its interval."""
        error = 5.0 * (0.5 / np.sqrt(size))[:, None]  # five of the largest standard errors
        lower, upper = (ends[:, None] for ends in self._hull())
        return np.asarray(((rank + error >= lower) & (rank - error <= upper)).any(axis=0))

    def _hull(self) -> tuple[Array, Array]:
        """Ends of the intervals of each group."""
        lower, upper = self.intervals
        lengths = upper > lower
        return np.where(lengths, lower, 1.0).min(axis=1), np.where(lengths, upper, 0.0).max(axis=1)

    @staticmethod
    def _above(p: Array) -> Array:
        """Fraction of the rows above each edge; before the first edge it is 1, after the last 0."""
        above = np.cumsum(p[..., ::-1], axis=-1)[..., ::-1]
        return np.concatenate((above, np.zeros((*p.shape[:-1], 1))), axis=-1)

    def inside(self, rank: Array) -> Array:
        """Fraction of the interval's rows above each threshold."""
        return np.asarray(fraction_inside(rank, self.intervals.lower, self.intervals.upper))


def distributions_components(rows: Rows, interval: Any, **_: Any) -> Components:
    found = _Distributions(rows, interval)
    values = found.inside(found.rank)
    return Components(values, found.inside(found.drawn) - values, CurveRange())


def ranks_components(rows: Rows, interval: Any, **_: Any) -> Components:
    found = _Distributions(rows, interval)
    inside = inside_intervals(found.rank, found.intervals)
    pairs = list(combinations(range(len(rows.groups)), 2))

    def contrasts(rank: Array) -> Array:
        between = [
            (rank[..., g, :] - rank[..., h, :])[..., inside[g] | inside[h]] for g, h in pairs
        ]
        return np.concatenate(between, axis=-1)

    return Components(contrasts(found.rank), contrasts(found.drawn - found.rank), Largest())


def group_auc_inside_components(rows: Rows, interval: Any, **_: Any) -> Components:
    found = _Distributions(rows, interval)
    above = np.triu_indices(len(rows.groups), 1)

    def contrasts(rank: Array) -> Array:
        return np.asarray(auc_inside(found.inside(rank))[above] - 0.5)

    values = contrasts(found.rank)
    return Components(values, np.stack([contrasts(r) for r in found.drawn]) - values, Largest())
