"""The audit of a file: what is read, printed and written."""

from __future__ import annotations

import argparse
import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from fairconstrained.audit.facts import Audit, audited
from fairconstrained.audit.sample import read_sample
from fairconstrained.audit.tables import AS_CSV, Unusable, check_groups, read_csv
from fairconstrained.audit.wording import Question
from fairconstrained.metrics import Weights
from fairconstrained.metrics.claims import BOUNDS


def run(options: argparse.Namespace) -> None:
    """Run the audit; `Unusable` says why it cannot."""
    path, sensitive = options.csv, list(dict.fromkeys(options.sensitive))
    control = list(dict.fromkeys(options.control))
    single = [options.label, options.before, options.score, options.weights]
    columns = [options.decision, *sensitive, *control, *(name for name in single if name)]
    frame, notes = read_csv(path, columns)
    if frame.empty:
        raise Unusable(f"{path} has a header and no rows.")
    check_groups(frame[sensitive + control], path)
    try:
        weights = _numbers(frame, options.weights)
        if options.most_weight is not None:
            weights = Weights(weights, options.most_weight)
        sample = read_sample(
            None if options.label is None else frame[options.label],
            frame[options.decision],
            frame[sensitive],
            y_score=_numbers(frame, options.score),
            before=None if options.before is None else frame[options.before],
            sample_weight=weights,
            control_features=frame[control] if control else None,
            pos_label=options.positive,
            parameter="--positive",
        )
    except ValueError as error:
        raise Unusable(f"In {path}, {error}") from None
    slack = options.slack if options.ratio is None else BOUNDS["ratio"](options.ratio)
    attributes = "parallel" if options.parallel else "crossed"
    asked = Question(options.criterion, slack, options.ratio, attributes, options.confidence)
    audit = audited(sample, asked)
    origin = {
        "file": path.name,
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "command": options.command,
    }
    audit = replace(audit, left_out=notes + audit.left_out)
    print("\n".join([audit.question, audit.answer, *audit.findings]))
    write(replace(audit, provenance={**audit.provenance, **origin}), options.output)
    print(f"Written to {options.output}: audit.html, audit.json.")


def write(audit: Audit, folder: Path) -> None:
    """Write the page and the facts."""
    folder.mkdir(parents=True, exist_ok=True)
    facts = json.dumps(audit.to_dict(), indent=1, allow_nan=False)
    (folder / "audit.json").write_text(facts + "\n", "utf-8")
    (folder / "audit.html").write_text(audit.to_html(), "utf-8")


def _numbers(frame: pd.DataFrame, name: str | None) -> Any:
    """Return a column of numbers, or None."""
    if name is None:
        return None
    column = frame[name]
    if not pd.api.types.is_numeric_dtype(column):
        raise ValueError(f"{name} must hold numbers; got {column.dropna().iloc[0]!r}. {AS_CSV}")
    if column.isna().any():
        raise ValueError(f"{name} has {int(column.isna().sum())} missing values.")
    return column
