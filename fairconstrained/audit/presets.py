"""Questions that auditors are asked, by name: each with its law, and what it does not say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fairconstrained.audit.arguments import PRESETS
from fairconstrained.audit.wording import FOUR_FIFTHS, Question
from fairconstrained.inputs.values import listed

_RARE = 0.02  # share of the rows below which the rules of New York allow to leave a category out


class Preset(NamedTuple):
    """A rule: what it asks, where it is written, and what it does not say."""

    title: str
    ratio: float | None
    attributes: str
    law: str
    silent: Sequence[str]


RULES = dict(
    zip(
        PRESETS,
        (
            Preset(
                "The four-fifths rule",
                FOUR_FIFTHS,
                "parallel",
                "Uniform Guidelines on Employee Selection Procedures, 29 CFR 1607.4 D: a selection "
                "rate of any race, sex or ethnic group below four fifths of the highest is "
                "generally regarded by US federal agencies as evidence of adverse impact.",
                (
                    "It is a rule of thumb about evidence and no limit that permits anything: "
                    "smaller differences may be adverse impact, larger ones may be chance.",
                    "It is about selection for employment in the United States, and about each "
                    "attribute by itself, not about combinations.",
                    "It says nothing about errors, or about whether the selection is job-related.",
                ),
            ),
            Preset(
                "New York City Local Law 144",
                None,
                "crossed",
                "Administrative Code of New York City 20-870 ff. and the rules 6 RCNY 5-300 ff.: a "
                "bias audit of an automated employment decision tool states the impact ratios by "
                "sex, by race or ethnicity, and by both: the selection rate of each category "
                "divided by the highest, or of scores the rate above the median of the sample.",
                (
                    "The law sets no threshold: neither a yes nor a no follows from these ratios.",
                    "It asks for an independent auditor, for public results and for notices to "
                    "candidates; a page cannot replace these.",
                    "Ratios of few rows are uncertain. The rules allow to leave out categories "
                    "below 2 % of the rows, and say which; this page shows them.",
                ),
            ),
        ),
        strict=True,
    )
)


def asked_by(preset: str, constraint: Any, slack: Any, confidence: float) -> Question:
    """Return the question of a preset; ValueError if another one is asked as well."""
    if preset not in RULES:
        raise ValueError(f"preset must be one of {listed(list(RULES))}; got {preset!r}.")
    if constraint is not None or slack is not None:
        raise ValueError(f"preset={preset!r} is a question: give no constraint and no slack.")
    rule = RULES[preset]
    slack = None if rule.ratio is None else 1.0 - rule.ratio
    question = Question("demographic_parity", slack, rule.ratio, rule.attributes, confidence)
    return question._replace(preset=preset)


def above_median(scores: Any) -> Any:
    """Return which scores are above their median, as Local Law 144 counts them."""
    values = np.asarray(scores, dtype=float)
    return values > np.nanmedian(values)
