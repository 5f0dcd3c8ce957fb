"""The question of an audit: a criterion, and how large its violation may be."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

from fairconstrained.audit.measures import DIFFERENCES, RATIOS, Facts
from fairconstrained.audit.wording import percent, points
from fairconstrained.metrics.bounds import check_confidence
from fairconstrained.metrics.claims import own_bound, read_claim


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
