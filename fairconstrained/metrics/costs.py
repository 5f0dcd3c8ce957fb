"""The expected cost of predictions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fairconstrained.metrics.inputs import UNSEEN, Counts
from fairconstrained.metrics.metric import GroupRates, examples, metric_of
from fairconstrained.metrics.rates import read_cap
from fairconstrained.rates import Rate, expected_costs


def read_costs(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    costs: Any = None,
    sensitive_features: Any = None,
    sample_weight: ArrayLike | None = None,
) -> tuple[Counts, list[Rate]]:
    """Count rows; without groups all are one."""
    given = {"sensitive_features": sensitive_features, "sample_weight": sample_weight}
    counts = read_cap(y_true, y_pred, **given).counts
    if counts.classes[-1] == UNSEEN and counts.candidates == [0]:  # the negative label is unseen
        counts = counts._replace(table=counts.table[:, ::-1, ::-1], classes=counts.classes[::-1])
    return counts, expected_costs(costs, len(counts.classes))


@metric_of(read_costs)
def expected_cost(asked: tuple[Counts, list[Rate]]) -> float:
    r"""Mean cost of predictions, overall or in the worst group.

    .. math:: \max_g \; E[c(y, \hat y) \mid g]

    Without `sensitive_features` all rows are one group. Costs of 1 for each error, the default,
    give the error rate, "balanced" ones 1 less the balanced accuracy.

    Returns
    -------
    float
        nan where a group has no weight, or, balanced, no rows with some label.

    Examples
    --------
    >>> from fairconstrained.metrics import expected_cost
    >>> y_true, y_pred = [0, 0, 0, 1], [0, 0, 1, 0]
    >>> expected_cost(y_true, y_pred, costs=[[0, 1], [5, 0]])  # (1 + 5) / 4
    1.5
    >>> expected_cost(y_true, y_pred), round(expected_cost(y_true, y_pred, costs="balanced"), 3)
    (0.5, 0.667)
    """
    counts, rates = asked
    hits, rows = (
        np.stack([(counts.table * table).sum(axis=(1, 2)) for table in tables], axis=1)
        for tables in ([rate.hits for rate in rates], [rate.possible for rate in rates])
    )
    given = [f" with label {label!r}" if len(rates) > 1 else "" for label in counts.classes]
    means = GroupRates(hits, rows, given[: len(rates)], counts.groups).values()
    return float(means.mean(axis=1).max())


__test__ = examples(globals())
