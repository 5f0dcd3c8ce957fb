"""Plots of trade-offs, convergence, streams, and rates and scores by group, as in scikit-learn.

Each class holds its data. ``plot`` imports matplotlib, draws the data and stores the artists.
"""

from fairconstrained.display._convergence import ConvergenceDisplay
from fairconstrained.display._groups import (
    GroupReportDisplay,
    GroupScoreDisplay,
    ParityCurveDisplay,
)
from fairconstrained.display._tradeoff import TradeoffDisplay

__all__ = [
    "ConvergenceDisplay",
    "GroupReportDisplay",
    "GroupScoreDisplay",
    "ParityCurveDisplay",
    "TradeoffDisplay",
]
