r"""The components of each metric, and draws of their errors.

Rates are functions of a table of counts, so thousands of bootstrap tables are one multinomial draw
per group. Distributions of scores are tables as well, of counts between thresholds. AUCs and mean
losses are nearly normal with the covariance of their influence functions, from one sort. Groups
keep their sizes; with weights the size is the effective one, :math:`(\sum w)^2 / \sum w^2`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from fairconstrained.arrays import Array, Floats
from fairconstrained.auc import COMPARISONS, auc_influences
from fairconstrained.metrics import auc, dependence, losses, rates
from fairconstrained.metrics import partial as inside
from fairconstrained.metrics.inputs import Counts
from fairconstrained.metrics.summaries import (
    Components,
    CurveRange,
    Extreme,
    Largest,
    Norm,
    Range,
)
from fairconstrained.percentiles import Intervals, auc_inside, inside_intervals
from fairconstrained.rates import (
    Rates,
    odds,
    predictive_values,
    selection_rates,
    true_positive_rates,
)

N_DRAWS = 10_000  # of tables of counts, and of errors of AUCs
N_DRAWS_OF_CURVES = 2_000  # of distributions of scores
N_THRESHOLDS = 200  # of distributions of scores: quantiles of all scores

Generator = np.random.RandomState


def components_of(
    metric: Callable[..., float],
    y_true: Any,
    y_pred: Any,
    given: Mapping[str, Any],
    rng: Generator,
) -> Components | None:
    """Return the components of a metric of these arguments; None where they are not known."""
    if metric not in COMPONENTS:
        return None
    read, components = COMPONENTS[metric]
    return components(read(y_true, y_pred, **given), rng)


def _normal(influence: Floats, rng: Generator) -> Floats:
    """Draw normal errors (n_draws, m), given the influence of each row on m values."""
    values, vectors = np.linalg.eigh(influence @ influence.T)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    return np.asarray(rng.normal(size=(N_DRAWS, len(root))) @ root.T)


def _sizes(effective: Floats) -> Array:
    return np.maximum(np.round(effective), 1).astype(np.int64)


def _tables(cells: Floats, effective: Floats, rng: Generator) -> tuple[Floats, Floats]:
    """Return probabilities (n_groups, n_cells) and draws (n_draws, n_groups, n_cells) of counts.

    Half a row is added to each cell (Jeffreys' prior): a rate of 0 of 50 is not known exactly.
    """
    total = cells.sum(axis=1, keepdims=True)
    size = _sizes(effective)
    counts = cells * (size[:, None] / np.where(total > 0, total, 1.0))
    p = (counts + 0.5) / (counts + 0.5).sum(axis=1, keepdims=True)
    draws = [rng.multinomial(n, row, size=N_DRAWS) for n, row in zip(size, p, strict=True)]
    return p, np.stack(draws, axis=1).astype(float)


# --- predicted labels -----------------------------------------------------------------------------


class _RateDraws:
    """Rates (n_groups, n_events), and the errors of draws, (n_draws, n_groups, n_events)."""

    def __init__(self, counts: Counts, notion: Rates, rng: Generator) -> None:
        definitions = list(counts.definitions(notion))
        self._hits = np.stack([rate.hits.ravel() for rate in definitions], axis=1)
        self._possible = np.stack([rate.possible.ravel() for rate in definitions], axis=1)
        self._cells = counts.table.reshape(len(counts.groups), -1)
        self._p, self._drawn = _tables(self._cells, counts.effective, rng)
        self.values = self._rates(self._cells)
        self.noise = self._noise(self._drawn, self._p)
        self.least = 0.25 / np.maximum(counts.effective.max(), 1.0)  # a quarter of a row

    def _rates(self, table: Floats) -> Floats:
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray((table @ self._hits) / (table @ self._possible))

    def _noise(self, drawn: Floats, p: Floats) -> Floats:
        # A draw without rows of a label has no error.
        return np.nan_to_num(self._rates(drawn) - self._rates(p))

    def overall(self) -> tuple[Floats, Floats]:
        """Return the overall rates (n_events,) and the errors of draws (n_draws, n_events)."""
        weight = self._cells.sum(axis=1)
        per_row = weight / np.maximum(self._drawn[0].sum(axis=1), 1.0)
        draws = np.einsum("bgc,g->bc", self._drawn, per_row)
        return self._rates(self._cells.sum(axis=0)), self._noise(draws, weight @ self._p)

    def logs(self, values: Floats, noise: Floats) -> tuple[Floats, Floats]:
        """Return logarithms of rates of at least a quarter of a row, and their errors."""
        values = np.maximum(values, self.least)
        return np.log(values), np.log(np.maximum(values + noise, self.least)) - np.log(values)


def _contrasts(
    values: Floats, noise: Floats, value: Floats, errors: Floats
) -> tuple[Floats, Floats]:
    """Return differences to the overall values, and their errors, of all groups in one row."""
    return (values - value).ravel(), (noise - errors[:, None]).reshape(len(noise), -1)


_COMBINED: dict[str, Callable[[Array], Array] | None] = {
    "worst_case": None,
    "mean": lambda ranges: ranges.mean(axis=-1),
}


def _difference(asked: rates.Asked, rng: Generator, notion: Rates) -> Components | None:
    draws = _RateDraws(asked.counts, notion, rng)
    if asked.method == "between_groups":
        return Components(draws.values, draws.noise, Range(_COMBINED[asked.agg]), most=1.0)
    if asked.agg != "worst_case":
        return None
    contrasts = _contrasts(draws.values, draws.noise, *draws.overall())
    return Components(*contrasts, Largest(), most=1.0)


def _ratio(asked: rates.Asked, rng: Generator, notion: Rates) -> Components | None:
    """A ratio of rates is the difference of their logarithms."""
    if asked.agg != "worst_case":
        return None
    draws = _RateDraws(asked.counts, notion, rng)
    values, noise = draws.logs(draws.values, draws.noise)
    if asked.method == "between_groups":
        return Components(values, noise, Range(), lambda size: float(np.exp(-size)))
    contrasts = _contrasts(values, noise, *draws.logs(*draws.overall()))
    return Components(*contrasts, Largest(), lambda size: float(np.exp(-size)))


def _summed(asked: rates.Asked, rng: Generator, notion: Rates) -> Components:
    draws = _RateDraws(asked.counts, notion, rng)

    def summed(ranges: Array) -> Array:
        blocks = ranges.reshape(*ranges.shape[:-1], len(asked.counts.classes), -1)
        return np.asarray(blocks.max(axis=-1).sum(axis=-1))

    return Components(draws.values, draws.noise, Range(summed))


def _largest(asked: rates.Asked, rng: Generator, notion: Rates) -> Components:
    draws = _RateDraws(asked.counts, notion, rng)
    noise = draws.noise.reshape(len(draws.noise), -1)
    return Components(draws.values.ravel(), noise, Extreme(), most=1.0)


def _least(asked: rates.Asked, rng: Generator, notion: Rates) -> Components:
    """The smallest rate is one minus the largest complement of a rate."""
    values, noise, *_ = _largest(asked, rng, notion)
    return Components(1.0 - values, -noise, Extreme(), lambda size: 1.0 - size, 1.0)


def _mutual_information(found: dependence.Conditioned, rng: Generator) -> Components:
    """ERMI is the squared norm of (P(j, s) - P(j) P(s)) / sqrt(P(j) P(s)), within each label."""
    counts, tables_of = found
    shape = counts.table.shape
    p, drawn = _tables(counts.table.reshape(len(counts.groups), -1), counts.effective, rng)
    weight = counts.table.sum(axis=(1, 2))[:, None]

    def components(table: Array) -> Array:
        tables = tables_of(counts._replace(table=table.reshape(shape)))
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


def _auc_gap(ranked: auc.Ranked, rng: Generator, notion: str) -> Components:
    """Differences of AUCs."""
    values, noise = _auc_differences(ranked, COMPARISONS[notion](len(ranked.groups)), rng)
    return Components(values, noise, Largest(), most=1.0)


def _least_auc(ranked: auc.Ranked, rng: Generator) -> Components:
    """One minus the AUC of each group."""
    everything = np.ones((2, len(ranked.groups)))
    sets = []
    for g in range(len(ranked.groups)):
        positive, negative = np.zeros_like(everything), np.zeros_like(everything)
        positive[1, g] = negative[0, g] = 1.0
        sets.append((positive, negative, everything, everything))  # all against all: 1/2
    values, noise = _auc_differences(ranked, np.array(sets), rng)
    return Components(0.5 - values, -noise, Extreme(), lambda size: 1.0 - size, 1.0)


def _auc_differences(
    ranked: auc.Ranked, comparisons: Floats, rng: Generator
) -> tuple[Floats, Floats]:
    """Return differences of AUCs, and draws of their errors."""
    sets = comparisons.reshape(-1, 4, 2 * len(ranked.groups))
    influence = auc_influences(ranked.scores, ranked.cells.group, ranked.cells.weight, sets)
    return ranked.differences(sets), _normal(influence, rng)


def _loss_gap(found: losses.RowLosses, rng: Generator) -> Components:
    values, influence, overall = _mean_losses(found)
    if found.method == "between_groups":
        return Components(values[:, None], _normal(influence, rng)[:, :, None], Range())
    return Components(values - overall[0], _normal(influence - overall[1], rng), Largest())


def _largest_loss(found: losses.RowLosses, rng: Generator) -> Components:
    values, influence, _overall = _mean_losses(found)
    return Components(values, _normal(influence, rng), Extreme())


def _mean_losses(found: losses.RowLosses) -> tuple[Floats, Floats, tuple[Floats, Floats]]:
    """Return mean losses of the groups, the influence of each row on them, and both overall."""
    of_row, rows, _method = found
    member = (rows.group == np.arange(len(rows.labels))[:, None]) * rows.weight
    member = member / member.sum(axis=1, keepdims=True)
    overall = rows.weight / rows.weight.sum()
    values, mean = member @ of_row, overall @ of_row
    return values, member * (of_row - values[:, None]), (mean, overall * (of_row - mean))


# --- scores inside an interval of ranks -----------------------------------------------------------


def _decisions(decided: inside.Decided, rng: Generator, notion: Rates) -> Components:
    """Rates of scores above a threshold, seen through the interval."""
    draws = _RateDraws(decided.counts, notion, rng)
    values = decided.intervals.fraction(draws.values)
    drawn = decided.intervals.fraction(draws.values + draws.noise)
    return Components(values, drawn - values, Range())


class _Distributions:
    """Ranks of thresholds in each group, and the draws of these."""

    def __init__(self, data: inside.Scored, rng: Generator) -> None:
        size = _sizes(data.rows.effective())
        levels = np.linspace(0, 1, N_THRESHOLDS + 1)[1:-1]
        edges = np.unique(np.quantile(data.scores, levels, method="inverted_cdf"))
        rank = self._above(self._fractions(data, edges))[:, 1:-1]
        edges = edges[self._can_matter(rank, size, data.intervals)]
        p = self._fractions(data, edges)
        self.rank = self._above(p)
        draws = [
            rng.multinomial(n, row, size=N_DRAWS_OF_CURVES) / n
            for n, row in zip(size, p, strict=True)
        ]
        self.drawn = self._above(np.stack(draws, axis=1))

    @staticmethod
    def _fractions(data: inside.Scored, edges: Floats) -> Floats:
        """Fractions of each group's rows between these edges."""
        group, labels, weight = data.rows
        binned = np.searchsorted(edges, data.scores, side="left")  # rows above edges[j]: bin > j
        n_groups, n_bins = len(labels), len(edges) + 1
        cells = np.bincount(group * n_bins + binned, weights=weight, minlength=n_groups * n_bins)
        cells = cells.reshape(n_groups, n_bins)
        return np.asarray(cells / cells.sum(axis=1, keepdims=True))

    @staticmethod
    def _can_matter(rank: Floats, size: Array, intervals: Intervals) -> Array:
        """Thresholds whose rank in some group is not for sure outside of its interval."""
        error = 5.0 * (0.5 / np.sqrt(size))[:, None]  # five of the largest standard errors
        lower, upper = intervals
        lengths = upper > lower
        first = np.where(lengths, lower, 1.0).min(axis=1)[:, None]
        last = np.where(lengths, upper, 0.0).max(axis=1)[:, None]
        return np.asarray(((rank + error >= first) & (rank - error <= last)).any(axis=0))

    @staticmethod
    def _above(p: Floats) -> Floats:
        """Fraction of the rows above each edge; before the first edge it is 1, after the last 0."""
        above = np.cumsum(p[..., ::-1], axis=-1)[..., ::-1]
        return np.concatenate((above, np.zeros((*p.shape[:-1], 1))), axis=-1)


def _distributions(data: inside.Scored, rng: Generator) -> Components:
    found = _Distributions(data, rng)
    values, drawn = (data.intervals.fraction(rank) for rank in (found.rank, found.drawn))
    return Components(values, drawn - values, CurveRange())


def _ranks(data: inside.Scored, rng: Generator) -> Components:
    found = _Distributions(data, rng)
    within = inside_intervals(found.rank, data.intervals)

    def contrasts(rank: Floats) -> Floats:
        pairs = combinations(range(len(within)), 2)
        between = [
            (rank[..., g, :] - rank[..., h, :])[..., within[g] | within[h]] for g, h in pairs
        ]
        return np.concatenate(between, axis=-1)

    return Components(contrasts(found.rank), contrasts(found.drawn - found.rank), Largest())


def _group_auc_inside(data: inside.Scored, rng: Generator) -> Components:
    found = _Distributions(data, rng)
    above = np.triu_indices(len(found.rank), 1)

    def contrasts(rank: Floats) -> Floats:
        return np.asarray(auc_inside(data.intervals.fraction(rank))[above] - 0.5)

    values = contrasts(found.rank)
    return Components(values, np.stack([contrasts(r) for r in found.drawn]) - values, Largest())


# Functions that read the arguments of a metric, and that give its components.
_Made = tuple[Callable[..., Any], Callable[..., Components | None]]
_OF_WAY: Mapping[rates.Way, Callable[..., Components | None]] = {
    rates.DIFFERENCE: _difference,
    rates.RATIO: _ratio,
    rates.GROUP_MAX: _largest,
    rates.GROUP_MIN: _least,
}
_DERIVED: Mapping[Callable[..., float], _Made] = {
    metric: (read, partial(_OF_WAY[way], notion=notion))
    for metric, (read, notion, way) in rates.DERIVED.items()
}
_AUC_GAPS: Mapping[Callable[..., float], str] = {
    auc.group_auc_gap: "group_auc",
    auc.inter_group_auc_gap: "inter_group",
    auc.intra_group_auc_gap: "intra_group",
    auc.positive_equality_gap: "positive_equality_gap",
    auc.negative_equality_gap: "negative_equality_gap",
    auc.bpsn_bnsp_gap: "bpsn_bnsp",
}
COMPONENTS: Mapping[Callable[..., float], _Made] = {
    **_DERIVED,
    rates.independence_gap: (rates.read, partial(_difference, notion=selection_rates)),
    rates.separation_gap: (rates.read, partial(_summed, notion=odds)),
    rates.sufficiency_gap: (rates.read, partial(_summed, notion=predictive_values)),
    dependence.exponential_renyi_mutual_information: (
        dependence.read_conditioned,
        _mutual_information,
    ),
    losses.loss_gap: (losses.read_losses, _loss_gap),
    losses.log_loss_group_max: (losses.read_losses, _largest_loss),
    auc.roc_auc_score_group_min: (auc.ranked_rows, _least_auc),
    **{
        metric: (auc.ranked_rows, partial(_auc_gap, notion=notion))
        for metric, notion in _AUC_GAPS.items()
    },
    inside.partial_statistical_parity: (inside.read_scored, _distributions),
    inside.ccdf_gap: (inside.read_scored, _ranks),
    inside.partial_demographic_parity: (
        inside.read_decisions,
        partial(_decisions, notion=selection_rates),
    ),
    inside.partial_equal_opportunity: (
        inside.read_labelled,
        partial(_decisions, notion=true_positive_rates),
    ),
    inside.partial_equalized_odds: (inside.read_labelled, partial(_decisions, notion=odds)),
    inside.partial_group_auc: (inside.read_scored, _group_auc_inside),
}
