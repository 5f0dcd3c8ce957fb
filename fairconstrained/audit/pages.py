"""An audit and its page: sections of sentences, tables and pictures, rendered by two templates."""

from __future__ import annotations

import html as escapes
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any, NamedTuple

import jinja2

from fairconstrained.audit.measures import COMPARED, Facts
from fairconstrained.audit.presets import RULES
from fairconstrained.audit.wording import (
    FOUR_FIFTHS,
    RATE_NAMES,
    RATES,
    Question,
    compared_groups,
    percent,
    points,
    rounded,
)
from fairconstrained.comparison import undecided
from fairconstrained.metrics.statements import in_markdown, plain

_FOUR_FIFTHS = """A rate below four fifths (80 %) of the largest is what US agencies generally
regard as evidence of adverse impact. It is a rule of thumb: a ratio on either side of it proves
nothing by itself, and says nothing about other laws."""
# Values of an outcome in the table of provenance: a column of numbers may have thousands.
_MOST_VALUES = 30
# Between the lines of a picture: the first that gives at most six lines.
_STEPS = (0.01, 0.02, 0.05, 0.1, 0.2)


@dataclass(frozen=True)
class Audit:
    """Result of :func:`fairconstrained.report`: facts, and pages that show them.

    Rates, differences and ratios are fractions. Every list of facts has an entry per attribute, or
    per group of each attribute; of several attributes "sex & race" are their combinations.

    Parameters
    ----------
    question : str
        One sentence.
    verdict : {"kept", "not kept", "not proved", "not asked"}
        "kept": also for the population, with the confidence. "not proved": the criterion is kept on
        these rows only, or nothing can be compared by one of the attributes, or all rows have the
        same decision. "not asked": there is no slack.
    headline : str
        The answer in at most 25 words.
    answer : str
        The headline and further sentences, such as a bound for future cases.
    findings : list of str
        Sentences that a reader has to know first.
    outcomes : dict
        For decision, label and earlier decision: the column, its favourable outcome, and the rows
        and the meaning of each value.
    groups, intersections : list of dict
        Rates of each group with their intervals: by each attribute; by several together, and within
        each stratum.
    differences, ratios : list of dict
        Largest minus smallest rate, and smallest divided by largest; ratios also of each group.
        ``before`` is the value of earlier decisions, and ``standing`` the value in fits and
        metrics, where rows of known group represent all rows of their label.
    calibration : list of dict
        Mean score and rate of favourable labels by group and fifth of the scores.
    changes : list of dict
        By group: rows whose decision was lost, gained, kept or never given, and errors.
    certificates : list of dict
        :class:`fairconstrained.metrics.Certificate` by attribute; ``rows``, and ``rows_needed``.
    assumptions, limits, left_out : list of str
    provenance : dict
        Date, version, file and its hash, rows, command.
    schema_version : str
        Of :meth:`to_dict`. It changes when a name or a meaning does.

    Examples
    --------
    >>> import fairconstrained
    >>> audit = fairconstrained.report(y_pred=[1, 1, 0, 1, 0, 0] * 10,
    ...                                sensitive_features=list("aaabbb") * 10)
    >>> [(row["group"], round(row["selection_rate"], 2)) for row in audit.groups]
    [('everybody', 0.5), ('a', 0.67), ('b', 0.33)]
    """

    question: str
    verdict: str
    headline: str
    answer: str
    findings: list[str]
    outcomes: dict[str, Any]
    groups: Facts
    intersections: Facts
    differences: Facts
    ratios: Facts
    calibration: Facts
    changes: Facts
    certificates: Facts
    assumptions: list[str]
    limits: list[str]
    left_out: list[str]
    provenance: dict[str, Any]
    schema_version: str = "2"

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers, texts, lists and dicts for ``json.dump``, None where not known.

        Returns
        -------
        dict
        """
        return dict(plain(asdict(self)))

    def to_html(self) -> str:
        """Return one page that needs no other file, no script and no network.

        Returns
        -------
        str
        """
        return rendered("audit.html", self)

    def to_markdown(self) -> str:
        """Return the page in Markdown, without pictures.

        Returns
        -------
        str
        """
        return rendered("audit.md", self)

    def _repr_html_(self) -> str:
        return framed(self.to_html())


class Grid(NamedTuple):
    """A table of texts; the first column has the headings of the rows."""

    caption: str
    columns: list[str]
    rows: list[list[str]]


class Mark(NamedTuple):
    """A number with its interval and its earlier value, and all of them as text."""

    name: str
    value: float
    low: float
    high: float
    before: float | None
    text: str


class Picture(NamedTuple):
    """Numbers with their intervals, one below the other, on an axis."""

    title: str
    text: str
    marks: list[Mark]
    scale: float  # from numbers to places on the axis, in percent of it
    ticks: list[tuple[float, str]]
    limit: float | None  # the slack, as a line
    note: str


class Section(NamedTuple):
    """A part of the page."""

    title: str
    texts: list[str]
    items: Sequence[str] = ()
    grids: Sequence[Grid] = ()
    pictures: Sequence[Picture] = ()

    @property
    def anchor(self) -> str:
        """Name of the place that the contents link to."""
        return self.title.lower().replace(" ", "-").replace(",", "")


def framed(page: str) -> str:
    """Return a page in a frame, so that its styles stay inside."""
    style = "width: 100%; height: 40em; border: 1px solid"
    srcdoc = escapes.escape(page)
    return f'<iframe title="Audit" sandbox style="{style}" srcdoc="{srcdoc}"></iframe>'


def rendered(template: str, audit: Audit) -> str:
    """Render the page with a template: HTML or, without pictures, Markdown."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("fairconstrained", "audit/templates"),
        autoescape=jinja2.select_autoescape(["html"]),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["cell"] = in_markdown
    more = audit.answer.removeprefix(audit.headline).strip()
    return environment.get_template(template).render(
        audit=audit, more=more, sections=list(_sections(audit))
    )


