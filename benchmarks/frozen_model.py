"""A frozen model made fair with 5,000 new rows, against boosted trees trained under the constraint.

    python -m benchmarks.frozen_model --tasks adult --seeds 0

Of the training rows, 5,000 are kept for the constraint (the same fractions of each label in each
group). Trees are fitted to the others without a constraint and frozen; what is learnt on top of
them, the model of the groups included, uses the 5,000 rows only. The full path fits trees of the
label and of the groups out of fold on all training rows. Both are measured on the test rows.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import train_test_split

from benchmarks import frontier, results
from benchmarks.any_classifier import NOTIONS, TASKS, Split, load, quality, trees
from fairconstrained import RateConstrainedClassifier

NEW_ROWS = 5_000


def unconstrained(split: Split, notion: str, slack: float, seed: int) -> Any:
    """Trees as they are."""
    return trees().fit(split.tables[0], split.y[0])


def full(split: Split, notion: str, slack: float, seed: int) -> Any:
    """Trees for the label and the groups, fitted out of fold on all training rows."""
    model = RateConstrainedClassifier(notion, slack=slack, model=trees(), random_state=seed)
    return model.fit(split.tables[0], split.y[0], sensitive_features=split.groups[0])


def frozen(split: Split, notion: str, slack: float, seed: int) -> Any:
    """Trees fitted to the other rows, and made fair with the new ones."""
    table, y, group = split.tables[0], split.y[0], split.groups[0]
    old, new = train_test_split(
        np.arange(len(y)),
        test_size=NEW_ROWS,
        stratify=y * (group.max() + 1) + group,
        random_state=seed,
    )
    production = FrozenEstimator(trees().fit(table.iloc[old], y[old]))
    model = RateConstrainedClassifier(notion, slack=slack, model=production, random_state=seed)
    return model.fit(table.iloc[new], y[new], sensitive_features=group[new])


METHODS = {"trees, unconstrained": unconstrained, "full path": full, "frozen": frozen}


def measure(split: Split, notion: str, method: str, slack: float, seed: int) -> dict[str, float]:
    """Error and violation on the test rows, and processor seconds of the fit."""
    start = time.process_time()
    model = METHODS[method](split, notion, slack, seed)
    cpu = time.process_time() - start
    predicted = model.predict(split.tables[1]).astype(float)
    return quality(split.y[1], split.groups[1], predicted, notion, "test") | {"cpu": cpu}


def main() -> None:
    """Write the fits and print the means over the splits."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", nargs="+", default=["adult"], choices=TASKS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--notions", nargs="+", default=NOTIONS[:2], choices=NOTIONS)
    parser.add_argument("--slack", type=float, default=0.05)
    parser.add_argument("--without-group", action="store_true")
    parser.add_argument("--output", type=Path, default=Path("results"))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = []
    for task in options.tasks:
        for seed in options.seeds:
            split = load(task, options.without_group, seed)
            for notion in options.notions:
                for method in METHODS:
                    found = measure(split, notion, method, options.slack, seed)
                    key = {"dataset": task, "notion": notion, "method": method, "seed": seed}
                    rows.append({**key, **found})
    keys = ["dataset", "notion", "method"]
    found = results.save(options.output / "frozen_model.csv", rows)
    means = found.drop(columns="seed").groupby(keys, sort=False).mean().round(4)
    print(frontier.markdown(means.reset_index()))


if __name__ == "__main__":
    main()
