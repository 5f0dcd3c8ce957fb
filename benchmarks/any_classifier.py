"""Boosted trees under constraints: ours, linear programs, reductions, thresholds by group.

    python -m benchmarks.any_classifier --tasks adult compas --seeds 0 1 2 --output results

Trees see the table as it comes, linear models its one-hot columns. Slacks and methods share the
posteriors of trees, which are fitted once for a notion, in `base_cpu` seconds of the processor.
Training values of trees are those out of fold: on rows that a model has seen they say nothing.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from fairlearn import reductions
from fairlearn.postprocessing import ThresholdOptimizer
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import train_test_split

from benchmarks.command import Job, command, complete
from benchmarks.linear_post import NOISE, linear_post
from benchmarks.objectives.rate_constrained import ALPHA, TEST_SIZE, base_model, quality
from fairconstrained import RateConstrainedClassifier
from fairconstrained.constraints import CONSTRAINTS, Space
from fairconstrained.datasets import load_dataset
from fairconstrained.inputs.groups import encode_groups
from fairconstrained.models import Linear, SingleFit
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
UNCONSTRAINED = ["trees, unconstrained", "linear, unconstrained"]
MEASURED = [
    *("train_error", "test_error", "train_violation", "test_violation"),
    *("cpu", "base_cpu", "wall"),
]
NEW_ROWS = 5_000  # for a frozen model
N_PREDICTIONS = 1_000  # of a model that predicts at random, for the probability of each row
NOTIONS = ["demographic_parity", "equalized_odds", "equal_opportunity", "false_negative_rate"]
KEY = ["dataset", "without_group", "seed", "constraint", "method", "slack"]


class Split(NamedTuple):
    """Training and test rows of a task, as a table and one-hot."""

    tables: list[pd.DataFrame]
    matrices: list[Any]
    y: list[NDArray[np.int64]]
    groups: list[NDArray[np.int64]]


class Columns(NamedTuple):
    """Columns of a constraint on training rows, out of fold, and on test rows, with their cost."""

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


def posterior_columns(split: Split, constraint: str) -> Columns:
    """Fit boosted trees to the label and the groups, as far as a notion needs them."""
    start = time.process_time()
    parts = bound_constraint(split, constraint, 0.05).partition.part_of_cell.numpy()
    table, fitted = Posteriors(trees()).columns(split.tables[0], split.y[0], split.groups[0], parts)
    test = fitted.columns(split.tables[1])
    return Columns(table, test, time.process_time() - start)


def bound_constraint(split: Split, constraint: str, slack: float) -> Any:
    """Return the constraint on the labels and groups of a task."""
    space = Space([0, 1], np.unique(split.groups[0]).tolist())
    return CONSTRAINTS[constraint]().bind(space, slack)


class Case(NamedTuple):
    """A problem as methods get it."""

    split: Split
    columns: Columns
    constraint: str
    slack: float


# Acceptance (probability of predicting 1) on training and test rows.
Accepted = tuple[Floats, Floats]


def unconstrained_trees(case: Case) -> Accepted:
    """Predict by the label's posterior, cut at one half."""
    return tuple((table[:, 1] > 0.5).astype(float) for table in case.columns[:2])


def unconstrained_linear(case: Case) -> Accepted:
    """Logistic regression on the one-hot columns."""
    model = base_model(len(case.split.y[0])).fit(case.split.matrices[0], case.split.y[0])
    return tuple(model.predict(X).astype(float) for X in case.split.matrices)


def frozen_trees(case: Case) -> Accepted:
    """Trees without a constraint, frozen, and made fair with new rows.

    The model of the groups uses the new rows only as well.
    """
    table, y, groups = case.split.tables[0], case.split.y[0], case.split.groups[0]
    old, new = train_test_split(
        np.arange(len(y)),
        test_size=NEW_ROWS,
        stratify=y * (groups.max() + 1) + groups,
        random_state=0,
    )
    production = FrozenEstimator(trees().fit(table.iloc[old], y[old]))
    given = {"slack": case.slack, "model": production, "random_state": 0}
    model = RateConstrainedClassifier(case.constraint, **given)
    model.fit(table.iloc[new], y[new], sensitive_features=groups[new])
    return tuple(model.predict(X).astype(float) for X in case.split.tables)


class Head(Linear):
    """A linear model on columns of posteriors, as `Posteriors` is."""

    log_odds = Posteriors.log_odds


def constrained(case: Case, tables: list[Any], model: Linear | SingleFit) -> Accepted:
    """Train our linear model on columns, or a single classifier on tables as they come."""
    given = {"slack": case.slack, "alpha": ALPHA, "random_state": 0}
    clf = RateConstrainedClassifier(case.constraint, model=model, **given)
    clf.fit(tables[0], case.split.y[0], sensitive_features=case.split.groups[0])
    return tuple(clf.predict(X).astype(float) for X in tables)


