"""What holds for new rows, and how many rows the wished bound needs."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
from scipy.stats import norm

from fairconstrained.arrays import Array
from fairconstrained.audit.measures import quiet
from fairconstrained.audit.sample import Grouping, Sample
from fairconstrained.metrics import Certificate, certify
from fairconstrained.metrics.bounds import difference_p_value
from fairconstrained.rates import PARITIES

_MOST = 1e6  # times these rows: more is no advice


def certificate(
    sample: Sample,
    grouping: Grouping,
    rows: Array,
    *,
    constraint: Any,
    slack: float,
    confidence: float,
) -> Certificate:
    """Certify the constraint from the rows of groups that are compared."""
    label, name = sample.label, sample.outcomes["y_pred"].name
    if label is None or getattr(constraint, "name", constraint) == "demographic_parity":
        label = sample.decision.astype(float)  # rows without a label count, too
    kept = rows & ~np.isnan(label)
    with quiet():
        return certify(
            y_true=label[kept].astype(int),
            y_pred=sample.decision[kept].astype(int),
            sensitive_features=np.array(grouping.groups, dtype=object)[grouping.codes[kept]],
            constraint=constraint,
            slack=slack,
            confidence=confidence,
            min_group_size=1,
            pos_label=1,
            name=f"groups by {grouping.attribute}",
            label_names={0: f"not {name}", 1: name},
        )


def rows_needed(found: Certificate) -> int | None:
    """About how many rows would certify the slack, if all rates and sizes of groups stay as here.

    None if none would: a difference on these rows is the slack or more, or is not one of rates.

    For each difference d of two rates, the exact test of the certificate is repeated on m times
    the rows; m begins at the normal approximation, in which the bound falls with the root of m.
    """
    if found.constraint not in PARITIES:
        return None
    alpha, most = 1.0 - found.confidence, 0.0
    for first, second in permutations(found.rates, 2):
        if first["event"] != second["event"]:
            continue
        margin = found.slack - (first["rate"] - second["rate"])
        if margin <= 0:
            return None
        hits = np.array([first["hits"], second["hits"]])
        rows = np.array([first["rows"], second["rows"]])

        def enough(m: float, hits: Array = hits, rows: Array = rows) -> bool:
            k, n = np.rint(m * hits).astype(int), np.ceil(m * rows).astype(int)
            pair = (int(min(k[0], n[0])), int(min(k[1], n[1])))
            p = difference_p_value(pair, (int(n[0]), int(n[1])), found.slack, alpha / 50)
            return p <= alpha

        if most and enough(most):
            continue
        variance = ((hits + 1) / (rows + 2) * (1 - (hits + 1) / (rows + 2)) / rows).sum()
        low, high = most, (norm.isf(alpha) / margin) ** 2 * variance
        while not enough(high):
            low, high = high, 2.0 * high
            if high > _MOST:
                return None
        for _ in range(8):
            middle = 0.5 * (low + high)
            low, high = (low, middle) if enough(middle) else (middle, high)
        most = high
    return int(np.ceil(most * found.n_samples)) if most else None
