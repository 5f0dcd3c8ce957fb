"""Ranking under AUC-based fairness with differential privacy of the record.

As ``auc_fair``, with a budget: ``fit`` of a solver also gets ``epsilon`` (delta is 1e-5; nan for
training without privacy). A seed draws the split and the noise.
"""

from __future__ import annotations

from typing import Any

from benchmarks.objectives import auc_fair
from benchmarks.objectives.auc_fair import COLUMNS, prepare
from benchmarks.objectives.private_rates import DELTA, cells, report, with_budget

__all__ = ["COLUMNS", "DELTA", "PARAMETERS", "cells", "measure", "prepare", "report"]

PARAMETERS: dict[str, list[Any]] = {
    "notion": ["group_auc", "inter_group", "intra_group"],
    "epsilon": [0.5, 1.0, 3.0],
    "slack": [0.02, 0.1],
}


measure = with_budget(auc_fair.measure)