def _question(audit: Audit) -> Question:
    return Question(**{name: audit.provenance[name] for name in Question._fields})


def _sections(audit: Audit) -> Iterator[Section]:
    summary = _summary(audit)
    yield Section("In short", [], audit.findings, (), [summary] if summary else [])
    if (preset := audit.provenance["preset"]) is not None:
        yield Section(RULES[preset].title, [RULES[preset].law])
    yield _rates(audit)
    yield _ratios(audit)
    if "labelled" in audit.groups[0]:
        yield _errors(audit)
    if audit.calibration:
        yield _calibration(audit)
    if audit.changes:
        yield _changes(audit)
    yield _new_rows(audit)
    yield Section("Assumptions", [], audit.assumptions)
    yield Section("Limits", [], audit.limits)
    if audit.left_out:
        yield Section("Left out, and why", [], audit.left_out)
    yield _provenance(audit)


def _by_attribute(audit: Audit, facts: Facts) -> dict[str, Facts]:
    """Return a list of facts for each attribute, with the facts of everybody at its end."""
    lists: dict[str, Facts] = {}
    for fact in facts:
        lists.setdefault(fact["attribute"], []).append(fact)
    everybody = lists.pop(audit.groups[0]["attribute"], [])
    return {attribute: [*rows, *everybody] for attribute, rows in lists.items()}


def _grids(
    audit: Audit,
    title: str,
    facts: Facts,
    columns: list[str],
    cells: Callable[[dict[str, Any]], list[str]],
) -> list[Grid]:
    """Return a table for each attribute, with a row for each of its facts."""
    return [
        Grid(f"{title} by {attribute}", columns, list(map(cells, rows)))
        for attribute, rows in _by_attribute(audit, facts).items()
    ]


def _ends(fact: dict[str, Any], name: str) -> str:
    """Return a rate and its interval as text."""
    return _between(*(fact[f"{name}{end}"] for end in ("", "_low", "_high")))


