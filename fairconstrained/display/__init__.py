"""Pictures of trade-offs and of convergence, in the way of scikit-learn's Display classes.

Each class holds its data; ``plot`` draws them and stores the artists. matplotlib is imported there.
"""

from fairconstrained.display._convergence import ConvergenceDisplay
from fairconstrained.display._tradeoff import TradeoffDisplay

__all__ = ["ConvergenceDisplay", "TradeoffDisplay"]
