"""Certificates for new rows, and the number of rows that would certify the slack."""

from __future__ import annotations

from itertools import permutations

import numpy as np
from scipy.stats import norm

from fairconstrained.arrays import Array, bisected
from fairconstrained.audit.counts import favourable_name, labels_for
from fairconstrained.audit.measures import UNDEFINED
from fairconstrained.audit.sample import Grouping, Sample
from fairconstrained.audit.wording import Question
from fairconstrained.exceptions import ignoring
from fairconstrained.metrics import Certificate, Weights, certify

# Largest multiple of the rows that is reported: larger numbers help nobody.
_MOST = 1e6


def certified(sample: Sample, grouping: Grouping, rows: Array, question: Question) -> Certificate:
    """Certify the criterion from the rows of groups that are compared."""
    label = labels_for(sample, question.criterion)
    name = favourable_name(sample, question.criterion)
    population = None
    if sample.weight is not None and sample.most is not None:
        population = Weights(sample.weight[rows], sample.most)
    with ignoring(*UNDEFINED):
        return certify(
            y_true=label[rows].astype(int),
            y_pred=sample.decision[rows].astype(int),
            sensitive_features=np.array(grouping.groups, dtype=object)[grouping.codes[rows]],
            constraint=question._replace(attributes="crossed"),
            slack=question.slack or 0.0,
            confidence=question.confidence,
            min_group_size=1,
            population=population,
            pos_label=1,
            name=f"groups by {grouping.attribute}",
            label_names={0: f"not {name}", 1: name},
        )


def rows_needed(certificate: Certificate, question: Question) -> float | None:
    """Return the multiple of the rows that would certify the slack at these rates, or None.

    The exact test is repeated on m times the rows, starting from the normal approximation.
    Comparisons that need the most rows come first, so that others take a single test.
    """
    comparison = question.comparison
    alpha, times = 1.0 - certificate.confidence, 0.0
    pairs = []
    for first, second in permutations(certificate.rates, 2):
        if first["event"] != second["event"]:
            continue
        margin = certificate.slack - comparison.of_rates(first["rate"], second["rate"])
        if margin <= 0:
            return None
        hits = np.array([first["hits"], second["hits"]])
        rows = np.array([first["rows"], second["rows"]])
        variance = ((hits + 1) / (rows + 2) * (1 - (hits + 1) / (rows + 2)) / rows).sum()
        pairs.append(((norm.isf(alpha) / margin) ** 2 * variance, hits, rows))
    for normal, hits, rows in sorted(pairs, key=lambda pair: -pair[0]):

        def enough(m: float, hits: Array = hits, rows: Array = rows) -> bool:
            n = np.ceil(m * rows).astype(int)
            k = np.minimum(np.rint(m * hits).astype(int), n)
            return comparison.excludes(
                (int(k[0]), int(k[1])), (int(n[0]), int(n[1])), certificate.slack, alpha
            )

        if times and enough(times):
            continue
        low, high = times, max(times, normal)
        while high <= _MOST and not enough(high):
            low, high = high, 2.0 * high
        if high > _MOST:
            return None
        times = float(bisected(lambda m: not enough(m), low, high, 8)[1])
    return times or None
