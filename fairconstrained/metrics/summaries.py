"""From many estimates to one number, and back to the nearest estimates that give another number.

A metric such as largest minus smallest rate is a *summary* of *components* (the rates). Where
components are close to each other it is biased upwards and has no normal distribution, but that of
its components is known. So intervals ask, for every size that the metric could truly have, what
would be observed. For that a summary names the components nearest to the observed ones at which it
has this size (restricted maximum likelihood, in the variances of the components).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np

from fairconstrained.arrays import Array


class Summary(Protocol):
    """A function of components that is zero for a fair model and grows with differences."""

    def size(self, components: Array) -> Array:
        """Return one number for each of the components (..., *shape), (...)."""

    def nearest(self, components: Array, deviation: Array, size: float) -> Array:
        """Nearest components of the given size, in units of their standard deviations."""


class Components(NamedTuple):
    """Quantities that a metric summarises: estimates, and draws of their errors."""

    values: Array  # of the shape that the summary takes
    noise: Array  # (n_draws, *shape): estimates minus truth in samples like this one
    summary: Summary
    metric: Callable[[float], float] = float  # from the size to the metric; monotone
    most: float = np.inf  # the largest size there is


class Range:
    """Largest minus smallest over groups, (..., n_groups, n_events); the events' ranges combined.

    `combine` makes one number of the ranges (..., n_events); `np.max` if not given.
    """

    def __init__(self, combine: Callable[[Array], Array] | None = None) -> None:
        self.combine = combine

    def size(self, components: Array) -> Array:
        """Return the combined range of components (..., n_groups, n_events)."""
        ranges = components.max(axis=-2) - components.min(axis=-2)
        return np.asarray(ranges.max(axis=-1) if self.combine is None else self.combine(ranges))

    def nearest(self, components: Array, deviation: Array, size: float) -> Array:
        """Within each event the outermost groups move, together where several are outside."""
        ranges = np.ptp(components, axis=0)
        wanted = self._wanted(components, deviation, size)
        precision = 1.0 / np.maximum(deviation, 1e-12) ** 2
        narrowed = _clipped(components, precision, np.minimum(wanted, ranges))
        return _stretched(narrowed, precision, np.maximum(wanted - ranges, 0.0))

    def _wanted(self, components: Array, deviation: Array, size: float) -> Array:
        """Each event's range where the metric has this size."""
        ranges, now = np.ptp(components, axis=0), float(self.size(components))
        if self.combine is not None:
            return np.asarray(ranges * (size / now) if now > 0 else np.full(len(ranges), size))
        if size <= now:
            return np.asarray(np.minimum(ranges, size))
        # The event with the largest range is enough.
        return np.where(np.arange(len(ranges)) == ranges.argmax(), size, ranges)


class CurveRange(Range):
    """The largest range of neighbouring events: of curves, at thresholds.

    Cut off at a size, the ranges of a curve have a plateau, and samples from it exceed the size at
    some threshold or other. Scaled to it, they keep a peak, to which errors have added. Intervals
    from plateaus are too long where the peak is clear, those from peaks too short. So the ranges
    lie between the two, the nearer to the peak the clearer it is. How near was chosen by coverage
    in simulations (``benchmarks/intervals.py``).
    """

    NEAREST = 2 / 3  # to the peak, where it has no error
    UNCLEAR = 5.0  # standard errors: a peak of so many counts as a plateau

    def _wanted(self, components: Array, deviation: Array, size: float) -> Array:
        plateau = super()._wanted(components, deviation, size)
        ranges = np.ptp(components, axis=0)
        event = int(ranges.argmax())
        ends = components[:, event].argmax(), components[:, event].argmin()
        error = self.UNCLEAR * float(np.hypot(*(deviation[g, event] for g in ends)))
        if ranges[event] <= error:
            return plateau
        peak = ranges * (size / ranges[event])
        near = self.NEAREST * (1.0 - (error / ranges[event]) ** 2)
        return np.asarray(near * peak + (1.0 - near) * plateau)


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


class Norm:
    """Euclidean norm, (..., n_components): of a chi-square distance."""

    def size(self, components: Array) -> Array:
        """Return the norm of components (..., n_components)."""
        return np.asarray(np.sqrt(np.square(components).sum(axis=-1)))

    def nearest(self, components: Array, deviation: Array, size: float) -> Array:
        """All components shrink or grow by one factor."""
        now = float(self.size(components))
        direction = (
            components / now if now > 0 else np.full(len(components), len(components) ** -0.5)
        )
        return np.asarray(direction * size)


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


def _stretched(values: Array, precision: Array, extra: Array) -> Array:
    """The largest of each column up and the smallest down, the less certain one by more."""
    order = np.argsort(values, axis=0, kind="stable")
    columns = np.arange(values.shape[1])
    bottom, top = order[0], order[-1]
    weight = precision[bottom, columns], precision[top, columns]
    part = weight[0] / (weight[0] + weight[1])
    moved = values.copy()
    moved[bottom, columns] -= extra * (1.0 - part)
    moved[top, columns] += extra * part
    return np.asarray(moved)