def _between(value: float, low: float, high: float) -> str:
    if math.isnan(value):
        return percent(value)
    return f"{percent(value)} ({100 * low:.1f} to {100 * high:.1f})"


def _gap(fact: dict[str, Any]) -> str:
    """Return a difference of rates and its interval as text."""
    if math.isnan(fact["value"]):
        return points(fact["value"])
    return f"{points(fact['value'])} ({points(fact['low'], '')} to {points(fact['high'], '')})"


def _count(audit: Audit, samples: int | None) -> str:
    return f"fewer than {audit.provenance['min_cell']}" if samples is None else f"{samples:,}"


def _picture(title: str, marks: list[Mark], limit: float | None, note: str, unit: str) -> Picture:
    """Return a picture of numbers, on an axis with room for all and for the limit."""
    ends = [end for m in marks for end in (m.value, m.high, m.before) if end is not None]
    top = min(1.0, max([*ends, limit or 0.0, 0.05]))
    step = next((step for step in _STEPS if top / step <= 6), _STEPS[-1])
    top = step * math.ceil(top / step - 1e-9)
    text, scale = "; ".join(f"{mark.name} {mark.text}" for mark in marks), 100 / top
    ticks = [
        (scale * step * i, f"{100 * step * i:.0f}{unit}") for i in range(round(top / step) + 1)
    ]
    return Picture(title, text, marks, scale, ticks, limit, note)


def _summary(audit: Audit) -> Picture | None:
    """Return a picture of the gap by each attribute, before and now, with the slack as a line."""
    question, marks = _question(audit), []
    for gap in question._replace(ratio=None).measured(vars(audit)):
        before = None if math.isnan(gap["before"]) else gap["before"]
        text = _gap(gap) + ("" if before is None else f", {points(before)} before")
        ends = gap["value"], gap["low"], gap["high"], before
        marks.append(Mark(f"by {gap['attribute']}", *ends, text))
    if not marks:
        return None
    limit = question.slack if question.ratio is None else None
    notes = ["Filled: now, with its interval."]
    if any(mark.before is not None for mark in marks):
        notes.append("Hollow: before.")
    if limit is not None:
        notes.append(f"Dashed: the slack, {points(limit)}.")
    name = question.criterion.replace("_", " ")
    return _picture(f"Largest gap ({name}), in points", marks, limit, " ".join(notes), "")


def _rate_pictures(audit: Audit, names: dict[str, str]) -> Iterator[Picture]:
    """Yield a picture of each named rate by each attribute, with a line where the slack ends."""
    question = _question(audit)
    facts = _by_attribute(audit, audit.groups + audit.intersections)
    for (attribute, rows), (rate, name) in product(facts.items(), names.items()):
        marks = [
            Mark(f["group"], f[rate], f[f"{rate}_low"], f[f"{rate}_high"], None, _ends(f, rate))
            for f in rows
            if not math.isnan(f[rate])
        ]
        compared, limit = compared_groups(audit.ratios, attribute), None
        rates = [mark.value for mark in marks if mark.name in compared]
        if question.slack is not None and rate in COMPARED[question.criterion] and rates:
            ratio = question.ratio
            lowest = max(rates) - question.slack if ratio is None else max(rates) * ratio
            limit = lowest if lowest > 0 else None
        note = "" if limit is None else "Dashed: the lowest rate that the question allows."
        yield _picture(f"{name} by {attribute}", marks, limit, note, " %")


def _rates(audit: Audit) -> Section:
    confidence, rate = audit.provenance["confidence"], "selection_rate"
    favourable = audit.outcomes["decision"]["favourable"]
    name, columns = f"Rates of {favourable}", ["group", "rows", f"{favourable} (interval)"]
    grids = _grids(
        *(audit, name, audit.groups + audit.intersections, columns),
        lambda f: [f["group"], _count(audit, f["samples"]), _ends(f, rate)],
    )
    text = f"Fractions of the rows with the decision {favourable!r}, each with its "
    text += f"{100 * confidence:g} % interval. Larger groups have shorter intervals."
    return Section("Rates by group", [text], [], grids, list(_rate_pictures(audit, {rate: name})))


