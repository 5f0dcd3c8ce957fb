"""The steps of the quick start: its table, the methods that it compares, and their measurements."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import zero_one_loss
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler
from tqdm.auto import tqdm

from fairconstrained import RateConstrainedClassifier, metrics
from fairconstrained.datasets import load_dataset, make_loan_applications
from fairconstrained.datasets.catalogue import DATASETS
from fairconstrained.groups import encode_groups
from fairconstrained.metrics.bounds import wilson
from fairconstrained.model_selection.choice import select_feasible
from fairconstrained.model_selection.splits import StratifiedSensitiveKFold
from fairconstrained.models.posteriors import Posteriors

MISSING = "missing"
# A sensitive column with more values than this is a measurement, not a set of groups.
_MOST_GROUPS = 30
# Words that differ on more than this fraction of the rows are names or identifiers.
_IDENTIFYING = 0.5


class Table(NamedTuple):
    """Features, labels and groups."""

    name: str
    X: pd.DataFrame
    y: NDArray[np.int64]  # 0 or 1
    groups: Any  # Series or DataFrame
    words: list[str]  # columns of X that are no numbers
    positive: str  # the meaning of 1
    notes: list[str]  # messages to the user about changes of the table

    def rows(self, index: Any) -> Table:
        """Some of the rows, given by positions."""
        return self._replace(X=self.X.iloc[index], y=self.y[index], groups=self.groups.iloc[index])


def generated(seed: int) -> Table:
    """8,000 loan applications, judged by sex."""
    loans = make_loan_applications(random_state=seed)
    y = (loans.target == "granted").astype(np.int64)
    sex = loans.sensitive_features["sex"]
    words = ["occupation", "housing"]
    return Table("loan applications", loans.data, y, sex, words, "decision = granted", [])


def dataset(name: str) -> Table:
    """A benchmark data set with its usual sensitive feature."""
    try:
        bunch = load_dataset(name)
    except OSError as error:
        raise SystemExit(str(error)) from error
    X, codes = bunch.data, DATASETS[name].codes.split()
    numeric = X.select_dtypes("number").columns
    words = [column for column in X if column in codes or column not in numeric]
    groups = pd.Series(np.asarray(bunch.sensitive_features), name="group")
    return Table(name, X, bunch.target, groups, words, bunch.target_names[1], [])


def from_csv(
    path: Path, label: str, sensitive: Sequence[str], positive: str | None, drop: Sequence[str]
) -> Table:
    """Read a user's file, or exit with a message if it cannot be used.

    Rows without a label are left out. The sensitive columns are no features, so that the model can
    be used where they are not known. Without `positive`, the larger of two numbers is favourable.
    """
    frame = _read(path)
    for column in (label, *sensitive, *drop):
        if column not in frame:
            raise SystemExit(f"{path} has no column {column!r}; it has {_listed(frame.columns)}.")
    if label in sensitive:
        raise SystemExit(f"{label!r} is the label; it cannot be sensitive as well.")
    notes = []
    labelled = frame[label].notna()
    if not labelled.all():
        notes.append(f"{(~labelled).sum()} rows without {label} are left out.")
        frame = frame[labelled].reset_index(drop=True)
    y, meaning = _labels(frame[label], positive, path)
    groups = _groups(frame[list(sensitive)], path)
    X, words, said = _features(frame.drop(columns={label, *sensitive, *drop}), path)
    return Table(path.stem, X, y, groups, words, meaning, notes + said)


def held_out(table: Table, seed: int) -> tuple[Table, Table]:
    """Hold out a quarter of the rows of each label in each group."""
    strata = 2 * encode_groups(table.groups).codes + table.y
    count = np.bincount(strata)
    strata = np.where(count[strata] < 2, count.argmax(), strata)  # lone rows go anywhere
    train, test = train_test_split(
        np.arange(len(table.y)), test_size=0.25, stratify=strata, random_state=seed
    )
    return table.rows(train), table.rows(test)


def _read(path: Path) -> pd.DataFrame:
    try:
        frame = pd.read_csv(path)
    except FileNotFoundError as error:
        raise SystemExit(f"There is no file {path}.") from error
    except pd.errors.EmptyDataError as error:
        raise SystemExit(f"{path} is empty.") from error
    except UnicodeDecodeError as error:
        raise SystemExit(f"{path} is not UTF-8 text ({error}). Save it as CSV in UTF-8.") from error
    except (pd.errors.ParserError, OSError) as error:
        raise SystemExit(f"{path} cannot be read as CSV: {error}") from error
    if frame.empty:
        raise SystemExit(f"{path} has a header and no rows.")
    return frame


def _labels(column: Any, positive: str | None, path: Path) -> tuple[NDArray[np.int64], str]:
    values = sorted(column.unique().tolist(), key=str)
    words = [str(value) for value in values]
    if len(values) < 2:
        raise SystemExit(
            f"{column.name} has the same value in all rows of {path}: {words[0] if words else ''}. "
            "There is nothing to learn."
        )
    if positive is None:
        if len(values) > 2:
            raise SystemExit(
                f"{column.name} has {len(values)} values, {_listed(words)}. Name the favourable "
                "one with --positive; it is told apart from all others."
            )
        if not pd.api.types.is_numeric_dtype(column):
            raise SystemExit(
                f"{column.name} is {words[0]!r} or {words[1]!r}. Name the favourable one with "
                "--positive."
            )
        positive = str(max(values))
    if positive not in words:
        raise SystemExit(
            f"--positive is {positive!r}, but {column.name} has the values {_listed(words)}."
        )
    y = (column.astype(str) == positive).to_numpy().astype(np.int64)
    return y, f"{column.name} = {positive}"


def _groups(columns: pd.DataFrame, path: Path) -> Any:
    for name in columns:
        count = columns[name].nunique()
        if count > _MOST_GROUPS:
            raise SystemExit(
                f"{name} has {count} values, too many for groups of people. Add a column with a "
                f"few ranges of it to {path}, for example with pandas.cut, and name that one."
            )
    groups = columns.astype(object).where(columns.notna(), MISSING).astype(str)
    if len(groups.drop_duplicates()) < 2:
        raise SystemExit(
            f"All rows of {path} have the same {' and '.join(groups)}: there are no groups to "
            "compare."
        )
    return groups.iloc[:, 0] if groups.shape[1] == 1 else groups


def _features(X: pd.DataFrame, path: Path) -> tuple[pd.DataFrame, list[str], list[str]]:
    numeric = X.select_dtypes("number").columns
    constant = [c for c in X if X[c].nunique(dropna=False) < 2]
    naming = [c for c in X if c not in numeric and X[c].nunique() > _IDENTIFYING * len(X)]
    notes = [
        f"{_listed(columns)}: left out, {why}."
        for columns, why in (
            (constant, "the same in all rows"),
            (naming, "different in most rows, as names and identifiers are"),
        )
        if columns
    ]
    X = X.drop(columns={*constant, *naming})
    if X.shape[1] == 0:
        raise SystemExit(f"{path} has no features beside the label and the sensitive columns.")
    words = [c for c in X if c not in numeric]
    X = X.astype(dict.fromkeys(words, object))
    X[words] = X[words].where(X[words].isna(), X[words].astype(str))
    return X, words, notes


def _listed(values: Any, most: int = 12) -> str:
    values = [str(value) for value in values]
    more = f" and {len(values) - most} more" if len(values) > most else ""
    return ", ".join(values[:most]) + more


# Constraints and their classes in fairlearn.
NOTIONS = {
    "demographic_parity": "DemographicParity",
    "equalized_odds": "EqualizedOdds",
    "equal_opportunity": "TruePositiveRateParity",
}


class Method(NamedTuple):
    """A constrained classifier, whose ``clf__slack`` is searched, and the unconstrained one."""

    name: str
    constrained: Pipeline
    free: Pipeline


class Result(NamedTuple):
    """Measurements of one fit."""

    rows: str  # "cross-validated" or "held out"
    method: str
    slack: float  # nan without a constraint
    error: float
    violation: float
    fit_time: float  # seconds
    # Ends of the error bars: a standard deviation over the folds, or a confidence interval.
    error_low: float
    error_high: float
    violation_low: float
    violation_high: float


def methods(table: Table, notion: str, seed: int, cache: str) -> list[Method]:
    """Boosted trees and a linear model, with and without a constraint."""
    codes = OrdinalEncoder(
        handle_unknown="use_encoded_value",
        unknown_value=np.nan,
        encoded_missing_value=np.nan,
        max_categories=200,
    )
    trees = make_pipeline(
        make_column_transformer((codes, table.words), remainder="passthrough"),
        HistGradientBoostingClassifier(
            categorical_features=list(range(len(table.words))), random_state=seed
        ),
    )
    fair_trees = RateConstrainedClassifier(
        notion, model=Posteriors(trees, memory=cache), random_state=seed
    )
    indicators = make_column_transformer(
        (OneHotEncoder(handle_unknown="infrequent_if_exist", max_categories=100), table.words),
        remainder=make_pipeline(
            SimpleImputer(strategy="median", add_indicator=True), StandardScaler()
        ),
    )
    fair, free = RateConstrainedClassifier(notion), LogisticRegression(max_iter=1_000)
    return [
        Method("trees", Pipeline([("clf", fair_trees)]), trees),
        Method(
            "linear",
            Pipeline([("preprocess", indicators), ("clf", fair)]),
            Pipeline([("preprocess", indicators), ("clf", free)]),
        ),
    ]


def cross_validate(
    compared: list[Method], train: Table, notion: str, options: argparse.Namespace
) -> tuple[str, float, Any, list[Result]]:
    """Search over method and slack; score the unconstrained models on the same folds.

    Returns the method and slack that are most accurate among those whose mean violation on the
    folds is small enough, this model fitted on all training rows, and all results.
    """
    folds = StratifiedSensitiveKFold(options.cv, shuffle=True, random_state=options.seed)
    choose = select_feasible("accuracy", "gap", max_violation=options.max_violation)
    gap = getattr(metrics, f"{notion}_scorer")

    def search(first: Any, grid: Any, refit: Any) -> Any:
        return GridSearchCV(
            Pipeline([("method", first)]),  # which decides to what the groups are routed
            grid,
            scoring={"accuracy": "accuracy", "gap": gap},
            refit=refit,
            cv=folds,
            error_score="raise",
            verbose=1,
        ).fit(train.X, train.y, sensitive_features=train.groups)

    free = [method.free for method in compared]
    baseline = search(free[0], {"method": free}, False)
    grid = [
        {"method": [method.constrained], "method__clf__slack": options.slack} for method in compared
    ]
    ours = search(compared[0].constrained, grid, choose)
    n_slacks, results = len(options.slack), []
    for i, method in enumerate(compared):
        results.append(_validated(f"{method.name}, unconstrained", np.nan, baseline, i))
        for j, slack in enumerate(options.slack):
            results.append(_validated(method.name, slack, ours, i * n_slacks + j))
    chosen, of_slack = divmod(ours.best_index_, n_slacks)
    best = ours.best_estimator_.named_steps["method"]
    return compared[chosen].name, options.slack[of_slack], best, results


def _validated(method: str, slack: float, search: Any, i: int) -> Result:
    """Return means of candidate i over the folds, and a standard deviation either way."""
    found = {name: column[i] for name, column in search.cv_results_.items()}
    error, gap = 1 - found["mean_test_accuracy"], -found["mean_test_gap"]
    of_error, of_gap = found["std_test_accuracy"], found["std_test_gap"]
    ends = error - of_error, error + of_error, gap - of_gap, gap + of_gap
    return Result("cross-validated", method, slack, error, gap, found["mean_fit_time"], *ends)


def measure(
    compared: list[Method],
    train: Table,
    test: Table,
    notion: str,
    bounds: list[float],
    options: argparse.Namespace,
) -> list[Result]:
    """Train each method on all training rows and measure it on the held-out rows."""

    def fitted(model: Pipeline, slack: float) -> Any:
        if np.isnan(slack):
            return clone(model).fit(train.X, train.y).predict(test.X)
        model = clone(model).set_params(clf__slack=slack)
        return model.fit(train.X, train.y, sensitive_features=train.groups).predict(test.X)

    def reductions(model: Pipeline, slack: float) -> Any:
        from fairlearn import reductions

        preprocess = clone(model["preprocess"]).set_params(sparse_threshold=0).fit(train.X)
        moment = getattr(reductions, NOTIONS[notion])(difference_bound=slack)
        reduction = reductions.ExponentiatedGradient(clone(model["clf"]), moment)
        reduction.fit(preprocess.transform(train.X), train.y, sensitive_features=train.groups)
        return reduction.predict(preprocess.transform(test.X), random_state=options.seed)

    jobs: list[tuple[str, float, Any, Pipeline]] = []
    for method in compared:
        jobs.append((f"{method.name}, unconstrained", np.nan, fitted, method.free))
        jobs += [(method.name, slack, fitted, method.constrained) for slack in options.slack]
    jobs += [("reductions", slack, reductions, compared[-1].free) for slack in bounds]
    results, metric = [], getattr(metrics, f"{notion}_difference")
    with tqdm(jobs, desc="held-out rows", unit="fit") as bar:
        for name, slack, predict, model in bar:
            bar.set_postfix_str(name)
            start = time.perf_counter()
            predicted = predict(model, slack)
            seconds = time.perf_counter() - start
            wrong, given = predicted != test.y, (test.y, predicted)
            low, high = (float(end) for end in wilson(wrong.sum(), len(wrong)))
            gap = metric(*given, sensitive_features=test.groups)
            ends = metrics.confidence_interval(
                metric, *given, sensitive_features=test.groups, random_state=0
            )
            error = zero_one_loss(*given)
            results.append(Result("held out", name, slack, error, gap, seconds, low, high, *ends))
    return results
