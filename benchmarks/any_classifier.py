"""Boosted trees under constraints: ours, the linear program, reductions, thresholds by group.

    python -m benchmarks.any_classifier --tasks adult compas --seeds 0 1 2 --output results
    python -m benchmarks.any_classifier --report --output results

Trees see the table as it comes, linear models its one-hot columns. What is fitted before the
constraint matters is kept in `--cache`, so that the many cells cost the constrained training only;
`base_cpu` tells what the fits took, in processor seconds. Training values of trees are those out of
fold: on rows that a model has seen they say nothing.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import joblib
import numpy as np
import pandas as pd
import torch
from fairlearn import reductions
from fairlearn.postprocessing import ThresholdOptimizer
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import train_test_split

from benchmarks import results
from benchmarks.equal_violation import MEASURED, UNCONSTRAINED, report
from benchmarks.linear_post import NOISE, linear_post
from benchmarks.objectives.rate_constrained import ALPHA, TEST_SIZE, VIOLATIONS, base_model
from fairconstrained import RateConstrainedClassifier
from fairconstrained.constraints import CONSTRAINTS, Space
from fairconstrained.datasets import load_dataset
from fairconstrained.groups import encode_groups
from fairconstrained.models.posteriors import Posteriors, group_tasks

Floats = NDArray[np.float64]

# Data set, sensitive feature, and the columns that tell it, left out with `--without-group`.
TASKS: dict[str, tuple[str, str | None, str]] = {
    "adult": ("adult", None, "sex"),
    "acs_income_sex": ("acs_income_ok", "SEX", "SEX"),
    "acs_income_race": ("acs_income_ok", None, "RAC1P"),
    "compas": ("compas", None, "race"),
    "law_school": ("law_school", None, "race"),
    "bank": ("bank", None, "age"),
    "credit_card": ("credit_card", None, "SEX"),
}
NOTIONS = ["demographic_parity", "equalized_odds", "equal_opportunity", "false_negative_rate"]
KEY = ["dataset", "without_group", "seed", "notion", "method", "slack"]


class Split(NamedTuple):
    """Training and test rows of a task, as a table and one-hot."""

    tables: list[pd.DataFrame]
    matrices: list[Any]
    y: list[NDArray[np.int64]]
    groups: list[NDArray[np.int64]]


class Columns(NamedTuple):
    """Columns of a notion on training rows, out of fold, and on test rows, and what they cost."""

    train: Floats
    test: Floats
    cpu: float


def trees() -> HistGradientBoostingClassifier:
    """Boosted trees with default settings."""
    return HistGradientBoostingClassifier(random_state=0)


def load(task: str, without_group: bool, seed: int) -> Split:
    """Training and test rows, with the same fractions of each label in each group."""
    name, sensitive, told_by = TASKS[task]
    options: dict[str, Any] = {"sensitive": sensitive, "drop": told_by if without_group else ()}
    data = load_dataset(name, **options)
    matrix = load_dataset(name, **options, preprocess="one_hot").data
    words = [column for column in data.data if data.data[column].dtype.kind not in "ifb"]
    table = data.data.astype(dict.fromkeys(words, "category"))
    y, groups = np.asarray(data.target), encode_groups(data.sensitive_features).codes
    parts = train_test_split(
        np.arange(len(y)),
        test_size=TEST_SIZE,
        stratify=y * (groups.max() + 1) + groups,
        random_state=seed,
    )
    return Split(
        [table.iloc[rows] for rows in parts],
        [matrix[rows] for rows in parts],
        [y[rows] for rows in parts],
        [groups[rows] for rows in parts],
    )


class Remembered(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier that is fitted once on the same rows: notions share the fits of the label.

    `spared` adds up the processor seconds of the fits that were taken from before.
    """

    fits: dict[str, Any] = {}  # noqa: RUF012 (of all clones)
    spared = 0.0

    def __init__(self, estimator: Any):
        self.estimator = estimator

    def fit(self, X: pd.DataFrame, y: NDArray[Any]) -> Remembered:
        """Fit, or take what was fitted on these rows and labels."""
        key = joblib.hash((X.index.to_numpy(), list(X), y))
        if key in self.fits:
            Remembered.spared += self.fits[key][1]
        else:
            start = time.process_time()
            self.fits[key] = clone(self.estimator).fit(X, y), time.process_time() - start
        self.model_ = self.fits[key][0]
        self.classes_ = self.model_.classes_
        return self

    def predict_proba(self, X: pd.DataFrame) -> Floats:
        """Of the fitted classifier."""
        return np.asarray(self.model_.predict_proba(X))


