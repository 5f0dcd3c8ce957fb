"""The audit of a file: reads the table, prints the answer, writes the page and the facts."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from fairconstrained.arrays import in_rows
from fairconstrained.audit.facts import audited
from fairconstrained.audit.files import File, Unusable
from fairconstrained.audit.pages import Audit
from fairconstrained.audit.presets import above_median, preset_question
from fairconstrained.audit.sample import Sample, read_sample
from fairconstrained.audit.tables import check_groups, numbers, read_table
from fairconstrained.audit.wording import NOT_KEPT, NOT_PROVED, Question
from fairconstrained.metrics import Weights
from fairconstrained.metrics.claims import BOUNDS


def run(options: argparse.Namespace) -> None:
    """Run the audit; raise `Unusable` for bad input, and SystemExit as `--fail-on` asks."""
    file = _file(options)
    try:
        sample = _sample(file, options)
    except ValueError as error:
        raise Unusable(f"In {file.name}, {error}") from None
    audit = audited(sample, _question(options))
    origin = {"file": file.name, "sha256": file.sha256, "command": options.command}
    audit = replace(audit, left_out=file.notes + audit.left_out)
    print("\n".join([audit.question, audit.answer, *file.notes, *audit.findings]))
    write(replace(audit, provenance={**audit.provenance, **origin}), options.output)
    print(f"Written to {options.output}: audit.html, audit.json.")
    failed = {"not-kept": {NOT_KEPT: 1}, "not-proved": {NOT_KEPT: 1, NOT_PROVED: 3}}
    if code := failed.get(options.fail_on, {}).get(audit.verdict):
        raise SystemExit(code)


def _file(options: argparse.Namespace) -> File:
    """Read the table of the options; raise `Unusable` for too few rows or too many groups."""
    people = [*options.sensitive, *options.control]
    others = [options.decision, options.label, options.before, options.score, options.weights]
    file = read_table(options, [*people, *(name for name in others if name)])
    fewest = 2 * options.min_cell
    if (n_rows := len(file.frame)) < fewest:
        raise Unusable(
            f"{file.name} has {in_rows(n_rows)}. Comparing two groups takes at least "
            f"{fewest}, as rates that rest on fewer than {options.min_cell} are hidden "
            "(--min-cell)."
        )
    check_groups(file.frame[list(dict.fromkeys(people))])
    return file


def _sample(file: File, options: argparse.Namespace) -> Sample:
    named = {"y_pred": options.decision, "y_true": options.label, "before": options.before}
    inputs = {name: None if of is None else file.frame[of] for name, of in named.items()}
    several = {"sensitive_features": options.sensitive, "control_features": options.control}
    inputs |= {n: file.frame[list(dict.fromkeys(of))] if of else None for n, of in several.items()}
    inputs["y_score"] = scores = _numbers(file, options.score)
    if options.decision is None:
        inputs["y_pred"] = above_median(scores, options.score)
    weights = inputs["sample_weight"] = _numbers(file, options.weights)
    if options.most_weight is not None:
        inputs["sample_weight"] = Weights(weights, options.most_weight)
    shown = {"min_cell": options.min_cell, "reference": options.reference or None}
    return read_sample(inputs, options.positive, parameter="--positive", **shown)


def _question(options: argparse.Namespace) -> Question:
    if options.preset is not None:
        return preset_question(options.preset, None, None, options.confidence)
    slack = options.slack if options.ratio is None else BOUNDS["ratio"](options.ratio)
    attributes = "parallel" if options.parallel else "crossed"
    return Question(options.criterion, slack, options.ratio, attributes, options.confidence)


def write(audit: Audit, folder: Path) -> None:
    """Write the page and the facts to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    facts = json.dumps(audit.to_dict(), indent=1, allow_nan=False)
    (folder / "audit.json").write_text(facts + "\n", "utf-8")
    (folder / "audit.html").write_text(audit.to_html(), "utf-8")


def _numbers(file: File, name: str | None) -> Any:
    """Return the named column as numbers, or None without a name."""
    if name is None:
        return None
    column = file.frame[name]
    missing = int(column.isna().sum())
    if not pd.api.types.is_numeric_dtype(column):
        converted = numbers(column, file.decimal)
        if converted is None and missing < len(column):
            raise ValueError(f"{name} must hold numbers; got {column.dropna().iloc[0]!r}.")
        column = converted
    if missing:
        raise ValueError(f"{name} has {missing} missing values.")
    return column