def _ratios(audit: Audit) -> Section:
    grids = []
    for fact in (fact for fact in audit.ratios if "groups" in fact):
        rows = [
            [group, percent(ratio), points(fact["gaps"][group])]
            for group, ratio in fact["groups"].items()
        ]
        caption = f"Rates by {fact['attribute']}, relative to {fact['reference']}"
        grids.append(Grid(caption, ["group", "ratio", "difference"], rows))
        if fact["errors"]:
            rows = [
                [group, *(points(gaps[group], "") for gaps in fact["errors"].values())]
                for group in fact["groups"]
            ]
            columns = ["group", *(name.replace("_", " ") for name in fact["errors"])]
            caption = f"Other rates by {fact['attribute']}, in points more than {fact['reference']}"
            grids.append(Grid(caption, columns, rows))
    ratio = {
        (fact["attribute"], fact["criterion"]): _between(fact["value"], fact["low"], fact["high"])
        for fact in audit.ratios
    }
    rows = []
    for gap in audit.differences:
        by, criterion = gap["attribute"], gap["criterion"]
        name = f"{criterion.replace('_', ' ')}, by {by}"
        rows.append([name, _gap(gap), ratio.get((by, criterion), "")])
    columns = ["criterion", "difference (largest - smallest)", "ratio (smallest / largest)"]
    grids.append(Grid("Criteria, with intervals; points are percentage points", columns, rows))
    evidence = [
        f"By {fact['attribute']} the smallest rate is "
        f"{_between(fact['value'], fact['low'], fact['high'])} of the largest: "
        f"{'below' if fact['value'] < FOUR_FIFTHS else 'not below'} four fifths on these rows"
        f"{', but the interval includes it' if fact['low'] < FOUR_FIFTHS <= fact['high'] else ''}."
        for fact in audit.ratios
        if "groups" in fact and not math.isnan(fact["value"])
    ]
    return Section("Ratios", [" ".join(_FOUR_FIFTHS.split())], evidence, grids if rows else [])


def _errors(audit: Audit) -> Section:
    def cells(f: dict[str, Any]) -> list[str]:
        rates = [_ends(f, rate) for rate, _ in RATES.values()]
        return [f["group"], _count(audit, f["labelled"]), *rates]

    columns = ["group", "rows with a label", *RATES]
    grids = _grids(audit, "Errors", audit.groups + audit.intersections, columns, cells)
    criterion = _question(audit).criterion
    shown = COMPARED[criterion] if criterion != "demographic_parity" else ()
    names = {rate: RATE_NAMES[rate][0].upper() + RATE_NAMES[rate][1:] for rate in shown}
    label, decision = (audit.outcomes[name]["favourable"] for name in ("label", "decision"))
    texts = [
        f"The favourable label is {label!r}. Wrongly refused: of the rows with it, the share "
        f"without the decision {decision!r}. Wrongly granted: of the rows with another label, the "
        "share with this decision. Right if granted: of the rows with this decision, the share "
        "with this label."
    ]
    return Section("Errors of each kind", texts, [], grids, list(_rate_pictures(audit, names)))


def _calibration(audit: Audit) -> Section:
    def cells(f: dict[str, Any]) -> list[str]:
        numbers = str(f["bin"]), f"{f['samples']:,}", f"{f['mean_score']:.3f}"
        return [f["group"], *numbers, _ends(f, "observed")]

    columns = ["group", "fifth", "rows", "mean score", "favourable labels (interval)"]
    grids = _grids(audit, "Calibration", audit.calibration, columns, cells)
    aucs = [
        f"{f['group']}: AUC {f['auc']:.3f} ({f['auc_low']:.3f} to {f['auc_high']:.3f})."
        for f in audit.groups
        if not math.isnan(f["auc"])
    ]
    text = (
        "Rows are sorted by their scores into fifths. If scores are probabilities and are "
        "calibrated in a group, the share of favourable labels is close to the mean score in each "
        "of its lines. The AUC is the chance that a row with a favourable label has a higher score "
        "than a row with another label."
    )
    return Section("Calibration by group", [text], aucs, grids)


