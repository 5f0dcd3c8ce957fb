"""Facts as a page: sections of sentences, tables and pictures, which two templates render."""

from __future__ import annotations

import html as escapes
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jinja2

from fairconstrained.audit.findings import Findings
from fairconstrained.audit.measures import Facts
from fairconstrained.audit.sample import EVERYBODY
from fairconstrained.audit.wording import Question, percent, points

_FOUR_FIFTHS = """A rate below four fifths (80 %) of the largest is what agencies of the United
States take as evidence of adverse impact. It is a rule of thumb: a ratio on either side of it
proves nothing by itself, and says nothing about other laws."""
# Columns of the table of errors: what a reader calls them, and the rate.
_ERRORS = {
    "favourable labels": "base_rate",
    "wrongly refused": "false_negative_rate",
    "wrongly granted": "false_positive_rate",
    "wrong in all": "error",
    "right if granted": "precision",
    "wrong if refused": "false_omission_rate",
}


class Grid(NamedTuple):
    """A table of texts; the first column has the headings of the rows."""

    caption: str
    columns: list[str]
    rows: list[list[str]]


class Mark(NamedTuple):
    """A rate with its interval, in percent."""

    name: str
    value: float
    low: float
    high: float


class Picture(NamedTuple):
    """Rates with their intervals, one below the other."""

    title: str
    text: str
    marks: list[Mark]


class Section(NamedTuple):
    """A part of the page."""

    title: str
    texts: list[str]
    items: Sequence[str] = ()
    grids: Sequence[Grid] = ()
    pictures: Sequence[Picture] = ()


def html(audit: Findings) -> str:
    """Return one page that needs nothing else."""
    return _rendered("audit.html", audit)


def markdown(audit: Findings) -> str:
    """Return the same without pictures."""
    return _rendered("audit.md", audit)


def framed(audit: Findings) -> str:
    """Return the page in a frame, so that its styles stay inside."""
    page = escapes.escape(html(audit))
    style = "width: 100%; height: 40em; border: 1px solid"
    return f'<iframe title="Audit" sandbox style="{style}" srcdoc="{page}"></iframe>'


def _rendered(name: str, audit: Findings) -> str:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("fairconstrained", "audit/templates"),
        autoescape=jinja2.select_autoescape(["html"]),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["cell"] = lambda text: text.replace("<", "&lt;").replace("|", "\\|")
    return environment.get_template(name).render(audit=audit, sections=list(_sections(audit)))


def _sections(audit: Findings) -> Iterator[Section]:
    yield Section("Question and answer", [audit.question, audit.answer], audit.findings)
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


def _by_attribute(facts: Facts) -> dict[str, Facts]:
    """Return the facts of each attribute; those of everybody stand at the end of each."""
    found: dict[str, Facts] = {}
    for fact in facts:
        found.setdefault(fact["attribute"], []).append(fact)
    everybody = found.pop(EVERYBODY, [])
    return {attribute: [*own, *everybody] for attribute, own in found.items()}


def _ends(fact: dict[str, Any], name: str) -> str:
    """Return a rate with its interval."""
    return _between(*(fact[f"{name}{end}"] for end in ("", "_low", "_high")))


def _between(value: float, low: float, high: float) -> str:
    if math.isnan(value):
        return percent(value)
    return f"{percent(value)} ({100 * low:.1f} to {100 * high:.1f})"


def _rates(audit: Findings) -> Section:
    confidence, rate = audit.provenance["confidence"], "selection_rate"
    favourable = audit.outcomes["decision"]["favourable"]
    grids, pictures = [], []
    for attribute, facts in _by_attribute(audit.groups + audit.intersections).items():
        rows = [[f["group"], f"{f['samples']:,}", _ends(f, rate)] for f in facts]
        columns = ["group", "rows", f"{favourable} (interval)"]
        grids.append(Grid(f"Rates of {favourable} by {attribute}", columns, rows))
        named = [f for f in facts if percent(f[rate]) != "not known"]
        ends = [[100 * f[f"{rate}{end}"] for end in ("", "_low", "_high")] for f in named]
        marks = [Mark(f["group"], *three) for f, three in zip(named, ends, strict=True)]
        said = "; ".join(f"{f['group']} {_ends(f, rate)}" for f in named)
        pictures.append(Picture(f"Rates of {favourable} by {attribute}", said, marks))
    text = f"Fractions of the rows with the decision {favourable!r}, each with its "
    text += f"{100 * confidence:g} % interval. Short intervals are of large groups."
    return Section("Rates by group", [text], [], grids, pictures)


def _ratios(audit: Findings) -> Section:
    grids = []
    for fact in (fact for fact in audit.ratios if "groups" in fact):
        rows = [[group, percent(ratio)] for group, ratio in fact["groups"].items()]
        caption = f"Rates by {fact['attribute']}, as fractions of that of {fact['reference']}"
        grids.append(Grid(caption, ["group", "of the largest rate"], rows))
    ratio = {(fact["attribute"], fact["criterion"]): fact for fact in audit.ratios}
    rows = []
    for gap in audit.differences:
        pair = ratio.get((gap["attribute"], gap["criterion"]))
        rows.append(
            [
                f"{gap['criterion'].replace('_', ' ')}, by {gap['attribute']}",
                f"{points(gap['value'])} ({100 * gap['low']:.1f} to {100 * gap['high']:.1f})",
                "" if pair is None else _between(pair["value"], pair["low"], pair["high"]),
            ]
        )
    columns = ["criterion", "largest less smallest rate", "smallest by largest rate"]
    grids.append(Grid("Criteria, with intervals", columns, rows))
    evidence = [
        f"By {fact['attribute']} the smallest rate is "
        f"{_between(fact['value'], fact['low'], fact['high'])} of the largest: "
        f"{'below' if fact['value'] < 0.8 else 'not below'} four fifths on these rows"
        f"{', but the interval reaches across' if fact['low'] < 0.8 <= fact['high'] else ''}."
        for fact in audit.ratios
        if "groups" in fact and percent(fact["value"]) != "not known"
    ]
    return Section("Ratios", [" ".join(_FOUR_FIFTHS.split())], evidence, grids if rows else [])


