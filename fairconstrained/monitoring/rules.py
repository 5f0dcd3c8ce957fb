"""What is watched: the rates of a criterion, how they are compared, and what is allowed."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fairconstrained.arrays import Array, as_numpy, check_number
from fairconstrained.groups import recoded
from fairconstrained.metrics.claims import Claim, own_bound, read_claim
from fairconstrained.monitoring.betting import Payoffs, of_cap, of_gap, of_ratio
from fairconstrained.rates import CAPS, PARITIES


class Rule(NamedTuple):
    """The rates of a criterion, and the largest violation that is allowed."""

    claim: Claim
    events: list[str]
    hits: Array  # (n_events, 4) zeros and ones, for true label 0 or 1 by prediction 0 or 1
    possible: Array  # (n_events, 4) booleans

    @property
    def payoffs(self) -> Payoffs:
        """Those of bets against the claim."""
        if self.of_cap:
            return of_cap
        return of_gap if self.claim.ratio is None else of_ratio

    @property
    def of_cap(self) -> bool:
        """Whether each rate is compared with the cap, and not with that of another group."""
        return self.claim.notion in CAPS


def read_rule(constraint: Any, slack: Any, pos_label: Any) -> Rule:
    """Check the parameters of a monitor."""
    own = own_bound(constraint)
    most = slack if own is None else own
    claim = read_claim(
        *(constraint, most, pos_label), interval=None, min_group_size=1, known=[*PARITIES, *CAPS]
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
        [rate.event + rate.given for rate in rates],
        np.array([rate.hits.ravel() for rate in rates], dtype=np.int8),
        np.array([rate.possible.ravel() > 0 for rate in rates]),
    )


def label_codes(
    values: Any, name: str, labels: dict[Any, int], positive: Any, missing: bool = False
) -> Array:
    """Return 1 for the positive label, 0 for the other one and -1 for none; `labels` grows."""
    array = np.asarray(as_numpy(values))
    if array.ndim != 1:
        raise ValueError(f"{name} must have one label per row; got shape {array.shape}.")
    codes, seen = pd.factorize(array)
    if not missing and (codes < 0).any():
        raise ValueError(f"{name} has missing values.")
    for value in seen.tolist():
        if value not in labels:
            labels[value] = _code(value, name, labels, positive)
    return recoded(codes, [labels[value] for value in seen.tolist()])


def _code(value: Any, name: str, labels: dict[Any, int], positive: Any) -> int:
    """The code of a label that has not been seen before."""
    if positive is None and value not in (0, 1, -1):
        raise ValueError(
            f"pos_label must say which label is the positive one if labels are not 0 and 1; {name} "
            f"holds {value!r}."
        )
    positive = 1 if positive is None else positive
    code = int(value == positive)
    if code in labels.values():
        other = next(label for label, known in labels.items() if known == code)
        raise ValueError(
            f"{name} must hold two labels, of which {positive!r} is the positive one; got "
            f"{other!r} and {value!r}."
        )
    return code
