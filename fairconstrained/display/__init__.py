"""Pictures of trade-offs, convergence and groups' scores, in the way of scikit-learn's Displays.

Each class holds its data; ``plot`` draws them and stores the artists. matplotlib is imported there.
"""

from fairconstrained.display._convergence import ConvergenceDisplay
from fairconstrained.display._groups import GroupScoreDisplay, ParityCurveDisplay
from fairconstrained.display._report import GroupReportDisplay
from fairconstrained.display._tradeoff import TradeoffDisplay

__all__ = [
    "ConvergenceDisplay",
    "GroupReportDisplay",
    "GroupScoreDisplay",
    "ParityCurveDisplay",
    "TradeoffDisplay",
]
