"""The question of an audit, and sentences about its facts, in plain words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

from fairconstrained.audit.measures import DIFFERENCES, RATIOS, Facts
from fairconstrained.audit.sample import Sample
from fairconstrained.metrics.bounds import check_confidence
from fairconstrained.metrics.claims import own_bound, read_claim

CRITERIA = {
    "demographic_parity": "equal rates of favourable decisions",
    "equal_opportunity": "equal rates of favourable decisions among favourable labels",
    "false_positive_rate_parity": "equal rates of favourable decisions among other labels",
    "equalized_odds": "equal rates of favourable decisions among the rows of each label",
    "error_rate_parity": "equal rates of wrong decisions",
    "predictive_parity": "equal rates of favourable labels among favourable decisions",
    "false_omission_rate_parity": "equal rates of favourable labels among other decisions",
}
WEIGHTED = """Rows have weights without a bound that was known before, so there are no certificates:
give one by Weights(values, most=...), or --most-weight."""
_FEW = "Nothing can be compared: no attribute has two groups that are large enough."


def percent(value: float | None) -> str:
    """Return a rate in words."""
    return "not known" if value is None or math.isnan(value) else f"{100 * value:.1f} %"


def points(value: float | None) -> str:
    """Return a difference of rates in words."""
    known = value is not None and not math.isnan(value)
    return f"{100 * value:.1f} percentage points" if known and value is not None else "not known"


class Question(NamedTuple):
    """A criterion on rates; :func:`fairconstrained.metrics.certify` takes it for a constraint."""

    criterion: str
    slack: float | None  # of the violation; None: how large is it?
    ratio: float | None = None  # if given, the violation is one minus the smallest ratio
    attributes: str = "crossed"  # compared together as well as each by itself, or only so: parallel
    confidence: float = 0.95

    @property
    def name(self) -> str:
        """The criterion."""
        return self.criterion

    @classmethod
    def of(cls, constraint: Any, slack: Any, confidence: Any) -> Self:
        """Check what the user gave."""
        check_confidence(confidence)
        name = getattr(constraint, "name", constraint)
        if name not in DIFFERENCES:
            raise ValueError(
                f"constraint must be one of {sorted(DIFFERENCES)}; got {constraint!r}."
            )
        slack = own_bound(constraint) if slack is None else slack
        read_claim(constraint, slack or 0.0, None, interval=None, min_group_size=1)
        ratio = getattr(constraint, "ratio", None)
        if ratio is not None and name not in RATIOS:
            raise ValueError(
                f"constraint must be one of {sorted(RATIOS)} to have a ratio; got {constraint!r}."
            )
        return cls(name, slack, ratio, getattr(constraint, "attributes", "crossed"), confidence)

    def measured(self, facts: Mapping[str, Any]) -> Facts:
        """The violation by each attribute where there is one, with its interval."""
        kind = facts["differences"] if self.ratio is None else facts["ratios"]
        found = [fact for fact in kind if fact["criterion"] == self.criterion]
        if self.ratio is not None:
            ends = ("value", "value"), ("low", "high"), ("high", "low")
            found = [fact | {end: 1.0 - fact[of] for end, of in ends} for fact in found]
        return [fact for fact in found if not math.isnan(fact["value"])]

    def size(self, violation: float) -> str:
        """The difference or ratio, in words."""
        return points(violation) if self.ratio is None else percent(1.0 - violation)

    def interval(self, low: float, high: float) -> str:
        """The ends of an interval of the difference or ratio."""
        ends = (low, high) if self.ratio is None else (1.0 - high, 1.0 - low)
        return "{:.1f} to {:.1f}".format(*(100 * end for end in ends))

    def words(self, of_difference: str, of_ratio: str) -> str:
        """The words for what is asked."""
        return of_difference if self.ratio is None else of_ratio


def question(facts: Mapping[str, Any], sample: Sample, asked: Question) -> str:
    """What was asked."""
    favourable = facts["outcomes"]["decision"]["favourable"]
    by = [grouping.attribute for grouping in sample.compared(asked.attributes, within=False)]
    within = "" if sample.strata is None else f" within each {sample.strata.attribute}"
    most = ""
    if asked.slack is not None:
        most = f", {asked.words('up to', 'with ratios of at least')} {asked.size(asked.slack)}"
    name = asked.criterion.replace("_", " ")
    return (
        f"Do groups by {', '.join(by)}{within} have {CRITERIA[asked.criterion]} ({name}){most}? "
        f"The favourable decision is {favourable!r}."
    )


def answer(facts: Mapping[str, Any], asked: Question) -> str:
    """The answer in one sentence."""
    gaps, slack = asked.measured(facts), asked.slack
    if not gaps:
        return _FEW
    worst = max(gaps, key=lambda gap: float(gap["value"]))
    largest = (
        f"the {asked.words('largest difference', 'smallest ratio')} on these rows is "
        f"{asked.size(worst['value'])}, by {worst['attribute']}"
        f"{_extremes(facts, worst, asked.criterion)} ({100 * asked.confidence:g} % interval "
        f"{asked.interval(worst['low'], worst['high'])})"
    )
    if slack is None:
        return f"{largest[0].upper()}{largest[1:]}."
    if worst["value"] > slack:
        sure = worst["low"] > slack
        no = "No" if sure else "On these rows no, but they do not decide for new rows"
        return f"{no}: {largest}, {asked.words('more', 'less')} than {asked.size(slack)}."
    found = facts["certificates"]
    sure = f"with {100 * asked.confidence:g} % confidence for each attribute"
    if found and all(entry["kept"] for entry in found) and len(found) == len(gaps):
        return f"Yes, also on new rows like these ({sure}): {largest}."
    beyond = " no bound was asked"
    if found:
        bound = asked.size(max(entry["upper"] for entry in found))
        beyond = f" it may be {asked.words('up to', 'as small as')} {bound} there"
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
    low, high = min(rate, key=rate.__getitem__), max(reversed(rate), key=rate.__getitem__)
    return f": {low} {percent(rate[low])}, {high} {percent(rate[high])}"


def findings(facts: Mapping[str, Any], asked: Question) -> list[str]:
    """What a reader must know before all figures."""
    found, slack = [], asked.slack
    overall = facts["groups"][0]["selection_rate"]
    if overall in (0.0, 1.0):
        who = "Nobody" if overall == 0 else "Everybody"
        found.append(f"{who} gets the favourable decision: all rates are equal for that reason.")
    missed = [
        f"by {gap['attribute']} ({asked.size(gap['value'])})"
        for gap in asked.measured(facts)
        if slack is not None and gap["value"] > slack
    ]
    if missed and slack is not None:
        kind = asked.words("slack", "ratio")
        found.append(f"The {kind} of {asked.size(slack)} is missed {', '.join(missed)}.")
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
    if sample.strata is not None:
        said.append(
            f"Groups are compared within each {sample.strata.attribute}: the answer says nothing "
            "about who gets into which."
        )
    if sample.label is None:
        said.append("There are no labels: nothing is said about errors.")
    if sample.score is None:
        said.append("There are no scores: nothing is said about calibration.")
    if sample.before is None:
        said.append("There are no earlier decisions: nothing is said about who changed.")
    return said
