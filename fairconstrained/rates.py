r"""Rates of predictions: constraints, metrics, intervals and certificates are made of these.

A rate is a ratio of two sums over a table of rows, true label by predicted label,

.. math:: \frac{\sum_{y, k} \mathrm{hits}_{yk}\, n_{yk}}
          {\sum_{y, k} \mathrm{possible}_{yk}\, n_{yk}} .

The functions below give the rates of a criterion, one for each class c that it looks at.
:func:`shrunken_rates` estimates what the rates of small groups are, from those of all groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fairconstrained.arrays import Floats, bisected

_HALVINGS = 60  # of an interval, to rounding


class Rate(NamedTuple):
    """How much each cell counts where the event happened, and where it could have."""

    hits: Floats  # (n_classes true, n_classes predicted)
    possible: Floats
    event: str
    given: str = ""  # the condition, for messages


class ShrunkenRates(NamedTuple):
    """Empirical Bayes estimates of the rates of groups."""

    rate: Floats  # (n_groups,)
    error: Floats  # (n_groups,) standard errors of these
    variance: float  # between the groups' true rates


# The labels in sorted order, and the positions of the classes c.
Rates = Callable[[Sequence[Any], Sequence[int]], Iterator[Rate]]


def selection_rates(classes: Sequence[Any], targets: Sequence[int]) -> Iterator[Rate]:
    """P(prediction = c)."""
    for c, one in _one_hot(classes, targets):
        yield _of_label(np.ones_like(one), one, f"predicted {c!r}")


def rejection_rates(classes: Sequence[Any], targets: Sequence[int]) -> Iterator[Rate]:
    """P(prediction != c)."""
    for c, one in _one_hot(classes, targets):
        yield _of_label(np.ones_like(one), 1.0 - one, f"predicted another than {c!r}")


def base_rates(classes: Sequence[Any], targets: Sequence[int]) -> Iterator[Rate]:
    """P(label = c)."""
    for c, one in _one_hot(classes, targets):
        yield _of_prediction(one, np.ones_like(one), f"labelled {c!r}", "")


def true_positive_rates(classes: Sequence[Any], targets: Sequence[int]) -> Iterator[Rate]:
    """P(prediction = c | label = c)."""
    for c, one in _one_hot(classes, targets):
        yield _of_label(one, one, f"predicted {c!r}", f" with label {c!r}")


def false_negative_rates(classes: Sequence[Any], targets: Sequence[int]) -> Iterator[Rate]:
    """P(prediction != c | label = c)."""
    for c, one in _one_hot(classes, targets):
        yield _of_label(one, 1.0 - one, f"predicted another than {c!r}", f" with label {c!r}")


def false_positive_rates(classes: Sequence[Any], targets: Sequence[int]) -> Iterator[Rate]:
    """P(prediction = c | label != c)."""
    for c, one in _one_hot(classes, targets):
        yield _of_label(1.0 - one, one, f"predicted {c!r}", f" with a label other than {c!r}")


def odds(classes: Sequence[Any], targets: Sequence[int]) -> Iterator[Rate]:
    """P(prediction = c | label = y), for every label y."""
    for y, label in _one_hot(classes, range(len(classes))):
        for c, one in _one_hot(classes, targets):
            yield _of_label(label, one, f"predicted {c!r}", f" with label {y!r}")


def error_rates(classes: Sequence[Any], targets: Sequence[int]) -> Iterator[Rate]:
    """P(prediction != label)."""
    right = np.eye(len(classes))
    yield Rate(1.0 - right, np.ones_like(right), "predicted wrongly")


def precisions(classes: Sequence[Any], targets: Sequence[int]) -> Iterator[Rate]:
    """P(label = c | prediction = c)."""
    for c, one in _one_hot(classes, targets):
        yield _of_prediction(one, one, f"labelled {c!r}", f" with prediction {c!r}")


def false_omission_rates(classes: Sequence[Any], targets: Sequence[int]) -> Iterator[Rate]:
    """P(label = c | prediction != c)."""
    for c, one in _one_hot(classes, targets):
        given = f" with a prediction other than {c!r}"
        yield _of_prediction(one, 1.0 - one, f"labelled {c!r}", given)


def predictive_values(classes: Sequence[Any], targets: Sequence[int]) -> Iterator[Rate]:
    """P(label = c | prediction = k), for every prediction k."""
    for k, prediction in _one_hot(classes, range(len(classes))):
        for c, one in _one_hot(classes, targets):
            yield _of_prediction(one, prediction, f"labelled {c!r}", f" with prediction {k!r}")


def expected_costs(costs: Any, n_classes: int) -> list[Rate]:
    """Mean costs, whose own mean is the expected cost: one, or, balanced, one of each label.

    Costs are numbers, true label by predicted label; None: 1 for each error; or "balanced".
    """
    wrong = 1.0 - np.eye(n_classes)
    if isinstance(costs, str) and costs == "balanced":
        every = np.ones_like(wrong)
        return [Rate(own * wrong, own * every, "") for own in np.eye(n_classes)[:, :, None]]
    try:
        given = wrong if costs is None else np.asarray(costs, dtype=float)
    except (TypeError, ValueError):
        given = np.empty(0)
    if given.shape != wrong.shape or not (np.isfinite(given) & (given >= 0)).all():
        raise ValueError(
            f"costs must be 'balanced', or finite numbers >= 0 of shape {wrong.shape}, true label "
            f"by predicted label, such as {wrong.tolist()}; got {costs!r}."
        )
    return [Rate(given, np.ones_like(wrong), "")]


# The rates of each constraint: equal in all groups, or at most so large.
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


def needs_labels(rates: Rates) -> bool:
    """Whether the true label decides if a row is a hit, or if it could be one."""
    tables = (table for rate in rates([0, 1], [1]) for table in (rate.hits, rate.possible))
    return any(bool(np.ptp(table, axis=0).any()) for table in tables)


def shrunken_rates(rate: ArrayLike, size: ArrayLike) -> ShrunkenRates:
    r"""Shrink the rates of groups towards the rate of all, the more the fewer rows they rest on.

    The measured rate :math:`p_g` of :math:`n_g` rows has the variance :math:`V_g = p (1 - p) / n_g`
    about the true one, where p is the rate of all rows, and true rates vary between the G groups
    with the variance :math:`\tau^2` about m. With :math:`W_g = 1 / (V_g + \tau^2)`,

    .. math::

        \tilde p_g = m + (1 - B_g)(p_g - m), \qquad
        B_g = \frac{G - 3}{G - 1} \cdot \frac{V_g}{V_g + \tau^2}, \qquad
        m = \frac{\sum_g W_g p_g}{\sum_g W_g} .

    :math:`\tau^2 \ge 0` is the estimate of moments with
    :math:`\sum_g W_g (p_g - m)^2 = G - 1`, or zero where the left side is less without any. Then m
    is the rate of all.

    Parameters
    ----------
    rate : array-like of shape (n_groups,)
    size : array-like of shape (n_groups,)
        Positive numbers of rows; of weighted ones their effective number.

    Returns
    -------
    ShrunkenRates
        The estimates ``rate`` and their standard errors ``error``, (n_groups,), and the estimated
        ``variance`` between groups, a number.

    Raises
    ------
    ValueError
        Shapes that differ, values that are not finite, or sizes that are not positive.

    Notes
    -----
    The first factor of :math:`B_g` allows for the errors of :math:`\tau^2` and m. Fewer than four
    groups say too little about the variance between groups: their rates stay as they are. From four
    on, with groups of one size, the mean squared error is below that of measured rates whatever the
    true rates are (James and Stein 1961).

    References
    ----------
    Morris, "Parametric Empirical Bayes Inference: Theory and Applications", JASA 78 (1983),
    Section 5: rates and errors. Paule and Mandel, "Consensus Values and Weighting Factors", J. Res.
    Natl. Bur. Stand. 87 (1982): the variance.

    Examples
    --------
    The fifth rate is that of ten rows:

    >>> from fairconstrained.metrics import shrunken_rates
    >>> sizes = [1000, 1000, 1000, 1000, 10]
    >>> shrunken_rates([0.2, 0.3, 0.5, 0.2, 0.8], sizes).rate.round(2)
    array([0.2 , 0.3 , 0.5 , 0.2 , 0.74])
    """
    rate, size = np.asarray(rate, dtype=float), np.asarray(size, dtype=float)
    valid = rate.ndim == 1 and rate.shape == size.shape and (size > 0).all()
    if not (valid and np.isfinite(rate).all() and np.isfinite(size).all()):
        raise ValueError(
            "rate and size must be finite and of the same length, and sizes must be positive; got "
            f"{rate!r} and {size!r}."
        )
    n_groups, of_all = len(rate), float(rate @ size / size.sum())
    within = of_all * (1.0 - of_all) / size
    if n_groups < 4 or of_all in (0.0, 1.0):
        return ShrunkenRates(rate, np.sqrt(within), 0.0)

    def centred(variance: float) -> tuple[Floats, Floats]:
        precision = 1.0 / (within + variance)
        return precision, rate - rate @ precision / precision.sum()

    def too_small(variance: float) -> bool:
        precision, apart = centred(variance)
        return bool(precision @ apart**2 > n_groups - 1)

    high = float(bisected(too_small, 0.0, float(np.var(rate, ddof=1)), _HALVINGS)[1])
    precision, apart = centred(high)
    factor = (n_groups - 3) / (n_groups - 1) * within * precision
    mean_within = precision @ within / precision.sum()
    doubt = 2.0 / (n_groups - 3) * factor**2 * (mean_within + high) * precision
    squared = within * (1.0 - (1.0 - precision / precision.sum()) * factor) + doubt * apart**2
    return ShrunkenRates(rate - factor * apart, np.sqrt(squared), high)


def _one_hot(classes: Sequence[Any], positions: Sequence[int]) -> Iterator[tuple[Any, Floats]]:
    """Some of the classes, each with its indicator."""
    chosen = map(classes.__getitem__, positions)
    return zip(chosen, np.eye(len(classes))[list(positions)], strict=True)


def _of_label(labels: Floats, predictions: Floats, event: str, given: str = "") -> Rate:
    """P(prediction in one set | label in another), the sets as zeros and ones."""
    possible = np.outer(labels, np.ones_like(labels))
    return Rate(np.outer(labels, predictions), possible, event, given)


def _of_prediction(labels: Floats, predictions: Floats, event: str, given: str) -> Rate:
    """P(label in one set | prediction in another), the sets as zeros and ones."""
    possible = np.outer(np.ones_like(labels), predictions)
    return Rate(np.outer(labels, predictions), possible, event, given)
