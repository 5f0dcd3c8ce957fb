"""The methods that the quick start compares, and how they are validated and measured."""

from __future__ import annotations

import argparse
import time
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import zero_one_loss
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler
from tqdm.auto import tqdm

from fairconstrained import RateConstrainedClassifier, metrics
from fairconstrained.metrics.bounds import wilson
from fairconstrained.model_selection.choice import select_feasible
from fairconstrained.model_selection.splits import StratifiedSensitiveKFold
from fairconstrained.models.posteriors import Posteriors
from fairconstrained.quickstart.tables import Table

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
