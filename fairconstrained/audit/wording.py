"""The question of an audit, and sentences that answer it from the facts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

from fairconstrained.arrays import check_confidence
from fairconstrained.audit.measures import COMPARED, RATIOS, Facts
from fairconstrained.audit.sample import Sample
from fairconstrained.comparison import undecided
from fairconstrained.inputs.values import listed
from fairconstrained.metrics.bounds import DIFFERENCE, SHORTFALL, Comparison
from fairconstrained.metrics.claims import constraint_bound, read_claim

CRITERIA = {
    "demographic_parity": "equal rates of favourable decisions",
    "equal_opportunity": "equal rates of favourable decisions among favourable labels",
    "false_positive_rate_parity": "equal rates of favourable decisions among other labels",
    "equalized_odds": "equal rates of favourable decisions among favourable and among other labels",
    "error_rate_parity": "equal rates of wrong decisions",
    "predictive_parity": "equal rates of favourable labels among favourable decisions",
    "false_omission_rate_parity": "equal rates of favourable labels among other decisions",
}
# Names of the rates in tables and findings, and the criterion that compares each.
RATES = {
    "favourable labels": ("base_rate", None),
    "wrongly refused": ("false_negative_rate", "equal_opportunity"),
    "wrongly granted": ("false_positive_rate", "false_positive_rate_parity"),
    "wrong in all": ("error", "error_rate_parity"),
    "right if granted": ("precision", "predictive_parity"),
    "wrong if refused": ("false_omission_rate", "false_omission_rate_parity"),
}
RATE_NAMES = {rate: name for name, (rate, _) in RATES.items()} | {
    "true_positive_rate": "granted among favourable labels"
}
WEIGHTED = """Rows have weights without a bound that was known before, so there are no certificates.
Give one by Weights(values, most=...), or --most-weight."""
# The four-fifths rule of US agencies (29 CFR 1607.4 D): a smaller ratio is generally regarded as
# evidence of adverse impact.
FOUR_FIFTHS = 0.8
# A gap in another rate that a reader must know about: twice the default slack.
_LARGE = 0.1
# Rates of an outcome that hardly anybody gets have small gaps, which mean nothing.
_RARE = 0.01
# Verdicts; exit codes and the headline follow from them.
KEPT, NOT_KEPT, NOT_PROVED, NOT_ASKED = "kept", "not kept", "not proved", "not asked"
# Groups that are not compared, in the answer: the page lists all.
_MOST_NAMED = 5


def percent(value: float | None) -> str:
    """Return a rate in percent, as text."""
    return "too few" if value is None or math.isnan(value) else f"{100 * value:.1f} %"


def points(value: float | None, unit: str = " points") -> str:
    """Return a difference of rates in percentage points."""
    if value is None or math.isnan(value):
        return "not known"
    return f"{100 * value + 0.0:.1f}{unit}".replace("-0.0", "0.0")


def rounded(number: float) -> str:
    """Return a number of rows as text, with two significant digits."""
    return f"{round(number, 1 - math.floor(math.log10(number))):,.0f}" if number >= 1 else "1"


class Question(NamedTuple):
    """A criterion on rates, which :func:`fairconstrained.metrics.certify` accepts."""

    criterion: str
    slack: float | None  # of the violation; None: how large is it?
    ratio: float | None = None  # if given, the violation is one minus the smallest ratio
    attributes: str = "crossed"  # also compared together, or "parallel": only each by itself
    confidence: float = 0.95
    preset: str | None = None

    @property
    def name(self) -> str:
        """Return the name of the criterion, as constraints do."""
        return self.criterion

    @property
    def comparison(self) -> Comparison:
        """Return how two rates are compared."""
        return DIFFERENCE if self.ratio is None else SHORTFALL

    @classmethod
    def of(cls, constraint: Any, slack: Any, confidence: Any) -> Self:
        """Return the question of a constraint after checks of all arguments."""
        check_confidence(confidence)
        slack = constraint_bound(constraint) if slack is None else slack
        how: Any = {"interval": None, "min_group_size": 1, "known": [*COMPARED]}
        claim = read_claim(constraint, slack or 0.0, None, **how)
        if claim.ratio is not None and claim.notion not in RATIOS:
            raise ValueError(
                f"constraint must be one of {sorted(RATIOS)} to have a ratio; got {constraint!r}."
            )
        return cls(claim.notion, slack, claim.ratio, claim.attributes, confidence)

    def measured(self, facts: Mapping[str, Any]) -> Facts:
        """Return the violation by each attribute that has one, with its interval."""
        kind = facts["differences"] if self.ratio is None else facts["ratios"]
        gaps = [fact for fact in kind if fact["criterion"] == self.criterion]
        if self.ratio is not None:
            same = (("value", "value"), ("before", "before"), ("standing", "standing"))
            ends = (*same, ("low", "high"), ("high", "low"))
            gaps = [fact | {end: 1.0 - fact[other] for end, other in ends} for fact in gaps]
        return [fact for fact in gaps if not math.isnan(fact["value"])]

    def size(self, violation: float, unit: str = " points") -> str:
        """Return a difference or ratio in words."""
        return points(violation, unit) if self.ratio is None else percent(1.0 - violation)

    def interval(self, low: float, high: float) -> str:
        """Return an interval of the difference or ratio in words."""
        ends = (low, high) if self.ratio is None else (1.0 - high, 1.0 - low)
        unit = self.words("points", "%")
        return f"{100 * ends[0]:.1f} to {100 * ends[1]:.1f} {unit}"

    def words(self, difference: str, ratio: str) -> str:
        """Return the words for a difference or for a ratio, by the kind of question."""
        return difference if self.ratio is None else ratio


def question_text(facts: Mapping[str, Any], sample: Sample, question: Question) -> str:
    """Return the question as a sentence."""
    favourable = facts["outcomes"]["decision"]["favourable"]
    by = [grouping.attribute for grouping in sample.compared(question.attributes, within=False)]
    within = "" if sample.strata is None else f" within each {sample.strata.attribute}"
    most = ""
    if question.slack is not None:
        limit = question.words("up to", "with ratios of at least")
        most = f", {limit} {question.size(question.slack)}"
    name = question.criterion.replace("_", " ")
    whom = "the groups" if by == ["group"] else f"groups by {', '.join(by)}"
    return (
        f"Do {whom}{within} have {CRITERIA[question.criterion]} ({name}){most}? "
        f"The favourable decision is {favourable!r}."
    )


def verdict(facts: Mapping[str, Any], question: Question) -> str:
    """Return the verdict on the criterion, for these rows and for their population."""
    gaps = question.measured(facts)
    if question.slack is None:
        return NOT_ASKED
    if any(gap["value"] > question.slack for gap in gaps):
        return NOT_KEPT
    unsure = _alike(facts) is not None or _uncompared(facts, question) or _hidden(gaps, question)
    if not gaps or unsure:
        return NOT_PROVED
    proved = [entry for entry in facts["certificates"] if entry["kept"]]
    return KEPT if len(proved) == len(gaps) else NOT_PROVED


def headline(facts: Mapping[str, Any], question: Question) -> str:
    """Return the answer in at most 25 words: yes or no, before and after, and the cost."""
    gaps = question.measured(facts)
    if (alike := _alike(facts)) is not None:
        return f"{alike} gets the favourable decision: equal rates mean nothing here."
    if not gaps:
        return "Nothing can be compared: no attribute has two groups that are large enough."
    if question.slack is not None:
        return f"{_yes_or_no(facts, question)}{_moved(facts, gaps, question)}."
    by_ratio = question._replace(ratio=FOUR_FIFTHS)
    if question.criterion not in RATIOS or not (ratios := by_ratio.measured(facts)):
        return f"Undecided without a slack{_moved(facts, gaps, question)}."
    less = any(fact["value"] > 1.0 - FOUR_FIFTHS for fact in ratios)
    rule = f"By four fifths, {'no' if less else 'yes'}"
    if not less and _uncompared(facts, question):
        rule = "Undecided by four fifths"
    if question.preset is not None:
        rule = "This law sets no threshold"
    return f"{rule}{_moved(facts, ratios, by_ratio)}."


def _yes_or_no(facts: Mapping[str, Any], question: Question) -> str:
    result = verdict(facts, question)
    if result == KEPT:
        return "Yes, also for future cases"
    if result == NOT_PROVED and _hidden(question.measured(facts), question):
        return "Undecided, since groups are missing"
    if result == NOT_PROVED:
        partly = _uncompared(facts, question)
        return "Partly undecided, otherwise yes" if partly else "In this sample, yes"
    sure = any(gap["low"] > (question.slack or 0.0) for gap in question.measured(facts))
    return "No" if sure else "In this sample, no"


def _moved(facts: Mapping[str, Any], gaps: Facts, question: Question) -> str:
    """Return words on the size of the gap, and on the changes since earlier decisions."""
    now = max(float(gap["value"]) for gap in gaps)
    earlier = [float(gap["before"]) for gap in gaps]
    before = math.nan if any(map(math.isnan, earlier)) else max(earlier)
    kind = question.words("gap", "smallest ratio")
    if math.isnan(before):
        return f" ({kind} {question.size(now)})"
    total, unit = facts["changes"][0], question.words("", " %")
    first, last = question.size(before, "").removesuffix(unit), question.size(now)
    change = f"{_risen((now - before) * (1 if question.ratio is None else -1))} from {first} to"
    costs = [f": the {kind} {change if first != last.split()[0] else 'stayed at'} {last}"]
    if not math.isnan(total.get("error_change", math.nan)):
        error = points(abs(total["error_change"]))
        moved = "stayed" if error == points(0.0) else f"{_risen(total['error_change'])} by {error}"
        costs.append(f"errors {moved}")
    people = total["lost"] + total["gained"]
    costs.append(f"{people:,} of {total['samples']:,} people got another decision")
    return "; ".join(costs)


def _risen(change: float) -> str:
    return "rose" if change > 0 else "fell"


def _alike(facts: Mapping[str, Any]) -> str | None:
    """Return "Nobody" or "Everybody" if all rows have the same decision, else None."""
    return {0.0: "Nobody", 1.0: "Everybody"}.get(facts["groups"][0]["selection_rate"])


def _hidden(gaps: Facts, question: Question) -> bool:
    """Return whether a gap is within the slack only because groups are missing."""
    slack = question.slack or 0.0
    return any(undecided(gap["value"], gap["standing"], slack) for gap in gaps)


def _uncompared(facts: Mapping[str, Any], question: Question) -> list[str]:
    """Return the attributes of the question by which no two groups are compared."""
    families = facts["families"]  # an attribute may be compared in one stratum and not in another
    compared = {families[gap["attribute"]] for gap in question.measured(facts)}
    return [name for name in dict.fromkeys(families.values()) if name not in compared]


def answer(facts: Mapping[str, Any], question: Question) -> str:
    """Return the headline, the bound for future cases and the groups that are furthest apart."""
    gaps = question.measured(facts)
    if not gaps or _alike(facts) is not None:
        return headline(facts, question)
    sentences = [headline(facts, question)]
    if uncompared := _uncompared(facts, question):
        sentences.append(f"Nothing can be compared by {', by '.join(uncompared)}.")
    certificates, sure = facts["certificates"], f"{100 * question.confidence:g} %"
    if certificates and question.slack is not None:
        bound = question.size(max(entry["upper"] for entry in certificates))
        kind = question.words(f"a gap of up to {bound}", f"a ratio as small as {bound}")
        at_most = question.words("at most", "at least")
        sentences += {
            KEPT: [f"With {sure} confidence it is {at_most} {bound} for future cases."],
            NOT_PROVED: [f"For future cases we cannot rule out {kind}."],
        }.get(verdict(facts, question), [])
    worst = max(gaps, key=lambda gap: float(gap["value"]))
    largest = question.words("largest gap", "smallest ratio")
    ends = _extremes(facts, worst, COMPARED[question.criterion], question.comparison)
    sentences.append(
        f"The {largest} is by {worst['attribute']}{ends}: "
        f"{question.size(worst['value'])}, {sure} interval "
        f"{question.interval(worst['low'], worst['high'])}."
    )
    standing = {gap["attribute"]: gap["standing"] for gap in gaps}
    if not all(map(math.isnan, standing.values())):
        by = {gap["attribute"]: gap["value"] for gap in gaps}
        by |= {name: value for name, value in standing.items() if not math.isnan(value)}
        most = max(by, key=by.__getitem__)
        sentences.append(
            "Rows of known groups alone count; in fits and metrics they stand for all rows of "
            f"their label, and the {largest} is by {most}: {question.size(by[most])}."
        )
    if not worst["low"] - 1e-9 <= worst["value"] <= worst["high"] + 1e-9:
        sentences.append(
            f"The interval does not contain the {largest} of this sample, which is biased on small "
            "groups: the interval corrects for the bias."
        )
    return " ".join(sentences)


def not_compared(left_out: list[str]) -> str:
    """Return a sentence that names the groups left out of the answer."""
    return f" Not compared: {listed(left_out, _MOST_NAMED, '; ')}." if left_out else ""


def _extremes(
    facts: Mapping[str, Any], gap: Mapping[str, Any], rates: list[str], comparison: Comparison
) -> str:
    """Return words on the groups whose rates are as far apart as the gap, and on the rate.

    Empty if no two are: where groups are not compared within each label, others may be further.
    """
    compared = compared_groups(facts["ratios"], gap["attribute"])
    rows = [
        row
        for row in [*facts["groups"], *facts["intersections"]]
        if row["attribute"] == gap["attribute"] and row["group"] in compared
    ]
    for name in rates:
        rate = {row["group"]: row[name] for row in rows if not math.isnan(row[name])}
        low, high = (end(rate, key=rate.__getitem__, default="") for end in (min, max))
        if low == high or rate[low] == rate[high]:
            continue
        if math.isclose(gap["value"], comparison.of_rates(rate[high], rate[low]), abs_tol=1e-9):
            which = f"{RATE_NAMES[name]}; " if len(rates) > 1 else ""
            return f" ({which}{low}: {percent(rate[low])}, {high}: {percent(rate[high])})"
    return ""


def compared_groups(ratios: Facts, attribute: str) -> set[str]:
    """Return the groups by this attribute that are compared."""
    facts = (fact for fact in ratios if fact["attribute"] == attribute)
    return {group for fact in facts for group in fact.get("groups", ())}


def findings(facts: Mapping[str, Any], question: Question) -> list[str]:
    """Return sentences that a reader has to know before the figures."""
    sentences, slack = [], question.slack
    overall = facts["groups"][0]["selection_rate"]
    if min(overall, 1.0 - overall) < _RARE and _alike(facts) is None:
        nearly = "Hardly anybody" if overall < _RARE else "Almost everybody"
        sentences.append(
            f"{nearly} gets the favourable decision ({percent(overall)}), so gaps are small anyway."
        )
    missed = [
        f"{gap['attribute']} ({question.size(gap['value'])})"
        for gap in question.measured(facts)
        if slack is not None and gap["value"] > slack
    ]
    if missed and slack is not None:
        limit = question.words("a gap of at most", "a ratio of at least")
        sentences.append(
            f"Outside the limit ({limit} {question.size(slack)}): by {', by '.join(missed)}."
        )
    for name, (rate, criterion) in RATES.items():
        if set(COMPARED.get(criterion or "", [rate])) <= set(COMPARED[question.criterion]):
            continue
        gaps = [fact for fact in facts["differences"] if fact["criterion"] == criterion]
        gaps = [gap for gap in gaps if gap["value"] >= _LARGE]
        if gaps:
            worst = max(gaps, key=lambda gap: float(gap["value"]))
            groups = _extremes(facts, worst, [rate], DIFFERENCE)
            ends = f"interval {points(worst['low'], '')} to {points(worst['high'])}"
            sentences.append(
                f'Another gap: "{name}" differs by {points(worst["value"])} by '
                f"{worst['attribute']}{groups}, {ends}."
            )
    return sentences


def assumptions(facts: Mapping[str, Any]) -> list[str]:
    """Return the assumptions of intervals and certificates, each once."""
    intervals = "Intervals and bounds treat the rows as independent draws: several rows about one "
    intervals += "person or household carry less information than they seem to."
    lines = dict.fromkeys(line for entry in facts["certificates"] for line in entry["assumptions"])
    certified = [f"Bounds for future cases: {line.rstrip(';.')}." for line in lines]
    return [intervals, *certified]


def limits(sample: Sample) -> list[str]:
    """Return sentences about questions that the page cannot answer."""
    sentences = [
        "Each interval and each bound holds with its confidence on its own, not all of them "
        "together: among many, some will be wrong.",
        "Nothing here shows whether the law has been complied with. Whether a difference is "
        "justified, and whether the labels are right, is for people to judge.",
        "The groups are the ones given. Nothing is said about others, or about another population.",
    ]
    if sample.min_cell > 1:
        sentences.append(
            f"Rates that rest on fewer than {sample.min_cell} rows are counted and hidden, as they "
            "could point at single people. Where one group alone is hidden, the totals reveal it."
        )
    if sample.strata is not None:
        sentences.append(
            f"Groups are compared within each {sample.strata.attribute}: the answer says nothing "
            "about who gets into which."
        )
    missing = {
        "labels: nothing is said about errors": sample.label,
        "scores: nothing is said about calibration": sample.score,
        "earlier decisions: nothing is said about who changed": sample.before,
    }
    return sentences + [
        f"There are no {data}." for data, values in missing.items() if values is None
    ]