def _errors(audit: Findings) -> Section:
    grids = [
        Grid(
            f"Errors by {attribute}",
            ["group", "rows with a label", *_ERRORS],
            [
                [f["group"], f"{f['labelled']:,}", *(_ends(f, rate) for rate in _ERRORS.values())]
                for f in facts
            ],
        )
        for attribute, facts in _by_attribute(audit.groups + audit.intersections).items()
    ]
    label, decision = (audit.outcomes[name]["favourable"] for name in ("label", "decision"))
    texts = [
        f"The favourable label is {label!r}. Wrongly refused: of the rows with it, those without "
        f"the decision {decision!r}. Wrongly granted: of the rows with another label, those with "
        "this decision. Right if granted: of the rows with this decision, those with this label."
    ]
    return Section("Errors of each kind", texts, [], grids)


def _calibration(audit: Findings) -> Section:
    columns = ["group", "fifth", "rows", "mean score", "favourable labels (interval)"]
    grids = [
        Grid(
            f"Calibration by {attribute}",
            columns,
            [
                [
                    *(f["group"], str(f["bin"]), f"{f['samples']:,}", f"{f['mean_score']:.3f}"),
                    _ends(f, "observed"),
                ]
                for f in facts
            ],
        )
        for attribute, facts in _by_attribute(audit.calibration).items()
    ]
    aucs = [
        f"{f['group']}: AUC {f['auc']:.3f} ({f['auc_low']:.3f} to {f['auc_high']:.3f})."
        for f in audit.groups
        if not math.isnan(f["auc"])
    ]
    text = (
        "Rows are sorted by their scores into fifths. If scores are probabilities and are "
        "calibrated in a group, the fraction of favourable labels is near the mean score in each "
        "of its lines. The AUC is the chance that a row with a favourable label has a higher score "
        "than one with another."
    )
    return Section("Calibration by group", [text], aucs, grids)


def _changes(audit: Findings) -> Section:
    cells = {"lost it": "lost", "gained it": "gained", "kept it": "kept", "never had it": "never"}
    errors = {"error before": "error_before", "error now": "error_now"}
    errors = errors if "error_now" in audit.changes[0] else {}
    grids = []
    for attribute, facts in _by_attribute(audit.changes).items():
        columns = ["group", "rows", *cells, *errors, *(["change"] if errors else [])]
        rows = []
        for f in facts:
            counts = [f"{f[name]:,} ({percent(f[name] / f['samples'])})" for name in cells.values()]
            of_errors = [percent(f[name]) for name in errors.values()]
            change = [points(f["error_change"])] if errors else []
            rows.append([f["group"], f"{f['samples']:,}", *counts, *of_errors, *change])
        grids.append(Grid(f"Changed decisions by {attribute}", columns, rows))
    total = audit.changes[0]
    text = (
        f"Of {total['samples']:,} rows with both decisions {total['lost']:,} had the favourable "
        f"one before and not now, {total['gained']:,} have it now and not before; the other "
        f"{total['kept'] + total['never']:,} did not change."
    )
    if errors:
        text += f" The error changed by {points(total['error_change'])}."
    return Section("Who changed", [text], [], grids)


def _new_rows(audit: Findings) -> Section:
    asked = Question(**{name: audit.provenance[name] for name in Question._fields})
    items = [_bound(entry, asked) for entry in audit.certificates]
    text = "Bounds that hold for the people from whom these rows were drawn, whatever their rates."
    return Section("What holds for new rows", [text] if items else ["Nothing is proved."], items)


def _bound(entry: dict[str, Any], asked: Question) -> str:
    """Say what a certificate proves, and how many rows would prove what was asked."""
    needed, rows = entry["rows_needed"], entry["rows"]
    said = (
        f"By {entry['attribute']}: {asked.words('a difference', 'a ratio')} of "
        f"{asked.size(entry['estimate'])} on these rows. With {100 * asked.confidence:g} % "
        f"confidence {asked.words('at most', 'at least')} {asked.size(entry['upper'])} on new rows "
        f"(decided by {entry['binding']})"
    )
    if asked.slack is None:
        return f"{said}."
    if entry["kept"]:
        enough = f"About {needed:,} rows with these rates would have been enough."
        kept = f"{said}: {asked.words('within', 'at least')} {asked.size(asked.slack)}."
        return f"{kept} {enough if needed else ''}".rstrip()
    said += f": {asked.size(asked.slack)} {asked.words('are', 'is')} not proved."
    if needed is None:
        return f"{said} More rows would not help if the rates stay."
    return f"{said} If the rates stay, about {needed:,} rows ({needed / rows:.1f} times) would do."


def _provenance(audit: Findings) -> Section:
    facts = audit.provenance
    rows = [[name, str(value)] for name, value in facts.items() if value is not None]
    grids = [Grid("Where this page comes from", ["fact", "value"], rows)]
    for name, outcome in audit.outcomes.items():
        lines = [
            [v["value"], f"{v['rows']:,}", "favourable" if v["favourable"] else "other"]
            for v in outcome["values"]
        ]
        caption = f"What each value of {outcome['column']} counts as ({name})"
        more = len(lines) - 30
        lines = [*lines[:30], [f"{more} more values", "", ""]] if more > 0 else lines
        grids.append(Grid(caption, ["value", "rows", "counts as"], lines))
    return Section("Provenance", [], [], grids)
