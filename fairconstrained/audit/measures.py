"""Rates, ratios, calibration and changes of the rows, group by group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from sklearn.exceptions import UndefinedMetricWarning

from fairconstrained import comparison
from fairconstrained.arrays import Array
from fairconstrained.audit.counts import Counted, event_cells, named_events, within
from fairconstrained.audit.sample import Grouping, Sample
from fairconstrained.comparison import DEFAULT_SLACK, NO_RATIO, Compared
from fairconstrained.exceptions import SmallGroupWarning, ignoring
from fairconstrained.metrics.auc import Ranked
from fairconstrained.metrics.bounds import DIFFERENCE, SHORTFALL, wilson, worst_value
from fairconstrained.metrics.inputs import Counts
from fairconstrained.metrics.intervals import interval_of_counts
from fairconstrained.metrics.metric import gap, ratio
from fairconstrained.metrics.report import Estimates, compute_aucs, compute_rates
from fairconstrained.rate_definitions import PARITIES

Facts = list[dict[str, Any]]
# Fifths of the scores: with more, bins of small groups are empty.
N_BINS = 5
# The rates that each criterion compares.
COMPARED = {
    "demographic_parity": ["selection_rate"],
    "equal_opportunity": ["true_positive_rate"],
    "false_positive_rate_parity": ["false_positive_rate"],
    "equalized_odds": ["true_positive_rate", "false_positive_rate"],
    "error_rate_parity": ["error"],
    "predictive_parity": ["precision"],
    "false_omission_rate_parity": ["false_omission_rate"],
}
_ERROR_RATES = dict.fromkeys(rate for name in list(COMPARED)[1:] for rate in COMPARED[name])
# Criteria whose ratios of the smallest to the largest rate are shown as well.
RATIOS = ("demographic_parity", "equal_opportunity", "equalized_odds")
# Warnings of undefined rates, which the page shows as missing.
UNDEFINED = SmallGroupWarning, UndefinedMetricWarning


def rates(sample: Sample, by: Grouping, confidence: float) -> Facts:
    """Return the rates of each group with their intervals; rows in no shown group come last."""
    n_groups, counted = len(by.groups), Counted(sample, by.listed)
    sizes = {"samples": counted.sizes(counted.by.codes >= 0)}
    decided = compute_rates(counted.decided, confidence)
    estimates = {"selection_rate": decided["selection_rate"]}
    if sample.label is not None:
        labelled = (counted.by.codes >= 0) & ~np.isnan(sample.label)
        sizes["labelled"] = counted.sizes(labelled)
        estimates = compute_rates(counted.labelled, confidence) | estimates
        hit = estimates["true_positive_rate"]
        missed = Estimates(1.0 - hit.rate, 1.0 - hit.high, 1.0 - hit.low, hit.rows)
        estimates["false_negative_rate"] = missed
        if sample.score is not None:
            positive, rows = sample.label[labelled] == 1, counted.rows(labelled)
            ranked = Ranked.of(sample.score[labelled], positive, rows)
            estimates["auc"] = compute_aucs(ranked, confidence)
    table = dict(sizes)
    for name, estimate in estimates.items():
        few = estimate.rows < sample.min_cell
        columns = estimate.columns(name).items()
        table |= {column: np.where(few, np.nan, values) for column, values in columns}
    facts = _facts(counted.by, table)
    for fact in facts:
        fact |= {name: None for name in sizes if fact[name] < sample.min_cell}
    groups, others = facts[:n_groups], facts[n_groups:]
    if not by.ranked:
        groups.sort(key=lambda fact: -np.nan_to_num(fact["selection_rate"], nan=-1.0))
    return groups + others


def contradictions(everybody: Mapping[str, Any]) -> list[str]:
    """Return sentences on scores or decisions that contradict the labels by more than chance."""
    auc, precision, base_rate = (
        everybody.get(name, np.nan) for name in ("auc", "precision", "base_rate")
    )
    sentences = []
    if everybody.get("auc_high", np.nan) < 0.5:
        sentences.append(
            f"Scores are lower where the label is favourable (AUC {auc:.3f}): do they grow with "
            "the chance of the other label?"
        )
    if everybody.get("precision_high", np.nan) < base_rate:
        sentences.append(
            f"Of those with the favourable decision {100 * precision:.1f} % have the favourable "
            f"label, of all {100 * base_rate:.1f} %: is the favourable label another one?"
        )
    return sentences


def compared(
    groupings: list[Counted], criterion: str, slack: float | None, min_cell: int
) -> list[Compared]:
    """Decide which groups are compared, by each attribute, in each stratum and event."""
    if not groupings:  # every stratum is hidden
        return []
    possible = event_cells(criterion).astype(int)
    tables = [counted.counts(criterion).rows.reshape(-1, 4) @ possible.T for counted in groupings]
    families = [counted.by.family for counted in groupings]
    lengths = [len(table) for table in tables]
    comparable = comparison.compared(
        *(np.concatenate(tables), DEFAULT_SLACK if slack is None else slack, "auto"),
        floor=min_cell,
        families=np.repeat(np.unique(families, return_inverse=True)[1], lengths),
        sets=np.repeat(np.arange(len(tables)), lengths),
    )
    ends = np.cumsum(lengths)[:-1]
    by_attribute = zip(*(np.split(entries, ends) for entries in comparable), strict=True)
    return [Compared(*parts) for parts in by_attribute]


def left_out(
    sample: Sample, by: Grouping, comparable: Mapping[str, Compared], criterion: str
) -> list[str]:
    """List the groups, also within a label, that a criterion does not compare, with reasons."""
    total, within = comparable["demographic_parity"], comparable[criterion]
    events = named_events(sample, criterion)
    few, whole = sample.min_cell, ~total.kept[:, 0] & ~within.kept.any(axis=1)
    names = [
        f"{by.groups[g]} ({total.reason((g, 0), few)})" for g in np.flatnonzero(whole).tolist()
    ]
    names += [
        f"{by.groups[g]}{events[e].condition} ({within.reason((g, e), few)})"
        for g, e in np.argwhere(~within.kept & ~whole[:, None]).tolist()
    ]
    names += [f"{group} (0 rows)" for group in sample.absent(by)]
    return [*(f"{by.attribute}: {words}" for words in names), *by.hidden]


def without_ratio(counted: Counted, comparable: Compared, criterion: str) -> list[str]:
    """List rates that are zero in all compared groups, if a criterion has several rates."""
    events = named_events(counted.sample, criterion)
    hits = counted.counts(criterion).rates(PARITIES[criterion]).hits
    return [
        f"{counted.by.attribute}: {event.event}{event.condition} ({NO_RATIO})"
        for event, is_zero in zip(events, comparable.without_ratio(hits), strict=True)
        if is_zero and len(events) > 1
    ]


def members(criterion: str, is_compared: Array) -> Array:
    """Return the cells (n_groups, 4) of groups, or of groups within a label, that are compared."""
    events = event_cells(criterion)
    in_event = (is_compared[:, :, None] & events).any(axis=1)
    return np.asarray(is_compared.any(axis=1, keepdims=True) & (in_event | ~events.any(axis=0)))


def comparisons(
    counted: Counted, comparable: Mapping[str, Compared], confidence: float
) -> tuple[Facts, Facts]:
    """Return differences and ratios of rates between the groups, each with an interval.

    Where events compare different groups, the worst event counts, and each interval has a part of
    the probability of error. "before" is the value of earlier decisions, nan if too few rows of a
    group have one. In "standing" rows of known group represent their label; nan if unchanged.
    """
    differences: Facts = []
    ratios: Facts = []
    kinds = [(differences, gap, np.fmax), (ratios, ratio, np.fmin)]
    for criterion, table in comparable.items():
        if not table.kept.any():
            continue
        parts = _parts(criterion, table.kept)
        alpha = (1.0 - confidence) / len(parts)
        now, standing = counted.counts(criterion), counted.standing(criterion)
        earlier = counted.earlier(criterion, table.kept)
        for facts, compare, worst in kinds[: 2 if criterion in RATIOS else 1]:
            ends = [_measured(compare, name, now, where, alpha) for name, where in parts]
            fact: dict[str, Any] = {"attribute": counted.by.attribute, "criterion": criterion}
            fact |= zip(("value", "low", "high"), worst.reduce(ends).tolist(), strict=True)
            fact["before"] = _compared(compare, criterion, earlier, table.kept)
            fact["standing"] = _compared(compare, criterion, standing, table.kept)
            facts.append(fact)
    return differences, ratios


def _parts(criterion: str, is_compared: Array) -> list[tuple[str, Array]]:
    """Return the criterion, or one within each label, with the cells (n_groups, 4) compared."""
    if (is_compared == is_compared[:, :1]).all():
        return [(criterion, members(criterion, is_compared))]
    return [  # of equalized odds: the rates among rows of each label
        ("demographic_parity", np.outer(groups, np.arange(4) // 2 == label))
        for label, groups in enumerate(is_compared.T)
        if groups.any()
    ]


def _measured(
    compare: Any, criterion: str, counts: Counts, where: Array, alpha: float
) -> tuple[float, float, float]:
    """Return the difference or ratio of rates in some cells, with its interval."""
    inside, seed = within(counts, where), np.random.RandomState(0)
    with ignoring(*UNDEFINED):
        return interval_of_counts(compare, inside, PARITIES[criterion], alpha, seed)


def _compared(compare: Any, criterion: str, counts: Counts | None, compared: Array) -> float:
    """Return the difference or ratio of the rates that are compared; nan without counts."""
    if counts is None:
        return np.nan
    hits, rows, *_ = counts.rates(PARITIES[criterion])
    if compare is gap:
        return worst_value(hits, rows, compared, DIFFERENCE)
    return 1.0 - worst_value(hits, rows, compared, SHORTFALL)


def impact_ratios(groups: Facts, compared: set[str], reference: str | None) -> dict[str, Any]:
    """Compare the rates of groups with the reference group, or else with the largest rate.

    "errors" has differences of error rates, if there is a reference group.
    """
    rows = {row["group"]: row for row in groups if row["group"] in compared}
    rate = {group: row["selection_rate"] for group, row in rows.items()}
    other = str(reference) if reference in rate else max(rate, key=rate.__getitem__)
    divisor = rate[other] if rate[other] > 0 else np.nan
    errors = [name for name in _ERROR_RATES if reference in rate and name in rows[other]]
    return {
        "reference": other,
        "groups": {group: value / divisor for group, value in rate.items()},
        "gaps": {group: value - rate[other] for group, value in rate.items()},
        "errors": {
            name: {group: row[name] - rows[other][name] for group, row in rows.items()}
            for name in errors
        },
    }


def calibration(sample: Sample, grouping: Grouping) -> Facts:
    """Return mean scores and rates of favourable labels, by group and fifth with enough rows."""
    if sample.label is None or sample.score is None:
        return []
    weight = sample.weights
    rows = (grouping.codes >= 0) & ~np.isnan(sample.label) & (weight > 0)
    weight = weight[rows]
    table = pd.DataFrame({"group": grouping.codes[rows], "weight": weight})
    table["score"], table["label"] = sample.score[rows] * weight, sample.label[rows] * weight
    table["square"] = weight**2
    table["bin"] = pd.qcut(sample.score[rows], N_BINS, labels=False, duplicates="drop")
    sums = table.groupby(["group", "bin"]).sum()
    samples, total = table.groupby(["group", "bin"]).size(), sums["weight"]
    effective = total**2 / sums["square"].where(sums["square"] > 0)
    observed = sums["label"] / total.where(total > 0)
    low, high = wilson(observed * effective, effective)
    return [
        {
            "attribute": grouping.attribute,
            "group": grouping.groups[group],
            "bin": int(fifth) + 1,
            "samples": int(samples.iloc[i]),
            "mean_score": float(sums["score"].iloc[i] / total.iloc[i]),
            "observed": float(observed.iloc[i]),
            "observed_low": float(low[i]),
            "observed_high": float(high[i]),
        }
        for i, (group, fifth) in enumerate(sums.index)
        if samples.iloc[i] >= sample.min_cell
    ]


def changes(sample: Sample, grouping: Grouping) -> Facts:
    """Count the rows of each group by decisions before and now, with the error rates of both."""
    if sample.before is None:
        return []
    grouping = grouping.listed
    rows = (grouping.codes >= 0) & ~np.isnan(sample.before)
    codes, before, now = grouping.codes[rows], sample.before[rows] == 1, sample.decision[rows]

    def sizes(chosen: Array) -> Array:
        return np.bincount(codes[chosen], minlength=len(grouping.groups))

    table = {"samples": sizes(np.ones_like(before)), "lost": sizes(before & ~now)}
    table |= {"gained": sizes(~before & now), "kept": sizes(before & now)}
    table["never"] = sizes(~before & ~now)
    if sample.label is not None:
        good, weight = sample.label[rows] == 1, sample.weights[rows]
        known = ~np.isnan(sample.label[rows]) & (weight > 0)
        total = np.bincount(codes, weight * known, len(grouping.groups))
        shown = np.where(sizes(known) < sample.min_cell, np.nan, total)
        for name, decision in (("error_before", before), ("error_now", now)):
            wrong = weight * (known & (decision != good))
            table[name] = np.bincount(codes, wrong, len(grouping.groups)) / shown
        table["error_change"] = table["error_now"] - table["error_before"]
    return [fact for fact in _facts(grouping, table) if fact["samples"] >= sample.min_cell]


def _facts(by: Grouping, table: dict[str, Array]) -> Facts:
    """Return a record for each group, with its entries in the columns of a table."""
    columns = {name: values.tolist() for name, values in table.items()}
    return [
        {"attribute": by.attribute, "group": group}
        | {name: values[g] for name, values in columns.items()}
        for g, group in enumerate(by.groups)
    ]
