"""Rates, ratios, calibration and changes of the rows, group by group."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd
from sklearn.exceptions import UndefinedMetricWarning

from fairconstrained import comparison, metrics
from fairconstrained.arrays import Array, Floats
from fairconstrained.audit.sample import UNKNOWN, Grouping, Sample
from fairconstrained.comparison import DEFAULT_SLACK, Compared
from fairconstrained.exceptions import SmallGroupWarning
from fairconstrained.metrics.bounds import wilson
from fairconstrained.rates import PARITIES

Facts = list[dict[str, Any]]
N_BINS = 5
# Differences, and ratios of the smallest to the largest rate; only the first needs no label.
DIFFERENCES: Mapping[str, Callable[..., float]] = {
    "demographic_parity": metrics.demographic_parity_difference,
    "equal_opportunity": metrics.equal_opportunity_difference,
    "false_positive_rate_parity": metrics.false_positive_rate_difference,
    "equalized_odds": metrics.equalized_odds_difference,
    "error_rate_parity": metrics.error_rate_difference,
    "predictive_parity": metrics.predictive_parity_difference,
    "false_omission_rate_parity": metrics.false_omission_rate_difference,
}
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
RATIOS: Mapping[str, Callable[..., float]] = {
    "demographic_parity": metrics.demographic_parity_ratio,
    "equal_opportunity": metrics.equal_opportunity_ratio,
    "equalized_odds": metrics.equalized_odds_ratio,
}


@contextmanager
def quiet() -> Iterator[None]:
    """Ignore warnings of rates that are not defined; the page shows that they are missing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallGroupWarning)
        warnings.simplefilter("ignore", UndefinedMetricWarning)
        yield


def rates(sample: Sample, grouping: Grouping, confidence: float) -> Facts:
    """Return rates of each group with their intervals; errors are rates of the labelled rows.

    Groups come in their own order, or by their rates; rows in no group that is shown stand last.
    """
    n_groups, grouping = len(grouping.groups), grouping.listed
    known = grouping.codes >= 0
    table = _report(sample, grouping, known, sample.decision, confidence)
    table = table[["samples", *_with_ends("selection_rate")]]
    if sample.label is not None:
        labelled = known & ~np.isnan(sample.label)
        more = _report(sample, grouping, labelled, sample.label == 1, confidence)
        for end, other in (("", ""), ("_low", "_high"), ("_high", "_low")):
            more[f"false_negative_rate{end}"] = 1.0 - more[f"true_positive_rate{other}"]
        more = more.rename(columns={"samples": "labelled"})
        table = table.join(more.drop(columns=_with_ends("selection_rate")))
    counts = [column for column in table if column in ("samples", "labelled")]
    table[counts] = table[counts].fillna(0)  # groups without rows here
    for rate, rows in _denominators(sample).items():
        few = np.bincount(grouping.codes[rows & known], minlength=len(table)) < sample.min_cell
        table.loc[few, [column for column in table if column.startswith(rate)]] = np.nan
    listed = table.astype(dict.fromkeys(counts, int)).to_dict("records")
    facts = [
        {"attribute": grouping.attribute, "group": group, **row}
        for group, row in zip(grouping.groups, listed, strict=True)
    ]
    for fact in facts:
        if fact["samples"] < sample.min_cell:
            fact["samples"] = None
    groups, others = facts[:n_groups], facts[n_groups:]
    if not grouping.ranked:
        groups.sort(key=lambda fact: -np.nan_to_num(fact["selection_rate"], nan=-1.0))
    return groups + others


def _denominators(sample: Sample) -> dict[str, Array]:
    """Return the rows that each rate is a fraction of."""
    decided = {"selection_rate": np.ones(len(sample.decision), dtype=bool)}
    if sample.label is None:
        return decided
    good, bad = sample.label == 1, sample.label == 0
    labelled, granted = good | bad, sample.decision
    return decided | {
        "true_positive_rate": good,
        "false_negative_rate": good,
        "false_positive_rate": bad,
        "precision": labelled & granted,
        "false_omission_rate": labelled & ~granted,
        "base_rate": labelled,
        "error": labelled,
        "auc": labelled,
    }


def _report(
    sample: Sample, grouping: Grouping, rows: Array, label: Array, confidence: float
) -> Any:
    names = [str(i) for i in range(len(grouping.groups))]
    if not rows.any():  # such as a combination of groups without any label
        everybody = _report(sample, sample.everybody, np.ones_like(rows), label, confidence)
        return everybody.iloc[:0].reindex(names)
    with_scores = sample.score is not None and sample.label is not None
    with quiet():
        table = metrics.group_report(
            label[rows],
            sample.decision[rows],
            sensitive_features=grouping.codes[rows],
            y_score=sample.score[rows] if with_scores and sample.score is not None else None,
            confidence=confidence,
            sample_weight=None if sample.weight is None else sample.weight[rows],
        )
    return table.iloc[:-1].reindex(names)


