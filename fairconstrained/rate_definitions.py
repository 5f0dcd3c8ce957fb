r"""Rates of predictions, which constraints, metrics, intervals and certificates share.

A rate is a ratio of two sums over a table of rows, true label by predicted label,

.. math:: \frac{\sum_{y, k} \mathrm{hits}_{yk}\, n_{yk}}
          {\sum_{y, k} \mathrm{possible}_{yk}\, n_{yk}} .

The functions below give the rates of a criterion, one for each class c that it looks at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fairconstrained.arrays import Floats, numbers_in


class Rate(NamedTuple):
    """Weights of cells in a rate's two sums: where the event happened and where it could have."""

    hits: Floats  # (n_classes true, n_classes predicted)
    possible: Floats
    event: str
    condition: str = ""  # the condition, for messages


# The labels in sorted order, and the positions of the classes c.
Rates = Callable[[Sequence[Any], Sequence[int]], Iterator[Rate]]


def selection_rates(classes: Sequence[Any], targets: Sequence[int]) -> Iterator[Rate]:
    """Yield P(prediction = c)."""
    for c, one in _one_hot(classes, targets):
        yield _label_rate(np.ones_like(one), one, f"predicted {c!r}")


def rejection_rates(classes: Sequence[Any], targets: Sequence[int]) -> Iterator[Rate]:
    """Yield P(prediction != c)."""
    for c, one in _one_hot(classes, targets):
        yield _label_rate(np.ones_like(one), 1.0 - one, f"predicted another than {c!r}")


def base_rates(classes: Sequence[Any], targets: Sequence[int]) -> Iterator[Rate]:
    """Yield P(label = c)."""
    for c, one in _one_hot(classes, targets):
        yield _prediction_rate(one, np.ones_like(one), f"labelled {c!r}", "")


def true_positive_rates(classes: Sequence[Any], targets: Sequence[int]) -> Iterator[Rate]:
    """Yield P(prediction = c | label = c)."""
    for c, one in _one_hot(classes, targets):
        yield _label_rate(one, one, f"predicted {c!r}", f" with label {c!r}")


def false_negative_rates(classes: Sequence[Any], targets: Sequence[int]) -> Iterator[Rate]:
    """Yield P(prediction != c | label = c)."""
    for c, one in _one_hot(classes, targets):
        yield _label_rate(one, 1.0 - one, f"predicted another than {c!r}", f" with label {c!r}")


def false_positive_rates(classes: Sequence[Any], targets: Sequence[int]) -> Iterator[Rate]:
    """Yield P(prediction = c | label != c)."""
    for c, one in _one_hot(classes, targets):
        yield _label_rate(1.0 - one, one, f"predicted {c!r}", f" with a label other than {c!r}")


def odds(classes: Sequence[Any], targets: Sequence[int]) -> Iterator[Rate]:
    """Yield P(prediction = c | label = y), for every label y."""
    for y, label in _one_hot(classes, range(len(classes))):
        for c, one in _one_hot(classes, targets):
            yield _label_rate(label, one, f"predicted {c!r}", f" with label {y!r}")


def error_rates(classes: Sequence[Any], targets: Sequence[int]) -> Iterator[Rate]:
    """Yield P(prediction != label)."""
    right = np.eye(len(classes))
    yield Rate(1.0 - right, np.ones_like(right), "predicted wrongly")


def precisions(classes: Sequence[Any], targets: Sequence[int]) -> Iterator[Rate]:
    """Yield P(label = c | prediction = c)."""
    for c, one in _one_hot(classes, targets):
        yield _prediction_rate(one, one, f"labelled {c!r}", f" with prediction {c!r}")


def false_omission_rates(classes: Sequence[Any], targets: Sequence[int]) -> Iterator[Rate]:
    """Yield P(label = c | prediction != c)."""
    for c, one in _one_hot(classes, targets):
        condition = f" with a prediction other than {c!r}"
        yield _prediction_rate(one, 1.0 - one, f"labelled {c!r}", condition)


def predictive_values(classes: Sequence[Any], targets: Sequence[int]) -> Iterator[Rate]:
    """Yield P(label = c | prediction = k), for every prediction k."""
    for k, prediction in _one_hot(classes, range(len(classes))):
        for c, one in _one_hot(classes, targets):
            yield _prediction_rate(one, prediction, f"labelled {c!r}", f" with prediction {k!r}")


def expected_costs(costs: Any, n_classes: int) -> list[Rate]:
    """Return rates whose mean is the expected cost: a single one, or if balanced one of each label.

    Costs are numbers, true label by predicted label; None: 1 for each error; or "balanced".
    """
    wrong = 1.0 - np.eye(n_classes)
    if isinstance(costs, str) and costs == "balanced":
        every = np.ones_like(wrong)
        return [Rate(one * wrong, one * every, "") for one in np.eye(n_classes)[:, :, None]]
    matrix = wrong if costs is None else numbers_in(costs)
    if matrix.shape != wrong.shape or not (np.isfinite(matrix) & (matrix >= 0)).all():
        raise ValueError(
            f"costs must be 'balanced', or finite numbers >= 0 of shape {wrong.shape}, true label "
            f"by predicted label, such as {wrong.tolist()}; got {costs!r}."
        )
    return [Rate(matrix, np.ones_like(wrong), "")]


# The rates that each constraint holds equal in all groups, or, below, within a cap.
PARITIES: Mapping[str, Rates] = {
    "demographic_parity": selection_rates,
    "equalized_odds": odds,
    "equal_opportunity": true_positive_rates,
    "false_positive_rate_parity": false_positive_rates,
    "error_rate_parity": error_rates,
    "predictive_parity": precisions,
    "false_omission_rate_parity": false_omission_rates,
}
CAPS: Mapping[str, Rates] = {
    "false_negative_rate": false_negative_rates,
    "false_positive_rate": false_positive_rates,
    "rejection_rate": rejection_rates,
}
CRITERIA: Mapping[str, Rates] = {**PARITIES, **CAPS}


def is_symmetric(rates: Rates, by_ratio: bool = False) -> bool:
    """Return whether a comparison does not depend on the choice of the favourable label."""
    if rates in (selection_rates, odds, predictive_values):
        return not by_ratio
    return rates is error_rates


def needs_labels(rates: Rates) -> bool:
    """Return whether true labels decide which rows are hits or could be."""
    tables = (table for rate in rates([0, 1], [1]) for table in (rate.hits, rate.possible))
    return any(bool(np.ptp(table, axis=0).any()) for table in tables)


def _one_hot(classes: Sequence[Any], positions: Sequence[int]) -> Iterator[tuple[Any, Floats]]:
    """Yield the classes at some positions, each with its indicator."""
    chosen = map(classes.__getitem__, positions)
    return zip(chosen, np.eye(len(classes))[list(positions)], strict=True)


def _label_rate(labels: Floats, predictions: Floats, event: str, condition: str = "") -> Rate:
    """Define P(prediction in one set | label in another), with sets as zeros and ones."""
    possible = np.outer(labels, np.ones_like(labels))
    return Rate(np.outer(labels, predictions), possible, event, condition)


def _prediction_rate(labels: Floats, predictions: Floats, event: str, condition: str) -> Rate:
    """Define P(label in one set | prediction in another), with sets as zeros and ones."""
    possible = np.outer(np.ones_like(labels), predictions)
    return Rate(np.outer(labels, predictions), possible, event, condition)
