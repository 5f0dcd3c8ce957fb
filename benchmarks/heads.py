"""Compare the costs of a head on posteriors of boosted trees with those of the bare trees.

    python -m benchmarks.heads

Seconds are those of the processor, medians of calls in turns; fits to all rows of Adult are timed
once. A curve of eight slacks stands beside one slack, with trees of 30 rounds, three folds, and the
fits of the trees. Then, printed only: the training error of linear fits along a curve less the
error of fits that begin anew; and products, and shares of functions, in linear fits on all rows.
"""

from __future__ import annotations

import copy
import cProfile
import pstats
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

from benchmarks.any_classifier import Split, load, trees
from benchmarks.command import Job, command, complete
from fairconstrained import DPFermiClassifier, PartialParityClassifier, RateConstrainedClassifier
from fairconstrained.model_selection import tradeoff_curve
from fairconstrained.sharing import follow

TABLES = [("compas", 40_000), ("acs_income_sex", 40_000), ("adult", 4_000), ("adult", 40_000)]
CONSTRAINTS = ["demographic_parity", "equalized_odds"]
SLACKS = [0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.13, 0.16]
COLUMNS = ["fit", "predict", "row", "curve"]
MEASURED = [*COLUMNS, *(f"bare_{name}" for name in COLUMNS), "fits", "fits_of_one"]


class CountedTrees(HistGradientBoostingClassifier):
    """Boosted trees that count the fits of all their kind."""

    fits = 0

    def _validate_parameters(self) -> None:
        CountedTrees.fits += 1
        super()._validate_parameters()


def seconds(*functions: Callable[[], Any], repeats: int = 3) -> list[float]:
    """Return medians of processor seconds; the functions take turns."""
    times = np.zeros((repeats, len(functions)))
    for turn in times:
        for i, function in enumerate(functions):
            start = time.process_time()
            function()
            turn[i] = time.process_time() - start
    return np.median(times, axis=0).tolist()


def some_rows(split: Split, n_rows: int) -> dict[str, Any]:
    """Return the first rows of the table, as a fit takes them."""
    table = split.tables[0], split.y[0], split.groups[0]
    names = "X", "y", "sensitive_features"
    return {name: part[:n_rows] for name, part in zip(names, table, strict=True)}


def head(task: str, constraint: str, n_rows: int) -> dict[str, Any]:
    """Return seconds of a fit, of predictions of a table and of a row, and of a curve on Adult."""
    split = load(task, without_group=False, seed=0)
    rows, new = some_rows(split, n_rows), split.tables[1]
    clf = RateConstrainedClassifier(constraint, model=trees(), random_state=0).fit(**rows)
    bare = trees().fit(rows["X"], rows["y"])
    turns = 1 if (task, n_rows) == TABLES[-1] else 3
    pairs = {
        "fit": seconds(
            lambda: bare.fit(rows["X"], rows["y"]), lambda: clf.fit(**rows), repeats=turns
        ),
        "predict": seconds(lambda: bare.predict(new), lambda: clf.predict(new), repeats=7),
        "row": seconds(lambda: bare.predict(new[:1]), lambda: clf.predict(new[:1]), repeats=41),
    }
    counted = {}
    if task == "adult":
        base = CountedTrees(max_iter=30, random_state=0)
        clf = RateConstrainedClassifier(constraint, model=base, random_state=0)

        def curve(name: str, slacks: list[float]) -> None:
            CountedTrees.fits = 0
            tradeoff_curve(clf, **rows, param_name="slack", param_range=slacks, cv=3)
            counted[name] = CountedTrees.fits

        one, eight = partial(curve, "fits_of_one", SLACKS[3:4]), partial(curve, "fits", SLACKS)
        pairs["curve"] = seconds(one, eight, repeats=turns)
    measured = {f"bare_{name}": pair[0] for name, pair in pairs.items()}
    return measured | {name: pair[1] for name, pair in pairs.items()} | counted


def warm_starts(rows: dict[str, Any]) -> None:
    """Print errors and seconds of fits along a curve, and of fits that begin anew."""
    linear = {
        "linear, parity": RateConstrainedClassifier(),
        "linear, odds": RateConstrainedClassifier("equalized_odds"),
        "linear, partial parity": PartialParityClassifier(),
    }
    for name, estimator in linear.items():
        starts = partial(copy.deepcopy, estimator), partial(clone, follow(estimator))
        ends, total = np.zeros((2, len(SLACKS))), np.zeros(2)
        for j, slack in enumerate(reversed(SLACKS)):
            for i, begin in enumerate(starts):
                clf = begin().set_params(slack=slack)
                total[i] += seconds(partial(clf.fit, **rows), repeats=1)[0]
                ends[i, j] = clf.history_["error"][-1]
        more = ends[1] - ends[0]
        print(
            f"{name}: {total[0]:.2f} s anew, {total[1]:.2f} s along the curve; error "
            f"{more.mean():+.5f} on average, {more.max():+.5f} at worst"
        )


def products(rows: dict[str, Any]) -> None:
    """Print the seconds of linear fits, as multiples of a plain one, and their products."""
    plain = LogisticRegression(max_iter=1000)
    for clf in (RateConstrainedClassifier(), PartialParityClassifier(), DPFermiClassifier()):
        bare, fit = seconds(lambda: plain.fit(rows["X"], rows["y"]), partial(clf.fit, **rows))
        profile = cProfile.Profile(time.process_time)
        profile.runcall(clf.fit, **rows)
        calls: Any = pstats.Stats(profile).stats  # type: ignore[attr-defined]
        n = sum(calls[key][1] for key in calls if key[2] in ("matmul", "t_matmul"))
        print(
            f"{type(clf).__name__}: {fit:.2f} s, {fit / bare:.1f} times a plain fit of "
            f"{plain.n_iter_[0]} iterations; {clf.n_iter_} iterations, {n} products"
        )
        shares = {f"{Path(key[0]).stem}.{key[2]}": calls[key][3] for key in calls}
        for name in sorted(shares, key=shares.__getitem__)[-40:]:
            print(f"  {name} {shares[name] / max(shares.values()):.0%}")


def jobs() -> Iterator[Job]:
    """Yield the key of each run, and the function that measures it."""
    for task, n_rows in TABLES:
        for constraint in CONSTRAINTS:
            yield (task, constraint, n_rows), partial(head, task, constraint, n_rows)


def main() -> None:
    """Run the cells that the table does not have yet, and print the rest."""
    options = command(__doc__).parse_args()
    warnings.simplefilter("ignore")
    complete(options.output / "heads.csv", ["dataset", "constraint", "rows"], MEASURED, jobs())
    split = load("adult", without_group=False, seed=0)
    warm_starts({**some_rows(split, 4_000), "X": split.matrices[0][:4_000]})
    products({**some_rows(split, 40_000), "X": split.matrices[0]})


if __name__ == "__main__":
    main()
