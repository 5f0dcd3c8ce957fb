"""The rates that each notion compares: small functions of one table of weighted counts.

``counts.table[g, y, k]`` is the weight of the rows of group g with label y and prediction k. A
notion answers, for each group and each event, in how many rows the event happened and in how many
it could have.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fairconstrained.metrics._tables import Counts, Rates


def selections(counts: Counts) -> Rates:
    """P(prediction = k | group), for every target k."""
    predicted = counts.table.sum(axis=1)
    rows = predicted.sum(axis=1, keepdims=True)
    return Rates(predicted[:, counts.candidates], rows, [""], counts.groups)


def true_positives(counts: Counts) -> Rates:
    """P(prediction = c | label = c, group), for every target c."""
    c = counts.targets
    rows = counts.table.sum(axis=2)[:, c]
    return Rates(counts.table[:, c, c], rows, _named(counts, " with label {!r}"), counts.groups)


def false_negatives(counts: Counts) -> Rates:
    """P(prediction != c | label = c, group), for every target c."""
    return true_positives(counts)._replace(hits=_wrong(counts).sum(axis=2)[:, counts.targets])


def false_positives(counts: Counts) -> Rates:
    """P(prediction = c | label != c, group), for every target c."""
    c = counts.targets
    # A product with zeros and ones: a difference of sums would leave rounding errors in place of 0.
    rows = (counts.table.sum(axis=2) @ _different(counts))[:, c]
    given = _named(counts, " with a label other than {!r}")
    return Rates(_wrong(counts).sum(axis=1)[:, c], rows, given, counts.groups)


def true_negatives(counts: Counts) -> Rates:
    """P(prediction != c | label != c, group), for every target c."""
    other = _different(counts)
    hits = np.einsum("gyk,yc,kc->gc", counts.table, other, other)
    return false_positives(counts)._replace(hits=hits[:, counts.targets])


def precisions(counts: Counts) -> Rates:
    """P(label = c | prediction = c, group), for every target c."""
    rows = counts.table.sum(axis=1)[:, counts.targets]
    given = _named(counts, " with prediction {!r}")
    return true_positives(counts)._replace(rows=rows, given=given)


def f1_scores(counts: Counts) -> Rates:
    """Harmonic mean of precision and true positive rate, for every target c."""
    recall, precision = true_positives(counts), precisions(counts)
    given = _named(counts, " with label or prediction {!r}")
    return Rates(2 * recall.hits, recall.rows + precision.rows, given, counts.groups)


def odds(counts: Counts) -> Rates:
    """P(prediction = k | label = y, group), for every y and every target k."""
    hits = counts.table[:, :, counts.candidates].reshape(len(counts.groups), -1)
    rows = counts.table.sum(axis=2).repeat(len(counts.candidates), axis=1)
    given = [f" with label {label!r}" for label in counts.classes for _ in counts.candidates]
    return Rates(hits, rows, given, counts.groups)


def predictive_values(counts: Counts) -> Rates:
    """P(label = c | prediction = k, group), for every k and every target c."""
    hits = counts.table[:, counts.candidates].swapaxes(1, 2).reshape(len(counts.groups), -1)
    rows = counts.table.sum(axis=1).repeat(len(counts.candidates), axis=1)
    given = [f" with prediction {k!r}" for k in counts.classes for _ in counts.candidates]
    return Rates(hits, rows, given, counts.groups)


def error_rates(counts: Counts) -> Rates:
    """P(prediction != label | group)."""
    hits = _wrong(counts).sum(axis=(1, 2))[:, None]
    return Rates(hits, counts.table.sum(axis=(1, 2))[:, None], [""], counts.groups)


def accuracies(counts: Counts) -> Rates:
    """P(prediction = label | group)."""
    return error_rates(counts)._replace(hits=_right(counts).sum(axis=1, keepdims=True))


def balanced_accuracies(counts: Counts) -> Rates:
    """Mean over all labels y of P(prediction = y | label = y, group)."""
    rows = counts.table.sum(axis=2)
    mean = (_right(counts) / np.where(rows > 0, rows, 1.0)).mean(axis=1, keepdims=True)
    every = (rows > 0).all(axis=1, keepdims=True).astype(float)
    return Rates(mean, every, [" with some label"], counts.groups)


def _different(counts: Counts) -> NDArray[np.float64]:
    return 1.0 - np.eye(len(counts.classes))


def _wrong(counts: Counts) -> NDArray[np.float64]:
    return counts.table * _different(counts)


def _right(counts: Counts) -> NDArray[np.float64]:
    """Weight of the rows of each group and label that are predicted right."""
    return np.asarray(np.einsum("gyy->gy", counts.table))


def _named(counts: Counts, text: str) -> list[str]:
    return [text.format(counts.classes[c]) for c in counts.targets]
