"""The history of a fit: a few numbers of each iteration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fairconstrained.constraints import Stack
from fairconstrained.solvers import Iterate


class Record(NamedTuple):
    """Record of an iterate in the history. Each field is an entry of ``history_``."""

    objective: float
    error: float
    violation: float
    soft_violation: float
    residual: float
    multiplier: float  # the largest


def recorded(stack: Stack, iterate: Iterate) -> Record:
    """Return the record of an iterate, in the units of these constraints."""
    return Record(
        objective=float(iterate.soft[0]),
        error=float(iterate.hard[0]),
        violation=stack.measure(iterate.hard[1:]),
        soft_violation=stack.measure(iterate.soft[1:]),
        residual=iterate.residual,
        multiplier=float(iterate.dual.max()) if len(iterate.dual) else 0.0,
    )


def history(records: Sequence[Sequence[Record]], times: Sequence[Sequence[float]]) -> dict:
    """Join the records of all stages, and their times, which go on from stage to stage."""
    columns = zip(*(record for stage in records for record in stage), strict=True)
    told = {name: np.array(column) for name, column in zip(Record._fields, columns, strict=True)}
    before = np.cumsum([0.0, *(stage[-1] for stage in times)])
    pieces = [start + np.array(stage) for start, stage in zip(before, times, strict=False)]
    return {**told, "time": np.concatenate(pieces)}
