"""Compare the costs of a whole curve of slacks, and of a search over criteria, with one point.

    python -m benchmarks.curve --rows 4000

Fits of the wrapped trees, and seconds of the processor, on Adult by sex with three folds; then the
training error of linear fits along a curve less the error of fits that begin anew.
"""

from __future__ import annotations

import argparse
import copy
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from sklearn import config_context
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import GridSearchCV

from benchmarks.any_classifier import Split, load
from fairconstrained import PartialParityClassifier, RateConstrainedClassifier
from fairconstrained.metrics import demographic_parity_scorer
from fairconstrained.model_selection import StratifiedSensitiveKFold, tradeoff_curve
from fairconstrained.sharing import follow

SLACKS = [0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.13, 0.16]
CRITERIA = ["demographic_parity", "equalized_odds", "equal_opportunity"]
SCORING = {"accuracy": "accuracy", "dp": demographic_parity_scorer}


class CountedTrees(HistGradientBoostingClassifier):
    """Boosted trees that count the fits of all their kind."""

    fits = 0

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Count, and fit."""
        CountedTrees.fits += 1
        return super().fit(X, y, sample_weight)


def cost(function: Callable[[], Any]) -> tuple[float, int]:
    """Return processor seconds, and fits of the trees."""
    CountedTrees.fits, start = 0, time.process_time()
    function()
    return time.process_time() - start, CountedTrees.fits


def costs(rows: dict[str, Any]) -> None:
    """Print what curves and searches of trees cost."""
    trees = RateConstrainedClassifier(
        model=CountedTrees(max_iter=30, random_state=0), random_state=0
    )

    def curve(slacks: list[float]) -> Any:
        return tradeoff_curve(trees, **rows, param_name="slack", param_range=slacks, cv=3)

    def search(criteria: list[str], slacks: list[float]) -> Any:
        grid = {"constraint": criteria, "slack": slacks}
        folds = StratifiedSensitiveKFold(3)
        with config_context(enable_metadata_routing=True):
            return GridSearchCV(trees, grid, scoring=SCORING, cv=folds, refit=False).fit(**rows)

    curve([0.05])  # imports, and memory
    one, fits = cost(lambda: curve([0.05]))
    eight, all_fits = cost(lambda: curve(SLACKS))
    print(
        f"curve: 1 slack {one:.2f} s, {fits} fits; 8 slacks {eight:.2f} s, {all_fits} fits: "
        f"{eight / one:.2f} times"
    )
    one, fits = cost(lambda: search(["equalized_odds"], [0.05]))
    twelve, all_fits = cost(lambda: search(CRITERIA, SLACKS[1:8:2]))
    print(f"search: 1 candidate {one:.2f} s, {fits} fits; 12 {twelve:.2f} s, {all_fits} fits")


def warm_starts(split: Split, n_rows: int) -> None:
    """Print errors and seconds of fits along a curve, and of fits that begin anew."""
    linear = {
        "linear, parity": RateConstrainedClassifier(),
        "linear, odds": RateConstrainedClassifier("equalized_odds"),
        "linear, partial parity": PartialParityClassifier(),
    }
    rows = {
        "X": split.matrices[0][:n_rows],
        "y": split.y[0][:n_rows],
        "sensitive_features": split.groups[0][:n_rows],
    }
    for name, estimator in linear.items():
        anew, along = partial(copy.deepcopy, estimator), partial(clone, follow(estimator))
        ends, seconds = np.zeros((2, len(SLACKS))), np.zeros(2)
        for j, slack in enumerate(reversed(SLACKS)):
            for i, begin in enumerate((anew, along)):
                start = time.process_time()
                clf = begin().set_params(slack=slack).fit(**rows)
                seconds[i] += time.process_time() - start
                ends[i, j] = clf.history_["error"][-1]
        more = ends[1] - ends[0]
        print(
            f"{name}: {seconds[0]:.2f} s anew, {seconds[1]:.2f} s along the curve; error "
            f"{more.mean():+.5f} on average, {more.max():+.5f} at worst"
        )


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=4000)
    n_rows = parser.parse_args().rows
    warnings.simplefilter("ignore")
    split = load("adult", without_group=False, seed=0)
    table = split.tables[0][:n_rows], split.y[0][:n_rows], split.groups[0][:n_rows]
    costs(dict(zip(("X", "y", "sensitive_features"), table, strict=True)))
    warm_starts(split, n_rows)


if __name__ == "__main__":
    main()