def posterior_columns(split: Split, notion: str) -> Columns:
    """Columns of boosted trees for a notion."""
    start = time.process_time() + Remembered.spared
    parts = bound_notion(split, notion, 0.05).part_of_cell.numpy()
    table, fitted = Posteriors(Remembered(trees())).columns(
        split.tables[0], split.y[0], split.groups[0], parts
    )
    test = fitted.columns(split.tables[1])
    return Columns(table, test, time.process_time() + Remembered.spared - start)


def bound_notion(split: Split, notion: str, slack: float) -> Any:
    """The constraint on the labels and groups of a task."""
    space = Space([0, 1], np.unique(split.groups[0]).tolist())
    return CONSTRAINTS[notion]().bind(space, slack)


def kept(cache: Path, task: str, without_group: bool, seed: int) -> dict[str, Columns]:
    """Columns of all notions, from the cache or fitted now."""
    path = cache / f"{task}-{without_group}-{seed}.joblib"
    if not path.exists():
        Remembered.fits.clear()
        split = load(task, without_group, seed)
        columns = {notion: posterior_columns(split, notion) for notion in NOTIONS}
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".part")
        joblib.dump(columns, unfinished)
        unfinished.replace(path)
    found: dict[str, Columns] = joblib.load(path)
    return found


# Acceptance (probability of predicting 1) on training and test rows.
Accepted = tuple[Floats, Floats]


def unconstrained_trees(split: Split, columns: Columns, notion: str, slack: float) -> Accepted:
    """The label's posterior, cut at one half."""
    return tuple((table[:, 1] > 0.5).astype(float) for table in columns[:2])  # type: ignore[return-value]


def constrained_trees(split: Split, columns: Columns, notion: str, slack: float) -> Accepted:
    """Our constrained model on the posteriors of trees."""
    return _ours(split, list(columns[:2]), notion, slack)


def constrained_linear(split: Split, columns: Columns, notion: str, slack: float) -> Accepted:
    """Our linear model on the one-hot columns."""
    return _ours(split, split.matrices, notion, slack)


def unconstrained_linear(split: Split, columns: Columns, notion: str, slack: float) -> Accepted:
    """Logistic regression on the one-hot columns."""
    model = base_model(len(split.y[0])).fit(split.matrices[0], split.y[0])
    return tuple(model.predict(X).astype(float) for X in split.matrices)  # type: ignore[return-value]


def constrained_network(split: Split, columns: Columns, notion: str, slack: float) -> Accepted:
    """Our network on the one-hot columns."""
    return _ours(split, split.matrices, notion, slack, model=(64, 32), random_state=0)


def _ours(split: Split, tables: list[Any], notion: str, slack: float, **options: Any) -> Accepted:
    model = RateConstrainedClassifier(constraint=notion, slack=slack, alpha=ALPHA, **options)
    model.fit(tables[0], split.y[0], sensitive_features=split.groups[0])
    return tuple(model.predict(X).astype(float) for X in tables)  # type: ignore[return-value]


