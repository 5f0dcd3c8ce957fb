"""As ``private_rates``, on square pictures: for solvers that look at them as such.

python -m benchmarks.run --objective private_images --datasets stripes
"""

from benchmarks.objectives.private_rates import (
    COLUMNS,
    DELTA,
    PARAMETERS,
    cells,
    measure,
    prepare,
    report,
)

__all__ = ["COLUMNS", "DELTA", "PARAMETERS", "cells", "measure", "prepare", "report"]
