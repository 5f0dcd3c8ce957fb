"""Constraints inside the boosting loop, against constraints on the posteriors of boosted trees.

    python -m benchmarks.boosting_loop --tasks adult --seeds 0 1 2

FairGBM's idea (Cruz et al. 2023): every tree fits the gradient of the Lagrangian, in which a smooth
rate stands for each group's rate, and multipliers ascend between trees. Here: small regression
trees of scikit-learn on the table's columns (words as codes), logistic soft rates of the scores in
place of their cross entropy, and multipliers that answer to the rates of predicted labels on rows
held out from the trees. Compare both on test rows at their own violations.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.tree import DecisionTreeRegressor

from benchmarks import results
from benchmarks.any_classifier import TASKS, load, quality
from fairconstrained.metrics import demographic_parity_difference, equalized_odds_difference

Floats = NDArray[np.float64]
GAPS = {
    "demographic_parity": demographic_parity_difference,
    "equalized_odds": equalized_odds_difference,
}
SHARPNESS = 4.0  # of the soft rates


def codes(table: pd.DataFrame) -> Floats:
    """Words as numbers: trees split them all the same."""
    number = {c: x.cat.codes if x.dtype == "category" else x for c, x in table.items()}
    return pd.DataFrame(number).to_numpy(dtype=float)


class Rates:
    """Differences of the rates of cells, and the derivative of a sum of them by each score."""

    def __init__(self, y: Any, group: Any, notion: str):
        labels = [None] if notion == "demographic_parity" else [0, 1]
        self.pairs = []
        for label in labels:
            kept = np.ones(len(y), dtype=bool) if label is None else y == label
            cells = [(kept & (group == g)) / (kept & (group == g)).sum() for g in np.unique(group)]
            self.pairs += [a - b for i, a in enumerate(cells) for b in cells[:i]]
        self.weights = np.stack(self.pairs)

    def values(self, accepted: Floats) -> Floats:
        """The differences, of signs either way."""
        return np.asarray(self.weights @ accepted)


def boosted(
    X: Floats, y: Any, group: Any, notion: str, slack: float, options: argparse.Namespace, seed: int
) -> Any:
    """Trees on the Lagrangian; give the score function."""
    rng = np.random.RandomState(seed)
    held = rng.rand(len(y)) < 0.2
    fit, ask = ~held, held
    rates, asked = Rates(y[fit], group[fit], notion), Rates(y[ask], group[ask], notion)
    start = float(np.log(y.mean() / (1 - y.mean())))
    score, dual = np.full(len(y), start), np.zeros(len(rates.pairs))
    trees = []
    for _ in range(options.n_trees):
        p = 1 / (1 + np.exp(-score[fit]))
        soft = 1 / (1 + np.exp(-SHARPNESS * score[fit]))
        push = rates.weights.T @ dual * SHARPNESS * soft * (1 - soft) * fit.sum()
        gradient, curvature = p - y[fit] + push, np.maximum(p * (1 - p), 0.02)
        tree = DecisionTreeRegressor(max_leaf_nodes=31, min_samples_leaf=20, random_state=rng)
        tree.fit(X[fit], -gradient / curvature, sample_weight=curvature)
        score += options.rate * tree.predict(X)
        trees.append(tree)
        # The hard gap of rows that no tree has seen moves the multipliers, each with its sign.
        gap = asked.values((score[ask] > 0).astype(float))
        step = options.dual_rate * np.sign(gap) * (np.abs(gap) - slack)
        dual = (
            np.where(dual * (dual + step) < 0, 0.0, dual + step)
            if dual.any()
            else (step * (np.abs(gap) > slack))
        )
    return lambda X: start + options.rate * sum(tree.predict(X) for tree in trees)


def main() -> None:
    """Write and print a row for each task, seed, notion and slack."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", nargs="+", default=["adult"], choices=TASKS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--slacks", nargs="+", type=float, default=[0.02, 0.05, 0.1])
    parser.add_argument("--n-trees", type=int, default=150)
    parser.add_argument("--rate", type=float, default=0.1)
    parser.add_argument("--dual-rate", type=float, default=0.5)
    parser.add_argument("--output", type=Path, default=Path("results"))
    options = parser.parse_args()
    rows = []
    for task in options.tasks:
        for seed in options.seeds:
            split = load(task, False, seed)
            X, X_test = map(codes, split.tables)
            for notion in GAPS:
                for slack in options.slacks:
                    begun = time.process_time()
                    score = boosted(X, split.y[0], split.groups[0], notion, slack, options, seed)
                    spent = time.process_time() - begun
                    accepted = (score(X_test) > 0).astype(float)
                    q = quality(split.y[1], split.groups[1], accepted, notion, "test")
                    key = {"dataset": task, "seed": seed, "notion": notion, "slack": slack}
                    rows.append({**key, **q, "cpu": spent})
                    print(rows[-1], flush=True)
    results.save(options.output / "boosting_loop.csv", rows)


if __name__ == "__main__":
    main()
