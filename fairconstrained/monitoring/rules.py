"""Rules that a monitor watches: the rates of a criterion, and the largest violation allowed."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fairconstrained.arrays import Array, check_number
from fairconstrained.metrics.claims import Claim, constraint_bound, read_claim
from fairconstrained.monitoring.betting import Payoffs, of_cap, of_gap, of_ratio
from fairconstrained.rate_definitions import CAPS, PARITIES


class Rule(NamedTuple):
    """The rates of a criterion, and the largest violation that is allowed."""

    claim: Claim
    events: list[str]
    conditions: list[str]  # of each event
    hits: Array  # (n_events, 4) zeros and ones, for true label 0 or 1 by prediction 0 or 1
    possible: Array  # (n_events, 4) booleans

    @property
    def payoffs(self) -> Payoffs:
        """Return the payoffs of bets against the claim."""
        if self.of_cap:
            return of_cap
        return of_gap if self.claim.ratio is None else of_ratio

    @property
    def of_cap(self) -> bool:
        """Whether each rate is compared with the cap, and not with that of another group."""
        return self.claim.notion in CAPS


def read_rule(constraint: Any, slack: Any, pos_label: Any) -> Rule:
    """Check the parameters of a monitor."""
    bound = constraint_bound(constraint)
    most = slack if bound is None else bound
    claim = read_claim(
        *(constraint, most, pos_label),
        interval=None,
        min_group_size="auto",
        known=[*PARITIES, *CAPS],
    )
    if claim.attributes != "crossed":
        raise ValueError(
            "FairnessMonitor compares crossed groups (attributes='crossed'): watch each column of "
            f"sensitive_features by a monitor of its own; got {constraint!r}."
        )
    check_number("slack", most, "a number >= 0 and < 1", lambda s: s < 1)
    rates = list({**PARITIES, **CAPS}[claim.notion]([0, 1], [1]))
    return Rule(
        claim,
        [rate.event + rate.condition for rate in rates],
        [rate.condition for rate in rates],
        np.array([rate.hits.ravel() for rate in rates], dtype=np.int8),
        np.array([rate.possible.ravel() > 0 for rate in rates]),
    )
