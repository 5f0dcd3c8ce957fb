"""Private networks on Adult, whose columns of numbers have ranges that anybody knows.

    python -m benchmarks.private_networks --seeds 0 1 2 3 4 --output results

The default network, the network on standardised columns and the linear model, under demographic
parity by sex at slack .05. Ranges are round numbers of what is common, such as ages of people who
work, and do not come from the table.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks import results
from benchmarks.any_classifier import load, quality
from fairconstrained import RateConstrainedClassifier
from fairconstrained.models import Linear, Network, Specification

SLACK, DELTA = 0.05, 1e-5
RANGES = {
    "age": (15, 80),
    "education-num": (0, 16),
    "capital-gain": (0, 20_000),
    "capital-loss": (0, 3_000),
    "hours-per-week": (0, 80),
}
MODELS: dict[str, Specification] = {
    "linear": Linear(),
    "network": Network(),
    "network, standardised columns": Network(n_bins=None),
}
KEY = ["dataset", "seed", "epsilon", "method"]
MEASURED = ["train_error", "test_error", "train_violation", "test_violation", "cpu"]


def run(path: Path, seed: int, epsilon: float) -> None:
    """All models on one split at one budget, unless the table has them."""
    split = load("adult", False, seed)
    tables = [pd.get_dummies(part, dtype=float) for part in split.tables]
    low, high = np.array([RANGES.get(name, (0, 1)) for name in tables[0]]).T
    for name, model in MODELS.items():
        key = {"dataset": "adult", "seed": seed, "epsilon": epsilon, "method": name}
        if tuple(map(str, key.values())) in results.finished(path, KEY):
            continue
        clf = RateConstrainedClassifier(
            model=model,
            slack=SLACK,
            epsilon=epsilon,
            delta=DELTA,
            feature_range=(low, high),
            random_state=seed,
        )
        begin = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            clf.fit(tables[0], split.y[0], sensitive_features=split.groups[0])
        row: dict[str, Any] = {**key, "cpu": time.process_time() - begin}
        for i, part in enumerate(("train", "test")):
            accepted = np.asarray(clf.predict(tables[i]), dtype=float)
            row |= quality(split.y[i], split.groups[i], accepted, "demographic_parity", part)
        results.append(path, row, [*KEY, *MEASURED], KEY)
        print(*key.values(), {name: round(row[name], 4) for name in MEASURED}, flush=True)


def main() -> None:
    """Run what the table does not have yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--epsilon", nargs="+", type=float, default=[1.0, 9.0])
    parser.add_argument("--output", type=Path, default=Path("results"))
    options = parser.parse_args()
    for seed in options.seeds:
        for epsilon in options.epsilon:
            run(options.output / "private_networks.csv", seed, epsilon)


if __name__ == "__main__":
    main()