def linear_program(case: Case) -> Accepted:
    """LinearPost on the same posteriors."""
    bound = bound_constraint(case.split, case.constraint, case.slack)
    # Values are affine in the rates of class 1, one for each part: what each part contributes.
    counts, aux = torch.ones(bound.n_parts).double(), torch.zeros(0)
    none = torch.tensor([[1.0, 0.0]]).double().repeat(bound.n_parts, 1)
    at_none = bound.evaluate(none, counts, aux).numpy()
    combined = np.empty((len(at_none), bound.n_parts))
    for part in range(bound.n_parts):
        one = none.clone()
        one[part] = one[part].flip(0)
        combined[:, part] = bound.evaluate(one, counts, aux).numpy() - at_none
    rng = np.random.default_rng(0)
    train, test = case.columns[:2]
    base_rate, of_parts = train[:, 1].mean(), density_columns(bound.partition.part_of_cell.numpy())

    def densities(table: Floats) -> Floats:
        # A cap asks for one part, the rows of label 1, and for no group.
        return table[:, of_parts] if of_parts else table[:, 1:2] / base_rate

    mu = linear_post(train[:, 1], densities(train), combined, -float(at_none[0]), rng)

    def accepted(table: Floats) -> Floats:
        risk = 1 - 2 * table[:, 1] + NOISE * rng.uniform(size=len(table))
        return (risk < densities(table) @ mu).astype(float)

    return accepted(train), accepted(test)


def density_columns(part_of_cell: NDArray[np.int64]) -> list[int]:
    """Return the columns of P(part | x) / P(part), in the order of the parts."""
    position, places = 2, []
    for task in group_tasks(part_of_cell):
        cells, n = part_of_cell[task.labels][0], len(task.parts)
        parts = np.unique(cells[cells >= 0])
        places += list(zip(parts, range(position, position + n), strict=True))
        position += 3 * n  # and the products with log odds and probability of the label
    return [place for _, place in sorted(places)]


def threshold_optimizer(case: Case) -> Accepted:
    """Thresholds by group on the posterior of the label: it needs the group to predict."""
    names = {"equal_opportunity": "true_positive_rate_parity"}
    model = ThresholdOptimizer(
        estimator=Given(),
        constraints=names.get(case.constraint, case.constraint),
        prefit=True,
        predict_method="predict_proba",
        tol=None if case.constraint == "equalized_odds" else case.slack,
    )
    train, test = (table[:, 1:2] for table in case.columns[:2])
    model.fit(train, case.split.y[0], sensitive_features=case.split.groups[0])
    return tuple(
        model._pmf_predict(table, sensitive_features=groups)[:, 1].clip(0, 1)
        for table, groups in zip((train, test), case.split.groups, strict=True)
    )


def relaxed_thresholds(case: Case) -> Accepted:
    """error-parity on the posterior of the label: it needs the group to predict, and chance.

    Acceptance is the mean of so many random predictions. Version 0.3.12 asks for numpy below 2, and
    runs beside later ones: ``pip install --no-deps error-parity==0.3.12 ecos``.
    """
    from error_parity import RelaxedThresholdOptimizer

    tables, groups = [table[:, 1:2] for table in case.columns[:2]], case.split.groups
    model = RelaxedThresholdOptimizer(
        predictor=np.ravel, constraint=case.constraint, tolerance=case.slack
    )
    with np.errstate(all="ignore"):
        model.fit(tables[0], case.split.y[0], group=groups[0])
    return tuple(
        np.mean([model.predict(table, group=codes) for _ in range(N_PREDICTIONS)], axis=0)
        for table, codes in zip(tables, groups, strict=True)
    )


class Given(ClassifierMixin, BaseEstimator):
    """Its only column is the posterior."""

    classes_ = np.array([0, 1])

    def fit(self, X: Floats, y: Any) -> Given:
        """Return the classifier: there is nothing to learn."""
        return self

    def predict_proba(self, X: Floats) -> Floats:
        """Return the column as probabilities."""
        p = np.asarray(X)[:, 0]
        return np.column_stack((1 - p, p))

    def __sklearn_is_fitted__(self) -> bool:
        return True


def exponentiated_gradient(case: Case) -> Accepted:
    """Fairlearn's reductions on boosted trees: random predictions, a training an iteration."""
    moments = {
        "demographic_parity": reductions.DemographicParity,
        "equalized_odds": reductions.EqualizedOdds,
        "equal_opportunity": reductions.TruePositiveRateParity,
    }
    # Its bound is on each group against all rows together, the gap between two may be twice that.
    moment = moments[case.constraint](difference_bound=case.slack)
    model = reductions.ExponentiatedGradient(trees(), moment)
    model.fit(case.split.tables[0], case.split.y[0], sensitive_features=case.split.groups[0])
    return tuple(model._pmf_predict(table)[:, 1].clip(0, 1) for table in case.split.tables)


