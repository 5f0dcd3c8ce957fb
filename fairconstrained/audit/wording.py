"""Sentences about facts, in plain words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fairconstrained.audit.sample import Sample

CRITERIA = {
    "demographic_parity": "equal rates of favourable decisions",
    "equal_opportunity": "equal rates of favourable decisions among favourable labels",
    "false_positive_rate_parity": "equal rates of favourable decisions among other labels",
    "equalized_odds": "equal rates of favourable decisions among the rows of each label",
    "error_rate_parity": "equal rates of wrong decisions",
}
WEIGHTED = "Rows have weights: certificates are for rows that count equally, so there are none."
_FEW = "Nothing can be compared: no attribute has two groups that are large enough."


def percent(value: float | None) -> str:
    """Return a rate in words."""
    return "not known" if value is None or math.isnan(value) else f"{100 * value:.1f} %"


def points(value: float | None) -> str:
    """Return a difference of rates in words."""
    known = value is not None and not math.isnan(value)
    return f"{100 * value:.1f} percentage points" if known and value is not None else "not known"


def question(
    facts: Mapping[str, Any], attributes: list[str], criterion: str, slack: float | None
) -> str:
    """What was asked."""
    by = ", ".join(attributes)
    favourable = facts["outcomes"]["decision"]["favourable"]
    within = "" if slack is None else f", up to {points(slack)}"
    return (
        f"Do groups by {by} have {CRITERIA[criterion]} ({criterion.replace('_', ' ')}){within}? "
        f"The favourable decision is {favourable!r}."
    )


def answer(
    facts: Mapping[str, Any], *, criterion: str, slack: float | None, confidence: float
) -> str:
    """The answer in one sentence."""
    gaps = [gap for gap in facts["differences"] if gap["criterion"] == criterion]
    gaps = [gap for gap in gaps if not math.isnan(gap["value"])]
    if not gaps:
        return _FEW
    worst = max(gaps, key=lambda gap: float(gap["value"]))
    ends = f"{100 * worst['low']:.1f} to {100 * worst['high']:.1f}"
    largest = (
        f"the largest difference on these rows is {points(worst['value'])}, by "
        f"{worst['attribute']}{_extremes(facts, worst, criterion)} ({100 * confidence:g} % "
        f"interval {ends})"
    )
    if slack is None:
        return f"{largest[0].upper()}{largest[1:]}."
    if worst["value"] > slack:
        sure = worst["low"] > slack
        no = "No" if sure else "On these rows no, but they do not decide for new rows"
        return f"{no}: {largest}, more than {points(slack)}."
    found = facts["certificates"]
    sure = f"with {100 * confidence:g} % confidence for each attribute"
    if found and all(entry["kept"] for entry in found) and len(found) == len(gaps):
        return f"Yes, also on new rows like these ({sure}): {largest}."
    uppers = [entry["upper"] for entry in found]
    beyond = f" it may be up to {points(max(uppers))} there" if uppers else " no bound was asked"
    return f"On these rows yes, but it is not proved for new rows:{beyond}; {largest}."


def _extremes(facts: Mapping[str, Any], gap: Mapping[str, Any], criterion: str) -> str:
    """Return the groups with the smallest and largest rate of favourable decisions."""
    if criterion != "demographic_parity":
        return ""
    of = [ratio for ratio in facts["ratios"] if ratio["attribute"] == gap["attribute"]]
    compared = of[0]["groups"]
    rate = {
        row["group"]: row["selection_rate"]
        for row in [*facts["groups"], *facts["intersections"]]
        if row["attribute"] == gap["attribute"] and row["group"] in compared
    }
    low, high = min(rate, key=rate.__getitem__), max(rate, key=rate.__getitem__)
    return f": {low} {percent(rate[low])}, {high} {percent(rate[high])}"


def findings(facts: Mapping[str, Any], criterion: str, slack: float | None) -> list[str]:
    """What a reader must know before all figures."""
    found = []
    overall = facts["groups"][0]["selection_rate"]
    if overall in (0.0, 1.0):
        who = "Nobody" if overall == 0 else "Everybody"
        found.append(f"{who} gets the favourable decision: all rates are equal for that reason.")
    missed = [
        f"by {gap['attribute']} ({points(gap['value'])})"
        for gap in facts["differences"]
        if slack is not None and gap["criterion"] == criterion and gap["value"] > slack
    ]
    if missed:
        found.append(f"The slack of {points(slack)} is missed {', '.join(missed)}.")
    return found


def assumptions(facts: Mapping[str, Any]) -> list[str]:
    """Assumptions of intervals and certificates, each once."""
    intervals = "Intervals and bounds take the rows for independent draws: many rows of one person "
    intervals += "or household count for less than they seem."
    said = dict.fromkeys(line for entry in facts["certificates"] for line in entry["assumptions"])
    certified = [f"Bounds for new rows: {line.rstrip(';.')}." for line in said]
    return [intervals, *certified]


def limits(sample: Sample) -> list[str]:
    """What this page cannot say."""
    said = [
        "Each interval and each bound holds with its confidence by itself, not all of them "
        "together: among many, some are wrong.",
        "No figure here says whether the law is kept. Whether a difference is justified, and "
        "whether labels are right, is for people to judge.",
        "Groups are those given. Nothing is said about others, or about another population.",
    ]
    if sample.label is None:
        said.append("There are no labels: nothing is said about errors.")
    if sample.score is None:
        said.append("There are no scores: nothing is said about calibration.")
    if sample.before is None:
        said.append("There are no earlier decisions: nothing is said about who changed.")
    return said