def linear_program(split: Split, columns: Columns, notion: str, slack: float) -> Accepted:
    """LinearPost on the same posteriors."""
    bound = bound_notion(split, notion, slack)
    # Values are affine in the rates of class 1, one for each part: what each part contributes.
    counts, aux = torch.ones(bound.n_parts).double(), torch.zeros(0)
    none = torch.tensor([[1.0, 0.0]]).double().repeat(bound.n_parts, 1)
    at_none = bound.of_moments(none, counts, aux).numpy()
    combined = np.empty((len(at_none), bound.n_parts))
    for part in range(bound.n_parts):
        one = none.clone()
        one[part] = one[part].flip(0)
        combined[:, part] = bound.of_moments(one, counts, aux).numpy() - at_none
    rng = np.random.default_rng(0)
    train, test = columns[:2]
    base_rate, of_parts = train[:, 1].mean(), density_columns(bound.part_of_cell.numpy())

    def densities(table: Floats) -> Floats:
        # A cap asks for one part, the rows of label 1, and for no group.
        return table[:, of_parts] if of_parts else table[:, 1:2] / base_rate

    mu = linear_post(train[:, 1], densities(train), combined, -float(at_none[0]), rng)

    def accepted(table: Floats) -> Floats:
        risk = 1 - 2 * table[:, 1] + NOISE * rng.uniform(size=len(table))
        return (risk < densities(table) @ mu).astype(float)

    return accepted(train), accepted(test)


def density_columns(part_of_cell: NDArray[np.int64]) -> list[int]:
    """Positions of P(part | x) / P(part) among the columns, in the order of the parts."""
    position, found = 2, []
    for task in group_tasks(part_of_cell):
        n = len(task.parts)
        found += list(zip(task.parts, range(position, position + n), strict=True))
        position += 3 * n  # and the products with log odds and probability of the label
    return [place for _, place in sorted(found)]


def threshold_optimizer(split: Split, columns: Columns, notion: str, slack: float) -> Accepted:
    """Thresholds by group on the posterior of the label: it needs the group to predict."""
    names = {"equal_opportunity": "true_positive_rate_parity"}
    model = ThresholdOptimizer(
        estimator=Given(),
        constraints=names.get(notion, notion),
        prefit=True,
        predict_method="predict_proba",
        tol=None if notion == "equalized_odds" else slack,
    )
    train, test = (table[:, 1:2] for table in columns[:2])
    model.fit(train, split.y[0], sensitive_features=split.groups[0])
    return tuple(  # type: ignore[return-value]
        model._pmf_predict(table, sensitive_features=groups)[:, 1].clip(0, 1)
        for table, groups in zip((train, test), split.groups, strict=True)
    )


