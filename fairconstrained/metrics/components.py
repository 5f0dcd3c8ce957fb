r"""The components of metrics, draws of their errors, and the nearest ones of another size.

A metric such as largest minus smallest rate is a *summary* of *components* (the rates), whose
errors have a known distribution: rates are functions of a table of counts, drawn from a multinomial
distribution for each group; AUCs and mean losses are nearly normal with the covariance of their
influence functions. Groups keep their sizes; with weights the size is the effective one,
:math:`(\sum w)^2 / \sum w^2`. For every size that the metric could truly have, a summary names the
components nearest to the observed ones at which it has this size (restricted maximum likelihood).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from fairconstrained.arrays import Array, Floats
from fairconstrained.auc import COMPARISONS, auc_influences
from fairconstrained.metrics import auc, probabilities, rates
from fairconstrained.metrics.inputs import Counts
from fairconstrained.rates import Rates

N_DRAWS = 10_000  # of tables of counts, and of errors of AUCs

Generator = np.random.RandomState


class Range:
    """Largest minus smallest over groups, (..., n_groups, n_events); the events' ranges combined.

    `combine` makes one number of the ranges (..., n_events); `np.max` if not given.
    """

    def __init__(self, combine: Callable[[Array], Any] | None = None) -> None:
        self.combine = combine

    def size(self, components: Array) -> Array:
        """Return the combined range of components (..., n_groups, n_events)."""
        ranges = components.max(axis=-2) - components.min(axis=-2)
        return np.asarray(ranges.max(axis=-1) if self.combine is None else self.combine(ranges))

    def nearest(self, components: Array, deviation: Array, size: float) -> Array:
        """Within each event the outermost groups move, together where several are outside."""
        ranges, now = np.ptp(components, axis=0), float(self.size(components))
        if self.combine is not None:
            wanted = ranges * (size / now) if now > 0 else np.full(len(ranges), size)
        elif size <= now:
            wanted = np.minimum(ranges, size)
        else:  # the event with the largest range is enough
            wanted = np.where(np.arange(len(ranges)) == ranges.argmax(), size, ranges)
        precision = 1.0 / np.maximum(deviation, 1e-12) ** 2
        moved = _clipped(components, precision, np.minimum(wanted, ranges))
        # The largest of each column goes up and the smallest down, the less certain one by more.
        order, columns = np.argsort(moved, axis=0, kind="stable"), np.arange(len(ranges))
        bottom, top = (order[0], columns), (order[-1], columns)
        part = precision[bottom] / (precision[bottom] + precision[top])
        extra = np.maximum(wanted - ranges, 0.0)
        moved[bottom] -= extra * (1.0 - part)
        moved[top] += extra * part
        return moved


def _clipped(values: Array, precision: Array, width: Array) -> Array:
    """Nearest columns within bands of these widths: weighted least squares.

    The cuts above and below the band [c, c + width] balance. The balance falls
    with c, and is linear between the points where a value enters or leaves the band.
    """
    points = np.sort(np.concatenate((values, values - width)), axis=0)
    cut = values - np.clip(values, points[:, None], points[:, None] + width)
    balance = (precision * cut).sum(axis=1)  # (n_points, n_columns)
    columns = np.arange(values.shape[1])
    first = np.maximum((balance > 0).sum(axis=0) - 1, 0)
    second = np.minimum(first + 1, len(points) - 1)
    above, below = balance[first, columns], balance[second, columns]
    part = np.where(above > 0, above / np.where(above > 0, above - below, 1.0), 0.0)
    start = points[first, columns] + part * (points[second, columns] - points[first, columns])
    return np.asarray(np.clip(values, start, start + width))


class Largest:
    """Largest absolute value of contrasts, (..., n_contrasts), each of them zero if fair."""

    def size(self, components: Array) -> Array:
        """Return the largest absolute value of components (..., n_contrasts)."""
        return np.asarray(np.abs(components).max(axis=-1))

    def nearest(self, components: Array, deviation: Array, size: float) -> Array:
        """Contrasts beyond the size are cut; below it the largest one grows."""
        moved = np.clip(components, -size, size)
        worst = int(np.abs(components).argmax())
        if size > abs(components[worst]):
            moved[worst] = np.copysign(size, components[worst])
        return np.asarray(moved)


class Extreme:
    """Largest component, (..., n_components): a rate in the worst group."""

    def size(self, components: Array) -> Array:
        """Return the largest of components (..., n_components)."""
        return np.asarray(components.max(axis=-1))

    def nearest(self, components: Array, deviation: Array, size: float) -> Array:
        """Components beyond the size are cut; below it the largest one grows."""
        moved = np.minimum(components, size)
        moved[int(components.argmax())] = size
        return np.asarray(moved)


class Components(NamedTuple):
    """Quantities that a metric summarises: estimates, and draws of their errors."""

    values: Array  # of the shape that the summary takes
    noise: Array  # (n_draws, *shape): estimates minus truth in samples like this one
    summary: Range | Largest | Extreme  # zero for a fair model, larger for larger differences
    metric: Callable[[float], float] = float  # from the size to the metric; monotone
    most: float = np.inf  # the largest size there is


# --- rates of predicted labels --------------------------------------------------------------------


def _rate_draws(counts: Counts, notion: Rates, rng: Generator) -> tuple[Floats, Floats]:
    """Return rates (n_groups, n_events), and the errors of draws, (n_draws, n_groups, n_events).

    Half a row is added to each cell (Jeffreys' prior): a rate of 0 of 50 is not known exactly.
    """
    definitions = list(counts.definitions(notion))
    hits = np.stack([rate.hits.ravel() for rate in definitions], axis=1)
    possible = np.stack([rate.possible.ravel() for rate in definitions], axis=1)
    cells = counts.table.reshape(len(counts.groups), -1)
    total = cells.sum(axis=1, keepdims=True)
    size = np.maximum(np.round(counts.effective), 1).astype(np.int64)
    rows = cells * (size[:, None] / np.where(total > 0, total, 1.0)) + 0.5
    p = rows / rows.sum(axis=1, keepdims=True)
    draws = [rng.multinomial(n, of, size=N_DRAWS) for n, of in zip(size, p, strict=True)]
    drawn = np.stack(draws, axis=1).astype(float)
    with np.errstate(invalid="ignore", divide="ignore"):
        rates, centre, found = (of @ hits / (of @ possible) for of in (cells, p, drawn))
    # A draw without rows of a label has no error.
    return np.asarray(rates), np.nan_to_num(found - centre)


def _difference(asked: rates.Asked, rng: Generator, notion: Rates) -> Components | None:
    if asked.method != "between_groups":
        return None
    mean = partial(np.mean, axis=-1) if asked.agg == "mean" else None
    return Components(*_rate_draws(asked.counts, notion, rng), Range(mean), most=1.0)


def _ratio(asked: rates.Asked, rng: Generator, notion: Rates) -> Components | None:
    """A ratio of rates is the difference of their logarithms, of at least a quarter of a row."""
    if asked.method != "between_groups" or asked.agg != "worst_case":
        return None
    values, noise = _rate_draws(asked.counts, notion, rng)
    least = 0.25 / np.maximum(asked.counts.effective.max(), 1.0)
    values = np.maximum(values, least)
    logs = np.log(values)
    noise = np.log(np.maximum(values + noise, least)) - logs
    return Components(logs, noise, Range(), lambda size: float(np.exp(-size)))


def _cap(asked: rates.Asked, rng: Generator, notion: Rates) -> Components:
    values, noise = _rate_draws(asked.counts, notion, rng)
    return Components(values.ravel(), noise.reshape(len(noise), -1), Extreme(), most=1.0)


def _summed(asked: rates.Asked, rng: Generator, notion: Rates) -> Components:
    def summed(ranges: Array) -> Array:
        blocks = ranges.reshape(*ranges.shape[:-1], len(asked.counts.classes), -1)
        return np.asarray(blocks.max(axis=-1).sum(axis=-1))

    return Components(*_rate_draws(asked.counts, notion, rng), Range(summed))


# --- scores and losses ----------------------------------------------------------------------------


def _normal(influence: Floats, rng: Generator) -> Floats:
    """Draw normal errors (n_draws, m), given the influence of each row on m values."""
    values, vectors = np.linalg.eigh(influence @ influence.T)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    return np.asarray(rng.normal(size=(N_DRAWS, len(root))) @ root.T)


def _auc_gap(ranked: auc.Ranked, rng: Generator, notion: str) -> Components:
    sets = COMPARISONS[notion](len(ranked.groups)).reshape(-1, 4, 2 * len(ranked.groups))
    influence = auc_influences(ranked.scores, ranked.cells.group, ranked.cells.weight, sets)
    return Components(ranked.differences(sets), _normal(influence, rng), Largest(), most=1.0)


def _loss_gap(found: probabilities.RowLosses, rng: Generator) -> Components | None:
    if found.method != "between_groups":
        return None
    member = found.rows.group == np.arange(len(found.rows.labels))[:, None]
    weight = member * found.rows.weight
    weight = weight / weight.sum(axis=1, keepdims=True)
    values = (weight @ found.losses)[:, None]
    noise = _normal(weight * (found.losses - values), rng)
    return Components(values, noise[:, :, None], Range())


# How a metric reads its arguments, and the components of what it has read.
_Made = tuple[Callable[..., Any], Callable[..., Components | None]]
_OF_WAY: Mapping[rates.Way, Callable[..., Components | None]] = {
    rates.DIFFERENCE: _difference,
    rates.RATIO: _ratio,
    rates.SUM: _summed,
    rates.CAP: _cap,
}
COMPONENTS: Mapping[Callable[..., float], _Made] = {
    **{
        metric: (reader, partial(_OF_WAY[way], notion=notion))
        for metric, (reader, notion, way) in rates.DERIVED.items()
    },
    probabilities.loss_gap: (probabilities.read_losses, _loss_gap),
    **{
        metric: (auc.ranked_rows, partial(_auc_gap, notion=notion))
        for metric, notion in auc.NOTIONS.items()
    },
}
