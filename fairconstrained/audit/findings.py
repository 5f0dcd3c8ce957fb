"""The fields of an audit, without the methods that render it, since pages import them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fairconstrained.audit.measures import Facts

SCHEMA_VERSION = "2"


@dataclass(frozen=True)
class Findings:
    """The fields of :class:`fairconstrained.audit.facts.Audit`, which describes them."""

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
    schema_version: str = SCHEMA_VERSION
