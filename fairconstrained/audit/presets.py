"""Legal rules about rates, by name: each with the question, the text of the law and its limits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fairconstrained.audit.arguments import PRESET_FOUR_FIFTHS, PRESET_NYC_144
from fairconstrained.audit.wording import FOUR_FIFTHS, Question
from fairconstrained.inputs.values import listed
from fairconstrained.metrics.claims import BOUNDS


class Preset(NamedTuple):
    """A rule on rates of favourable decisions, its source and its limits."""

    title: str
    ratio: float | None  # the least that is allowed; None: the law sets no threshold
    attributes: str
    law: str
    limits: Sequence[str]


RULES = {
    PRESET_FOUR_FIFTHS: Preset(
        "The four-fifths rule",
        FOUR_FIFTHS,
        "parallel",
        "Uniform Guidelines on Employee Selection Procedures, 29 CFR 1607.4(D): a selection rate "
        "of any race, sex or ethnic group below four fifths of the highest is generally regarded "
        "by US federal agencies as evidence of adverse impact.",
        (
            "It is a rule of thumb about evidence and no limit that permits anything: smaller "
            "differences may be adverse impact, larger ones may be chance.",
            "It is about selection for employment in the United States, and about each attribute "
            "by itself, not about combinations.",
            "It says nothing about errors, or about whether the selection is job-related.",
        ),
    ),
    PRESET_NYC_144: Preset(
        "New York City Local Law 144",
        None,
        "crossed",
        "Administrative Code of New York City 20-870 ff. and the rules 6 RCNY 5-300 ff.: a bias "
        "audit of an automated employment decision tool states the impact ratios by sex, by race "
        "or ethnicity, and by both: the selection rate of each category divided by the highest, or "
        "of scores the rate above the median of the sample. It also states how many people are in "
        "an unknown category.",
        (
            "The law sets no threshold: neither a yes nor a no follows from these ratios.",
            "It asks for an independent auditor within a year before the tool is used, for public "
            "results and for notices to candidates; a page cannot replace these.",
            "Ratios of few rows are uncertain. An auditor may leave out a category with less than "
            "2 % of the rows, with a reason, its number of applicants and its rate (6 RCNY 5-301 "
            "(d)); this page leaves out none of them for that.",
        ),
    ),
}


def preset_question(preset: str, constraint: Any, slack: Any, confidence: float) -> Question:
    """Return the question of a preset; raise ValueError for a constraint or slack beside it."""
    if preset not in RULES:
        raise ValueError(f"preset must be one of {listed(list(RULES))}; got {preset!r}.")
    if constraint is not None or slack is not None:
        raise ValueError(f"preset={preset!r} is a question: give no constraint and no slack.")
    rule = RULES[preset]
    bound = None if rule.ratio is None else BOUNDS["ratio"](rule.ratio)
    return Question("demographic_parity", bound, rule.ratio, rule.attributes, confidence, preset)


def above_median(scores: Any, name: str = "score") -> pd.Series:
    """Return which scores are above their median, as Local Law 144 counts them."""
    values = np.asarray(scores, dtype=float)
    return pd.Series(values > np.nanmedian(values), name=f"{name} above the median")