def _with_ends(rate: str) -> list[str]:
    return [rate, f"{rate}_low", f"{rate}_high"]


def contradictions(everybody: Mapping[str, Any]) -> list[str]:
    """Describe scores or decisions that go against the labels, by the rates of all rows."""
    auc, precision, base_rate = (
        everybody.get(name, np.nan) for name in ("auc", "precision", "base_rate")
    )
    sentences = []
    if auc < 0.5:
        sentences.append(
            f"Scores are lower where the label is favourable (AUC {auc:.3f}): do they grow with "
            "the chance of the other label?"
        )
    if precision < base_rate:
        sentences.append(
            f"Of those with the favourable decision {100 * precision:.1f} % have the favourable "
            f"label, of all {100 * base_rate:.1f} %: is the favourable label another one?"
        )
    return sentences


def compared(
    sample: Sample, groupings: list[Grouping], criterion: str, slack: float | None
) -> list[Compared]:
    """Decide who is compared by each attribute, in each stratum: groups by events."""
    label, events = labels_for(sample, criterion), list(PARITIES[criterion]([0, 1], [1]))
    known = ~np.isnan(label) if sample.weight is None else ~np.isnan(label) & (sample.weight > 0)
    cells = 2 * np.nan_to_num(label).astype(int) + sample.decision
    possible = np.array([rate.possible.ravel() for rate in events], dtype=int)
    tables, families, sets = [], [], []
    for place, by in enumerate(groupings):
        rows = known & (by.codes >= 0)
        counts = np.bincount(4 * by.codes[rows] + cells[rows], minlength=4 * len(by.groups))
        tables.append(counts.reshape(-1, 4) @ possible.T)
        families += [by.family] * len(by.groups)
        sets += [place] * len(by.groups)
    who = comparison.compared(
        *(np.concatenate(tables), DEFAULT_SLACK if slack is None else slack, "auto"),
        floor=sample.min_cell,
        families=np.unique(families, return_inverse=True)[1],
        sets=sets,
    )
    ends = np.cumsum(list(map(len, tables)))[:-1]
    return [Compared(*parts) for parts in zip(*(np.split(a, ends) for a in who), strict=True)]


def labels_for(sample: Sample, criterion: str) -> Floats:
    """Return the labels of a criterion; all rows are known to one that needs decisions only."""
    if criterion == "demographic_parity" or sample.label is None:
        return sample.decision.astype(float)
    return sample.label


def left_out(
    sample: Sample, by: Grouping, who: Mapping[str, Compared], criterion: str
) -> list[str]:
    """Name the groups, and groups within a label, that a criterion does not compare, and why."""
    total, within = who["demographic_parity"], who[criterion]
    name = sample.outcomes["y_pred"].name
    events = list(PARITIES[criterion]([f"not {name}", name], [1]))
    whole = ~total.kept & ~within.kept.any(axis=1, keepdims=True)
    groups = total._replace(
        rows=np.where(whole, total.rows, total.least), alone=total.alone & whole
    )
    cells = within._replace(
        rows=np.where(whole, within.least, within.rows), alone=within.alone & ~whole
    )
    few = sample.min_cell
    names = groups.left_out(lambda g, e: by.groups[g], few)
    names += cells.left_out(lambda g, e: f"{by.groups[g]}{events[e].condition}", few)
    if by.n_hidden:
        hidden = next(why for why in by.others if why != UNKNOWN).strip("()")
        names.append(f"{hidden}, neither shown nor compared")
    return [f"{by.attribute}: {words}" for words in names]


def members(sample: Sample, by: Grouping, criterion: str, is_compared: Array) -> Array:
    """Return the rows of groups, or of groups within a label, that are compared."""
    label = labels_for(sample, criterion)
    known = (by.codes >= 0) & ~np.isnan(label)
    cells = 2 * np.nan_to_num(label).astype(int) + sample.decision
    events = np.array([r.possible.ravel() for r in PARITIES[criterion]([0, 1], [1])]) > 0
    by_group, by_cell = is_compared[by.codes], events.T[cells]  # rows by events
    counts: Array = ~by_cell.any(axis=1) | (by_cell & by_group).any(axis=1)
    return known & by_group.any(axis=1) & counts


