"""Equal losses of groups for a network: the experiment of Kliachkin et al.

Splits of 80 to 20 by group, standardised columns, layers of 64 and 32. A solver has ``METHOD`` and
``OBJECTIVES``, and ``fit(train, *, constraint, slack, seed)``, which is timed and returns
``probability(X) -> (n,)`` of the label 1. Measured are the columns of the paper's Table 3, and the
gap of losses that is bounded; the Wasserstein distance is the square of that of order two.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.utils import Bunch

from benchmarks.objectives.rate_constrained import Rows, timed_fit
from fairconstrained import metrics
from fairconstrained.inputs.groups import encode_groups

PARAMETERS: dict[str, list[Any]] = {"constraint": ["loss_parity"], "slack": [0.005]}
MEASURES = ("Ina", "Ind", "Sp", "Sf", "Wd", "gap")  # as Table 3 calls them
COLUMNS = [f"{part}_{name}" for part in ("train", "test") for name in MEASURES]
COLUMNS += ["cpu_time", "n_rows"]


def prepare(data: Bunch, seed: int) -> tuple[Rows, Rows]:
    """Split into training and test rows with the same fractions of groups."""
    y, groups = np.asarray(data.target), encode_groups(data.sensitive_features).codes
    parts = train_test_split(np.arange(len(y)), test_size=0.2, stratify=groups, random_state=seed)
    scale = StandardScaler().fit(data.data[parts[0]])
    train, test = (Rows(scale.transform(data.data[r]), y[r], groups[r]) for r in parts)
    return train, test


def measure(solver: Any, split: tuple[Rows, Rows], seed: int, **asked: Any) -> dict[str, Any]:
    """Train and test once."""
    probability, row = timed_fit(solver, split[0], seed=seed, **asked)
    for part, rows in zip(("train", "test"), split, strict=True):
        p, by = probability(rows.X), {"sensitive_features": rows.groups}
        label = (p > 0.5).astype(int)
        distance = metrics.wasserstein_distance_between_groups(rows.y, p, order=2.0, **by)
        row |= {
            f"{part}_Ina": float(np.mean(label != rows.y)),
            f"{part}_Ind": metrics.independence_gap(rows.y, label, **by),
            f"{part}_Sp": metrics.separation_gap(rows.y, label, **by),
            f"{part}_Sf": metrics.sufficiency_gap(rows.y, label, **by),
            f"{part}_Wd": distance**2,
            f"{part}_gap": metrics.loss_gap(rows.y, p, **by),
        }
    return {name: row[name] for name in COLUMNS}