def _changes(audit: Audit) -> Section:
    counts = {"lost it": "lost", "gained it": "gained", "kept it": "kept", "never had it": "never"}
    errors = {"error before": "error_before", "error now": "error_now"}
    errors = errors if "error_now" in audit.changes[0] else {}

    def cells(f: dict[str, Any]) -> list[str]:
        decisions = [f"{f[name]:,} ({percent(f[name] / f['samples'])})" for name in counts.values()]
        error_rates = [percent(f[name]) for name in errors.values()]
        change = [points(f["error_change"])] if errors else []
        return [f["group"], f"{f['samples']:,}", *decisions, *error_rates, *change]

    columns = ["group", "rows", *counts, *errors, *(["change"] if errors else [])]
    grids = _grids(audit, "Changed decisions", audit.changes, columns, cells)
    total = audit.changes[0]
    text = (
        f"Of {total['samples']:,} rows with both decisions, {total['lost']:,} had the favourable "
        f"one before and have lost it, and {total['gained']:,} have gained it; the other "
        f"{total['kept'] + total['never']:,} did not change."
    )
    if errors:
        text += f" The error rate changed by {points(total['error_change'])}."
    return Section("Who changed", [text], [], grids)


def _new_rows(audit: Audit) -> Section:
    question = _question(audit)
    items = [_bound(entry, question) for entry in audit.certificates]
    text = "Bounds for the population that these rows were drawn from, whatever its rates are."
    return Section(
        "What holds for future cases", [text] if items else ["Nothing is proved."], items
    )


def _bound(entry: dict[str, Any], question: Question) -> str:
    """Return sentences on a certificate's bound, and on the rows that would prove the slack."""
    needed, rows = entry["rows_needed"], entry["rows"]
    pair = entry["binding"].replace("group ", "")
    here = "no ratio on these rows, where all rates are zero"
    if entry["estimate"] is not None:
        here = f"{question.words('a gap', 'a ratio')} of {question.size(entry['estimate'])} on "
        here += "these rows"
    text = (
        f"By {entry['attribute']}: {here}. With {100 * question.confidence:g} % "
        f"confidence, {question.words('at most', 'at least')} {question.size(entry['upper'])} for "
        f"future cases ({question.words('largest gap', 'smallest ratio')}: {pair})"
    )
    if question.slack is None:
        return f"{text}."
    limit = question.size(question.slack)
    if undecided(entry["estimate"], entry["standing"], question.slack):
        measured = question.size(entry["standing"])
        return f"{text}: undecided, since groups are missing, and fits and metrics have {measured}."
    if entry["kept"]:
        text += f": {question.words('within', 'at least')} {limit}."
        enough = f"At these rates, about {rounded(needed)} rows would have been enough."
        return f"{text} {enough}" if needed else text
    text += f": {limit} {question.words('are', 'is')} not proved."
    if needed is None:
        return f"{text} At these rates, more rows would not help."
    times = f"{needed / rows:.1f} times as many"
    return f"{text} At these rates, about {rounded(needed)} rows ({times}) would be enough."


def _provenance(audit: Audit) -> Section:
    facts = audit.provenance
    rows = [[name, str(value)] for name, value in facts.items() if value is not None]
    grids = [Grid("Where this page comes from", ["fact", "value"], rows)]
    for name, outcome in audit.outcomes.items():
        lines = [
            [v["value"], f"{v['rows']:,}", "favourable" if v["favourable"] else "other"]
            for v in outcome["values"]
        ]
        caption = f"What each value of {outcome['column']} counts as ({name})"
        more = len(lines) - _MOST_VALUES
        lines = [*lines[:_MOST_VALUES], [f"{more} more values", "", ""]] if more > 0 else lines
        grids.append(Grid(caption, ["value", "rows", "counts as"], lines))
    return Section("Provenance", [], [], grids)
