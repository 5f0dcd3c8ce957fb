"""Classification under a rate constraint with differential privacy of the record.

As ``rate_constrained``, with a budget: ``fit`` of a solver also gets ``epsilon`` (delta is 1e-5;
nan for training without privacy).
"""

from __future__ import annotations

from typing import Any

from benchmarks.objectives.rate_constrained import COLUMNS, measure, prepare

__all__ = ["COLUMNS", "PARAMETERS", "measure", "prepare"]

PARAMETERS: dict[str, list[Any]] = {
    "constraint": ["demographic_parity"],
    "epsilon": [0.1, 0.5, 1.0, 2.0, 9.0],
    "slack": [0.02, 0.05, 0.1],
}