METHODS: dict[str, Callable[[Case], Accepted]] = {
    "trees, unconstrained": unconstrained_trees,
    "trees, constrained": lambda case: constrained(case, list(case.columns[:2]), Head()),
    "linear, unconstrained": unconstrained_linear,
    "linear, constrained": lambda case: constrained(case, case.split.matrices, Linear()),
    "trees, linear program": linear_program,
    "trees, thresholds by group": threshold_optimizer,
    "trees, relaxed thresholds": relaxed_thresholds,
    "trees, reductions": exponentiated_gradient,
    "trees, frozen": frozen_trees,
    "trees, single": lambda case: constrained(case, case.split.tables, SingleFit(trees())),
}
OWN_TREES = {"trees, frozen", "trees, single"}
SLOW = {"trees, reductions", *OWN_TREES}
OF_TWO_NOTIONS = {"demographic_parity", "equalized_odds"}
NO_CAPS = {"trees, thresholds by group", "trees, reductions"}
ON_TREES = {method for method in METHODS if method.startswith("trees")} - OWN_TREES


def slacks(method: str, constraint: str, asked: list[float]) -> list[float]:
    """Return the slacks to run for a constraint."""
    if method in UNCONSTRAINED:
        return [np.nan]
    if constraint == "false_negative_rate" and method in NO_CAPS:
        return []
    if method == "trees, relaxed thresholds" and constraint not in OF_TWO_NOTIONS:
        return []
    if (method, constraint) == ("trees, thresholds by group", "equalized_odds"):
        return [0.0]
    return asked


def measure(
    split: Split, columns: Callable[[], Columns], notion: str, slack: float, method: str
) -> dict[str, float]:
    """Train one method, and measure it on training and test rows."""
    case = Case(split, columns(), notion, slack)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wall, cpu = time.perf_counter(), time.process_time()
        try:
            accepted = METHODS[method](case)
        except RuntimeError:  # of HiGHS, which does not solve every program
            accepted = tuple(np.full(len(y), np.nan) for y in case.split.y)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    base_cpu = case.columns.cpu if method in ON_TREES else 0.0
    return measured(case.split, accepted, case.constraint, wall=wall, cpu=cpu, base_cpu=base_cpu)


def measured(split: Split, accepted: Any, constraint: str, **columns: float) -> dict[str, float]:
    """Return expected errors, and violations of expected rates, on training and test rows."""
    row = dict(columns)
    for i, part in enumerate(("train", "test")):
        found = np.nan, np.nan  # where a method has failed
        if not np.isnan(accepted[i]).any():
            found = quality(split.y[i], split.groups[i], accepted[i], constraint)
        row[f"{part}_error"], row[f"{part}_violation"] = found
    return row


def trained(model: Any, split: Split, tables: list[Any], constraint: str) -> dict[str, float]:
    """Fit an estimator, and measure its labels and its time."""
    wall, cpu = time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(tables[0], split.y[0], sensitive_features=split.groups[0])
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    accepted = [np.asarray(model.predict(table), dtype=float) for table in tables]
    return measured(split, accepted, constraint, wall=wall, cpu=cpu)


def jobs(options: argparse.Namespace) -> Iterator[Job]:
    """Yield the key of each run, and the function that measures it."""
    for seed, task in product(options.seeds, options.tasks):
        split = load(task, options.without_group, seed)
        for notion in options.constraints:
            columns = cache(partial(posterior_columns, split, notion))  # where a run is missing
            for method in options.methods:
                for slack in slacks(method, notion, options.slacks):
                    key = task, options.without_group, seed, notion, method, slack
                    yield key, partial(measure, split, columns, notion, slack, method)


def with_tasks(parser: argparse.ArgumentParser, n_seeds: int = 3) -> argparse.ArgumentParser:
    """Add the options for tasks and seeds."""
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=TASKS)
    parser.add_argument("--seeds", nargs="+", type=int, default=list(range(n_seeds)))
    return parser


def main() -> None:
    """Run the cells that the table does not have yet."""
    parser = with_tasks(command(__doc__), n_seeds=5)
    parser.add_argument("--name", default="any_classifier", help="of the results")
    parser.add_argument("--constraints", nargs="+", default=NOTIONS, choices=NOTIONS)
    parser.add_argument("--slacks", nargs="+", type=float, default=[0.02, 0.05, 0.1])
    quick = [method for method in METHODS if method not in SLOW]
    parser.add_argument("--methods", nargs="+", default=quick, choices=METHODS)
    parser.add_argument("--without-group", action="store_true")
    options = parser.parse_args()
    complete(options.output / f"{options.name}.csv", KEY, MEASURED, jobs(options))


if __name__ == "__main__":
    main()