class Given(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Its only column is the posterior."""

    classes_ = np.array([0, 1])

    def fit(self, X: Floats, y: Any) -> Given:
        """Nothing to learn."""
        return self

    def predict_proba(self, X: Floats) -> Floats:
        """The column."""
        p = np.asarray(X)[:, 0]
        return np.column_stack((1 - p, p))

    def __sklearn_is_fitted__(self) -> bool:
        return True


def exponentiated_gradient(split: Split, columns: Columns, notion: str, slack: float) -> Accepted:
    """Fairlearn's reductions on boosted trees: random predictions, a training an iteration."""
    moments = {
        "demographic_parity": reductions.DemographicParity,
        "equalized_odds": reductions.EqualizedOdds,
        "equal_opportunity": reductions.TruePositiveRateParity,
    }
    # Its bound is on each group against all rows together, the gap between two may be twice that.
    moment = moments[notion](difference_bound=slack)
    model = reductions.ExponentiatedGradient(trees(), moment)
    model.fit(split.tables[0], split.y[0], sensitive_features=split.groups[0])
    return tuple(model._pmf_predict(table)[:, 1].clip(0, 1) for table in split.tables)  # type: ignore[return-value]


METHODS: dict[str, Callable[[Split, Columns, str, float], Accepted]] = {
    "trees, unconstrained": unconstrained_trees,
    "trees, constrained": constrained_trees,
    "linear, unconstrained": unconstrained_linear,
    "linear, constrained": constrained_linear,
    "trees, linear program": linear_program,
    "trees, thresholds by group": threshold_optimizer,
    "trees, reductions": exponentiated_gradient,
    "network, constrained": constrained_network,
}
SLOW = {"trees, reductions", "network, constrained"}
NO_CAPS = {"trees, thresholds by group", "trees, reductions"}
ON_TREES = {method for method in METHODS if method.startswith("trees")}


def slacks(method: str, notion: str, asked: list[float]) -> list[float]:
    """The slacks to run for a notion."""
    if method in UNCONSTRAINED:
        return [np.nan]
    if notion == "false_negative_rate" and method in NO_CAPS:
        return []
    if (method, notion) == ("trees, thresholds by group", "equalized_odds"):
        return [0.0]
    return asked


def measure(
    split: Split, columns: Columns, notion: str, method: str, slack: float
) -> dict[str, float]:
    """Train one method, and measure it on training and test rows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wall, cpu = time.perf_counter(), time.process_time()
        try:
            accepted = METHODS[method](split, columns, notion, slack)
        except RuntimeError:  # of HiGHS, which does not solve every program
            accepted = tuple(np.full(len(y), np.nan) for y in split.y)  # type: ignore[assignment]
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    row = {"wall": wall, "cpu": cpu, "base_cpu": columns.cpu if method in ON_TREES else 0.0}
    for i, part in enumerate(("train", "test")):
        row |= quality(split.y[i], split.groups[i], accepted[i], notion, part)
    return row


def quality(y: Any, groups: Any, accepted: Floats, notion: str, part: str) -> dict[str, float]:
    """Expected error, and violation of the expected rates; nan where a method has failed."""
    if np.isnan(accepted).any():
        return {f"{part}_error": np.nan, f"{part}_violation": np.nan}
    weight = np.concatenate((accepted, 1 - accepted))
    predicted = np.repeat([1, 0], len(y))
    violation = VIOLATIONS[notion](
        np.tile(y, 2), predicted, sensitive_features=np.tile(groups, 2), sample_weight=weight
    )
    error = float(np.average(np.tile(y, 2) != predicted, weights=weight))
    return {f"{part}_error": error, f"{part}_violation": violation}


def run(options: argparse.Namespace) -> None:
    """All cells that the table does not have yet."""
    path = options.output / "any_classifier.csv"
    done = results.finished(path, KEY)
    for seed in options.seeds:
        for task in options.tasks:
            columns = kept(options.cache, task, options.without_group, seed)
            split = load(task, options.without_group, seed)
            for notion in options.notions:
                cells = [
                    (method, slack)
                    for method in options.methods
                    for slack in slacks(method, notion, options.slacks)
                ]
                for method, slack in cells:
                    key = (task, options.without_group, seed, notion, method, slack)
                    if tuple(map(str, key)) in done:
                        continue
                    row = measure(split, columns[notion], notion, method, slack)
                    row |= dict(zip(KEY, key, strict=True))
                    results.append(path, row, [*KEY, *MEASURED], KEY)


def main() -> None:
    """Run, or report what has run."""
    parser = argparse.ArgumentParser(description=__doc__)
    path = partial(parser.add_argument, type=Path)
    path("--output", default=Path("results"))
    path("--cache", default=Path("results") / "posteriors")
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=TASKS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--notions", nargs="+", default=NOTIONS, choices=NOTIONS)
    parser.add_argument("--slacks", nargs="+", type=float, default=[0.02, 0.05, 0.1])
    quick = [method for method in METHODS if method not in SLOW]
    parser.add_argument("--methods", nargs="+", default=quick, choices=METHODS)
    parser.add_argument("--without-group", action="store_true")
    parser.add_argument("--report", action="store_true")
    options = parser.parse_args()
    if options.report:
        print(report(results.table(options.output / "any_classifier.csv", KEY, MEASURED)))
    else:
        run(options)


if __name__ == "__main__":
    main()