def comparisons(
    sample: Sample, by: Grouping, who: Mapping[str, Compared], confidence: float
) -> tuple[Facts, Facts]:
    """Return differences and ratios of rates between the groups, each with an interval.

    Where other groups are compared in each event, the worst event counts, and each interval of an
    event holds with a part of the probability of error. "before" is the value that the earlier
    decisions had on the same rows, if there are any.
    """
    both: tuple[Facts, Facts] = ([], [])
    for kind, facts, worst in zip((DIFFERENCES, RATIOS), both, (np.fmax, np.fmin), strict=True):
        for criterion in (name for name in kind if name in who and who[name].kept.any()):
            cells, label = who[criterion].kept, labels_for(sample, criterion)
            parts = [(criterion, members(sample, by, criterion, cells))]
            if (cells != cells[:, :1]).any():  # equalized odds: the rates among rows of each label
                inside = [(v, np.flatnonzero(cells[:, v])) for v in (0, 1) if cells[:, v].any()]
                parts = [
                    ("demographic_parity", (label == v) & np.isin(by.codes, groups))
                    for v, groups in inside
                ]
            level = 1.0 - (1.0 - confidence) / len(parts)
            ends = [_measured(kind[name], sample, by, label, rows, level) for name, rows in parts]
            fact: dict[str, Any] = {"attribute": by.attribute, "criterion": criterion}
            for name, values in zip(_ENDS, zip(*ends, strict=True), strict=True):
                fact[name] = float(worst.reduce(values))
            facts.append(fact)
    return both


_ENDS = ("value", "low", "high", "before")


def _measured(
    metric: Any, sample: Sample, by: Grouping, label: Floats, rows: Array, confidence: float
) -> tuple[float, ...]:
    """Return a metric of these rows, its interval, and its value for the earlier decisions."""
    before, interval = np.nan, metrics.confidence_interval
    args, options = _arguments(sample, by, rows, label, sample.decision)
    with quiet():
        low, high = interval(metric, *args, confidence=confidence, random_state=0, **options)
        if sample.before is not None and (rows & ~np.isnan(sample.before)).any():
            known = rows & ~np.isnan(sample.before)
            earlier, more = _arguments(sample, by, known, label, sample.before)
            before = metric(*earlier, **more)
        return metric(*args, **options), low, high, before


def _arguments(
    sample: Sample, by: Grouping, rows: Array, label: Array, decision: Array
) -> tuple[tuple[Array, Array], dict[str, Any]]:
    """Return the arguments of metrics: labels and decisions, and the rest by name."""
    options: dict[str, Any] = {"sensitive_features": by.codes[rows]}
    if sample.weight is not None:
        options["sample_weight"] = sample.weight[rows]
    return (label[rows].astype(np.int8), decision[rows].astype(np.int8)), options


def impact_ratios(groups: Facts, compared: set[str], reference: str | None) -> dict[str, Any]:
    """Compare rates of groups with the reference, or with the group that has the largest rate.

    "groups" and "gaps" have ratios and differences of rates of favourable decisions, "errors" the
    differences of other rates if the group is named.
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
    """Compare mean scores with rates of favourable labels, by group and fifth of the scores.

    Fifths of a group with few rows are left out.
    """
    if sample.label is None or sample.score is None:
        return []
    rows = (grouping.codes >= 0) & ~np.isnan(sample.label)
    weight = np.ones(rows.sum()) if sample.weight is None else sample.weight[rows]
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
    """Count the rows of each group by their decisions before and now, and the errors of both."""
    if sample.before is None:
        return []
    grouping = grouping.listed
    rows = (grouping.codes >= 0) & ~np.isnan(sample.before)
    codes, before, now = grouping.codes[rows], sample.before[rows] == 1, sample.decision[rows]
    n_groups = len(grouping.groups)
    cells = {"lost": before & ~now, "gained": ~before & now, "kept": before & now}
    cells["never"] = ~before & ~now
    counts = {name: np.bincount(codes[cell], minlength=n_groups) for name, cell in cells.items()}
    counts = {"samples": np.bincount(codes, minlength=n_groups), **counts}
    table = pd.DataFrame(counts)
    if sample.label is not None:
        label = sample.label[rows]
        known = ~np.isnan(label)
        wrong = pd.DataFrame({"group": codes, "before": before != label, "now": now != label})
        errors = wrong[known].groupby("group").mean().reindex(range(n_groups))
        table["error_before"], table["error_now"] = errors["before"], errors["now"]
        table["error_change"] = errors["now"] - errors["before"]
        few = np.bincount(codes[known], minlength=n_groups) < sample.min_cell
        table.loc[few, ["error_before", "error_now", "error_change"]] = np.nan
    return [
        {"attribute": grouping.attribute, "group": group, **row}
        for group, row in zip(grouping.groups, table.to_dict("records"), strict=True)
        if row["samples"] >= sample.min_cell
    ]
