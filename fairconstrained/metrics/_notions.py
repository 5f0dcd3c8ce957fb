"""The rates that each notion compares: small functions of one table of weighted counts.

``counts.table[g, y, k]`` is the weight of the rows of group g with label y and prediction k. A
notion answers, for each group and each event, in how many rows the event happened and in how many
it could have.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fairconstrained.metrics._tables import Counts, Rates

__all__ = [
    "error_rates",
    "false_negatives",
    "false_positives",
    "odds",
    "predictive_values",
    "selections",
    "true_positives",
]


def selections(counts: Counts) -> Rates:
    """P(prediction = k | group), for every target k."""
    predicted = counts.table.sum(axis=1)
    rows = predicted.sum(axis=1, keepdims=True)
    return Rates(predicted[:, counts.targets], rows, [""], counts.groups)


def true_positives(counts: Counts) -> Rates:
    """P(prediction = c | label = c, group), for every target c."""
    c = counts.targets
    rows = counts.table.sum(axis=2)[:, c]
    return Rates(counts.table[:, c, c], rows, _labelled(counts, " with label {!r}"), counts.groups)


def false_negatives(counts: Counts) -> Rates:
    """P(prediction != c | label = c, group), for every target c."""
    return true_positives(counts)._replace(hits=_wrong(counts).sum(axis=2)[:, counts.targets])


def false_positives(counts: Counts) -> Rates:
    """P(prediction = c | label != c, group), for every target c."""
    c = counts.targets
    # A product with zeros and ones: a difference of sums would leave rounding errors in place of 0.
    rows = (counts.table.sum(axis=2) @ _different(counts))[:, c]
    given = _labelled(counts, " with a label other than {!r}")
    return Rates(_wrong(counts).sum(axis=1)[:, c], rows, given, counts.groups)


def odds(counts: Counts) -> Rates:
    """P(prediction = k | label = y, group), for every y and every target k."""
    hits = counts.table[:, :, counts.targets].reshape(len(counts.groups), -1)
    rows = counts.table.sum(axis=2).repeat(len(counts.targets), axis=1)
    given = [f" with label {label!r}" for label in counts.classes for _ in counts.targets]
    return Rates(hits, rows, given, counts.groups)


def predictive_values(counts: Counts) -> Rates:
    """P(label = c | prediction = k, group), for every k and every target c."""
    hits = counts.table[:, counts.targets].swapaxes(1, 2).reshape(len(counts.groups), -1)
    rows = counts.table.sum(axis=1).repeat(len(counts.targets), axis=1)
    given = [f" with prediction {k!r}" for k in counts.classes for _ in counts.targets]
    return Rates(hits, rows, given, counts.groups)


def error_rates(counts: Counts) -> Rates:
    """P(prediction != label | group)."""
    hits = _wrong(counts).sum(axis=(1, 2))[:, None]
    return Rates(hits, counts.table.sum(axis=(1, 2))[:, None], [""], counts.groups)


def _different(counts: Counts) -> NDArray[np.float64]:
    return 1.0 - np.eye(len(counts.classes))


def _wrong(counts: Counts) -> NDArray[np.float64]:
    return counts.table * _different(counts)


def _labelled(counts: Counts, text: str) -> list[str]:
    return [text.format(counts.classes[c]) for c in counts.targets]
