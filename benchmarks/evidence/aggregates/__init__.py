"""Tables of runs: each function takes the runs of a file and gives the cells of one table."""

from benchmarks.evidence.aggregates import (  # noqa: F401
    dp_fermi,
    groups,
    networks,
    new_data,
    partial_parity,
    rankings,
    rates,
    speed,
    trees,
)
from benchmarks.evidence.aggregates.cells import AGGREGATES, Aggregate

__all__ = ["AGGREGATES", "Aggregate"]
