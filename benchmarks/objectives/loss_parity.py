"""Equal losses of groups for a network: the experiment of paper 5.

80/20 splits stratified by group, columns standardised, a network with layers of 64 and 32. A
solver's file gives

* ``METHOD``, the name in tables, and ``OBJECTIVES``, which must list this file's name;
* ``fit(X, y, sensitive_features, *, fairness, slack, seed) -> Fitted``; the call is timed.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.utils import Bunch

from benchmarks import trajectories
from benchmarks.objectives.rate_constrained import Rows
from fairconstrained import LossParityClassifier, metrics
from fairconstrained.groups import encode_groups
from fairconstrained.models import Network
from fairconstrained.solvers import Solver

PARAMETERS: dict[str, list[Any]] = {"fairness": ["loss_parity"], "slack": [0.005]}
MEASURES = ["Ind", "Sp", "Ina", "Sf", "Wd", "gap"]
COLUMNS = [f"{part}_{name}" for part in ("train", "test") for name in MEASURES]
COLUMNS += ["fit_time", "n_rows", "n_groups"]
ARRAYS = ["time", "loss", "violation", "scores", "groups"]
NETWORK = Network((64, 32), n_bins=None)  # that of the paper
TEST_SIZE = 0.2


class Fitted(NamedTuple):
    """What a solver gives back.

    Attributes
    ----------
    probability : callable
        ``probability(X) -> (n,)``, of the label 1.
    history : dict of ndarray
        Arrays of one length, the evaluations during training: ``time``, ``objective`` and
        ``violation``; empty if the method does not say.
    """

    probability: Callable[[Any], NDArray[np.float64]]
    history: dict[str, NDArray[np.float64]] = {}  # noqa: RUF012 (never changed)


def train_network(
    X: Any,
    y: Any,
    sensitive_features: Any,
    *,
    fairness: str,
    slack: float,
    seed: int,
    solver: Solver | None = None,
    alpha: float = 0.0,
    network: Network = NETWORK,
) -> Fitted:
    """What most solvers do: a network, by default that of the paper, trained by `solver`."""
    model = LossParityClassifier(
        fairness, slack=slack, model=network, solver=solver, alpha=alpha, random_state=seed
    )
    model.fit(X, y, sensitive_features=sensitive_features)
    return Fitted(lambda X: model.predict_proba(X)[:, 1], model.history_)


def prepare(data: Bunch, seed: int) -> tuple[Rows, Rows]:
    """Training and test rows with the same shares of every group, standardised."""
    y, groups = np.asarray(data.target), encode_groups(data.sensitive_features).codes
    train, test = train_test_split(
        np.arange(len(y)), test_size=TEST_SIZE, stratify=groups, random_state=seed
    )
    scale = StandardScaler(with_mean=not sparse.issparse(data.data)).fit(data.data[train])
    first, second = (
        Rows(scale.transform(data.data[rows]), y[rows], groups[rows]) for rows in (train, test)
    )
    return first, second


def cells(solver: ModuleType, asked: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """Parameters of the runs of one solver."""
    return [
        {"fairness": fairness, "slack": slack}
        for fairness in asked["fairness"]
        for slack in asked["slack"]
    ]


def measure(
    solver: ModuleType, split: tuple[Rows, Rows], seed: int, *, fairness: str, slack: float
) -> dict[str, Any]:
    """Train and test once."""
    train, test = split
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what they say is in the table: gaps, and nan
        start = time.perf_counter()
        fitted = solver.fit(*train, fairness=fairness, slack=slack, seed=seed)
        fit_time = time.perf_counter() - start
        measured = [quality(rows, fitted.probability(rows.X), fairness) for rows in (train, test)]
    row = {"fit_time": fit_time, "n_rows": len(train.y), "n_groups": len(np.unique(train.groups))}
    for part, values in zip(("train", "test"), measured, strict=True):
        row |= {f"{part}_{name}": value for name, value in values.items()}
    none = np.zeros(0)
    return row | {
        "time": fitted.history.get("time", none),
        "loss": fitted.history.get("objective", none),
        "violation": fitted.history.get("violation", none),
        "scores": fitted.probability(test.X),
        "groups": test.groups,
    }


def quality(rows: Rows, probability: NDArray[np.float64], fairness: str) -> dict[str, float]:
    """Columns of Table 3 of the paper, and the loss gap that is bounded.

    Ina is the error rate; Wd the squared Wasserstein distance of order 2, as in its code but for
    the bins.
    """
    y, predicted = rows.y, (probability > 0.5).astype(int)
    by = {"sensitive_features": rows.groups}
    labels = np.unique(y)
    conditions = {
        "loss_parity": [np.ones(len(y), dtype=bool)],
        "equal_opportunity": [y == label for label in labels[1:]],
        "equalized_odds": [y == label for label in labels],
    }[fairness]
    gaps = [
        metrics.loss_gap(
            y[part], probability[part], sensitive_features=rows.groups[part], labels=labels
        )
        for part in conditions
    ]
    return {
        "Ind": metrics.independence_gap(y, predicted, **by),
        "Sp": metrics.separation_gap(y, predicted, **by),
        "Ina": float(np.mean(predicted != y)),
        "Sf": metrics.sufficiency_gap(y, predicted, **by),
        "Wd": metrics.wasserstein_distance_between_groups(y, probability, order=2.0, **by) ** 2,
        "gap": max(gaps),
    }


def report(results: pd.DataFrame, output: Path) -> str:
    """Table 3 of the paper for each case, and its pictures in `output`."""
    parts = []
    for case, runs in results.groupby(["dataset", "fairness", "slack"]):
        name = "-".join(map(str, case))
        n_runs = runs.groupby("method")["seed"].nunique()
        for part in ("train", "test"):
            parts.append(f"## {name}, {part}, mean ± deviation over {n_runs.max()} runs")
            columns = {measure: f"{part}_{measure}" for measure in MEASURES}
            parts.append(trajectories.mean_table(runs, {**columns, "seconds": "fit_time"}))
        trajectories.pictures(runs, output, name, MEASURES, slack=float(case[2]))
    return "\n\n".join(parts)
