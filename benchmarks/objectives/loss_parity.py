"""Equal losses of groups for a network: the experiment of paper 5.

80/20 splits stratified by group, columns standardised, a network with layers of 64 and 32. A
solver has ``METHOD``, ``OBJECTIVES`` and ``cells`` as for ``rate_constrained``, and
``fit(train, *, constraint, slack, seed)``, which is timed and returns ``probability(X) -> (n,)`` of
the label 1.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.utils import Bunch

from benchmarks.objectives.rate_constrained import Rows
from fairconstrained import LossParityClassifier, metrics
from fairconstrained.inputs.groups import encode_groups
from fairconstrained.models import Network

PARAMETERS: dict[str, list[Any]] = {"constraint": ["loss_parity"], "slack": [0.005]}
MEASURES = ["Ind", "Sp", "Ina", "Sf", "Wd", "gap"]
COLUMNS = [f"{part}_{name}" for part in ("train", "test") for name in MEASURES]
COLUMNS += ["fit_time", "n_rows", "n_groups"]
NETWORK = Network((64, 32), n_bins=None)  # that of the paper
TEST_SIZE = 0.2


def train_network(
    train: Rows, *, constraint: str, slack: float, seed: int, **options: Any
) -> Callable[[Any], NDArray[np.float64]]:
    """Train a network, by default that of the paper without an l2 penalty."""
    options = {"model": NETWORK, "alpha": 0.0, **options}
    model = LossParityClassifier(constraint, slack=slack, random_state=seed, **options)
    model.fit(train.X, train.y, sensitive_features=train.groups)
    return lambda X: model.predict_proba(X)[:, 1]


def prepare(data: Bunch, seed: int) -> tuple[Rows, Rows]:
    """Split into training and test rows with the same fractions of groups, standardised."""
    y, groups = np.asarray(data.target), encode_groups(data.sensitive_features).codes
    train, test = train_test_split(
        np.arange(len(y)), test_size=TEST_SIZE, stratify=groups, random_state=seed
    )
    scale = StandardScaler(with_mean=not sparse.issparse(data.data)).fit(data.data[train])
    first, second = (
        Rows(scale.transform(data.data[rows]), y[rows], groups[rows]) for rows in (train, test)
    )
    return first, second


def measure(
    solver: Any, split: tuple[Rows, Rows], seed: int, *, constraint: str, slack: float
) -> dict[str, Any]:
    """Train and test once."""
    train, test = split
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the table has the gaps
        start = time.perf_counter()
        probability = solver.fit(train, constraint=constraint, slack=slack, seed=seed)
        fit_time = time.perf_counter() - start
        row = {"fit_time": fit_time, "n_rows": len(train.y)}
        row["n_groups"] = len(np.unique(train.groups))
        for part, rows in (("train", train), ("test", test)):
            values = quality(rows, probability(rows.X))
            row |= {f"{part}_{name}": value for name, value in values.items()}
    return row


def quality(rows: Rows, probability: NDArray[np.float64]) -> dict[str, float]:
    """Return the columns of Table 3 of the paper, and the loss gap that is bounded.

    Ina is the error rate; Wd the squared Wasserstein distance of order 2, as in its code but for
    the bins.
    """
    y, predicted = rows.y, (probability > 0.5).astype(int)
    by = {"sensitive_features": rows.groups}
    return {
        "Ind": metrics.independence_gap(y, predicted, **by),
        "Sp": metrics.separation_gap(y, predicted, **by),
        "Ina": float(np.mean(predicted != y)),
        "Sf": metrics.sufficiency_gap(y, predicted, **by),
        "Wd": metrics.wasserstein_distance_between_groups(y, probability, order=2.0, **by) ** 2,
        "gap": metrics.loss_gap(y, probability, **by),
    }
