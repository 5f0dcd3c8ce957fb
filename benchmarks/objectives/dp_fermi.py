"""Classification with a penalty on mutual information: curves of error against gap.

As ``rate_constrained``, with a penalty in place of a slack: ``fit`` of a solver gets
``constraint, unit, epsilon, penalty, seed`` (delta is 1e-5; an epsilon of nan for none). The
published curves of DP-FERMI, whose setting is the unit ``sensitive_features``, are in
``benchmarks/published/dp_fermi.csv``.
"""

from __future__ import annotations

from typing import Any

from benchmarks.objectives.rate_constrained import COLUMNS, measure, prepare

__all__ = ["COLUMNS", "PARAMETERS", "measure", "prepare"]

PARAMETERS: dict[str, list[Any]] = {
    "constraint": ["demographic_parity", "equalized_odds"],
    "unit": ["sensitive_features", "record"],
    "epsilon": [0.5, 1.0, 3.0, 9.0],
    "penalty": [0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0],
}
