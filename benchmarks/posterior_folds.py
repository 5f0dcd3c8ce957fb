"""How many folds posteriors need, by inner validation: no test row is read.

    python -m benchmarks.posterior_folds --tasks compas bank --output results

Three quarters of the training rows of each split fit, one quarter judges: error and violation of
predicted labels, log loss of the probabilities of the constrained model and of the label's
posterior, and processor seconds of the base fits and of the constrained training.
"""

from __future__ import annotations

import argparse
import time
import warnings
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from benchmarks import frontier, results
from benchmarks.any_classifier import TASKS, Remembered, Split, load, trees
from benchmarks.objectives.rate_constrained import ALPHA, VIOLATIONS
from fairconstrained import RateConstrainedClassifier
from fairconstrained.models import Posteriors

KEY = ["dataset", "seed", "folds", "notion", "slack"]
MEASURED = ["error", "violation", "training_violation", "log_loss", "label_log_loss", "cpu"]
NOTIONS, SLACKS, FOLDS = ["demographic_parity", "equalized_odds"], [0.02, 0.05], [2, 3, 5]


def measured(split: Split, seed: int, folds: int, notion: str, slack: float) -> dict[str, Any]:
    """Fit on most training rows, and measure on the others."""
    X, y, groups = split.tables[0], split.y[0], split.groups[0]
    rows = np.arange(len(y))
    strata = y * (groups.max() + 1) + groups
    fit, held = train_test_split(rows, test_size=0.25, stratify=strata, random_state=100 + seed)
    start = time.process_time() + Remembered.spared
    model = RateConstrainedClassifier(
        notion,
        slack=slack,
        alpha=ALPHA,
        random_state=0,
        model=Posteriors(Remembered(trees()), cv=folds),
    )
    model.fit(X.iloc[fit], y[fit], sensitive_features=groups[fit])
    cpu = time.process_time() + Remembered.spared - start
    predicted = model.predict(X.iloc[held])
    label = model.model_.fitted_.label_model.answer(X.iloc[held])
    given = model.predict_proba(X.iloc[held]).clip(1e-9, 1 - 1e-9)
    return {
        "error": float(np.mean(predicted != y[held])),
        "violation": VIOLATIONS[notion](y[held], predicted, sensitive_features=groups[held]),
        "training_violation": model.violation_,
        "log_loss": log_loss(y[held], given),
        "label_log_loss": log_loss(y[held], label),
        "cpu": cpu,
    }


def report(table: pd.DataFrame) -> str:
    """Means for each table, and differences from the most folds with standard errors."""
    case = ["dataset", "seed", "notion", "slack"]
    whole = table.groupby(case).filter(lambda runs: len(runs) == len(FOLDS))
    means = whole.groupby(["dataset", "folds"])[MEASURED].mean().round(4).reset_index()
    wide = whole.pivot_table(index=case, columns="folds", values=MEASURED)
    rows = []
    for name, folds in product(MEASURED[:-1], FOLDS[:-1]):
        of = (wide[name][folds] - wide[name][FOLDS[-1]]).groupby(["dataset", "seed"]).mean()
        error = of.std() / np.sqrt(len(of))
        rows.append(
            {"folds": f"{folds} instead of {FOLDS[-1]}", "measure": name, "splits": len(of)}
            | {"difference": f"{of.mean():+.4f}", "standard error": f"{error:.4f}"}
        )
    return "\n\n".join((frontier.markdown(means), frontier.markdown(pd.DataFrame(rows))))


def main() -> None:
    """Run what the table lacks, and report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("results"))
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=TASKS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    options = parser.parse_args()
    path = options.output / "posterior_folds.csv"
    done = results.finished(path, KEY)
    for seed, task in product(options.seeds, options.tasks):
        split = load(task, False, seed)
        for folds in FOLDS:
            Remembered.fits.clear()
            for notion, slack in product(NOTIONS, SLACKS):
                key = (task, seed, folds, notion, slack)
                if tuple(map(str, key)) in done:
                    continue
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    row = measured(split, seed, folds, notion, slack)
                row |= dict(zip(KEY, key, strict=True))
                results.append(path, row, [*KEY, *MEASURED], KEY)
    print(report(results.table(path, KEY, MEASURED)))


if __name__ == "__main__":
    main()
