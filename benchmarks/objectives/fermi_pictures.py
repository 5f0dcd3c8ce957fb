"""Pictures of several labels and groups under a penalty on mutual information.

python -m benchmarks.run --objective fermi_pictures --datasets nine_shapes

A solver's file is as for ``dp_fermi``, but ``fit`` gives a function from features to predicted
labels. The report says whether the curve over the penalty is steady, and how many of the labels
are still predicted: a penalty is easily met by a constant.
"""

from __future__ import annotations

import math
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.frontier import markdown
from benchmarks.objectives.rate_constrained import Rows, prepare
from fairconstrained.metrics import (
    demographic_parity_difference,
    exponential_renyi_mutual_information,
)

__all__ = ["COLUMNS", "PARAMETERS", "cells", "measure", "prepare", "report"]

PARAMETERS: dict[str, list[Any]] = {
    "epsilon": [3.0],
    "penalty": [0.0, 0.3, 1.0, 3.0, 10.0],
}
COLUMNS = [
    "test_error",
    "test_violation",
    "test_information",
    "n_labels",
    "least_fraction",
    "fit_time",
]


def cells(solver: ModuleType, asked: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """Parameters of the runs of one solver."""
    return [
        {"epsilon": epsilon, "penalty": penalty}
        for epsilon in solver.epsilons("sensitive_features", asked["epsilon"])
        for penalty in asked["penalty"]
    ]


def measure(
    solver: ModuleType, split: tuple[Rows, Rows], seed: int, *, epsilon: float, penalty: float
) -> dict[str, Any]:
    """Train and test once."""
    train, test = split
    start = time.perf_counter()
    predict = solver.fit(*train, epsilon=epsilon, penalty=penalty, seed=seed)
    fit_time = time.perf_counter() - start
    predicted = predict(test.X)
    counts = np.bincount(predicted, minlength=int(train.y.max()) + 1)
    rows = (test.y, predicted)
    return {
        "test_error": float((predicted != test.y).mean()),
        "test_violation": demographic_parity_difference(*rows, sensitive_features=test.groups),
        "test_information": exponential_renyi_mutual_information(
            *rows, sensitive_features=test.groups
        ),
        "n_labels": int((counts > 0).sum()),
        "least_fraction": float(counts.min() / len(predicted)),
        "fit_time": fit_time,
    }


def report(results: pd.DataFrame, output: Path) -> str:
    """One line for each budget and penalty."""
    names = ["none" if math.isnan(epsilon) else f"{epsilon:g}" for epsilon in results["epsilon"]]
    groups = results.assign(epsilon=names).groupby(["dataset", "method", "epsilon", "penalty"])
    lines = []
    for key, runs in groups:
        named = dict(zip(["dataset", "method", "epsilon", "penalty"], key, strict=True))
        means = {
            name: f"{runs[column].mean():.3f} ± {runs[column].std(ddof=0):.3f}"
            for name, column in (
                ("error", "test_error"),
                ("gap", "test_violation"),
                ("ERMI", "test_information"),
            )
        }
        fewest = {"fewest labels": runs["n_labels"].min(), "runs": len(runs)}
        least = {"least fraction": f"{runs['least_fraction'].min():.3f}"}
        lines.append({**named, **means, **fewest, **least, "s": round(runs["fit_time"].mean(), 1)})
    return "## Test rows, mean ± deviation over splits\n\n" + markdown(pd.DataFrame(lines))
