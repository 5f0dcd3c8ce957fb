"""A fairness-accuracy trade-off from end to end: ``python -m fairconstrained.quickstart``.

1. a pipeline of preprocessing and :class:`~fairconstrained.RateConstrainedClassifier`,
2. a cross-validated search over its slack that scores accuracy and fairness,
3. the most accurate candidate that keeps the wanted violation, refitted,
4. on held-out rows: every slack, an unconstrained model and fairlearn's reductions,
5. a table, a picture and a CSV file.

Without arguments the data are generated; ``--dataset adult`` and the like take real ones.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn import config_context
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import zero_one_loss
from sklearn.model_selection import GridSearchCV, cross_validate, train_test_split
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from tqdm.auto import tqdm

from fairconstrained import RateConstrainedClassifier, metrics
from fairconstrained.datasets import list_datasets, load_dataset, make_biased_classification
from fairconstrained.datasets.catalogue import DATASETS
from fairconstrained.groups import encode_groups, group_name
from fairconstrained.model_selection import StratifiedSensitiveKFold, select_feasible

__all__ = ["main"]

_OURS = "fairconstrained"
_UNCONSTRAINED = "unconstrained"
_REDUCTIONS = "reductions"


class _Notion(NamedTuple):
    metric: Callable[..., float]
    scorer: Callable[..., float]
    moment: str  # the class of fairlearn.reductions


_NOTIONS = {
    "demographic_parity": _Notion(
        metrics.demographic_parity_difference,
        metrics.demographic_parity_scorer,
        "DemographicParity",
    ),
    "equalized_odds": _Notion(
        metrics.equalized_odds_difference, metrics.equalized_odds_scorer, "EqualizedOdds"
    ),
    "equal_opportunity": _Notion(
        metrics.equal_opportunity_difference,
        metrics.equal_opportunity_scorer,
        "TruePositiveRateParity",
    ),
}


class _Data(NamedTuple):
    X: pd.DataFrame
    y: Any
    groups: Any
    categorical: list[str]

    def rows(self, index: Any) -> _Data:
        return self._replace(X=self.X.iloc[index], y=self.y[index], groups=self.groups[index])


class _Result(NamedTuple):
    rows: str  # "cross-validated" or "held out"
    method: str
    slack: float
    error: float
    violation: float
    fit_time: float  # seconds
    error_std: float = np.nan  # over the folds
    violation_std: float = np.nan


def main(argv: Sequence[str] | None = None) -> None:
    """Run the quick start.

    Parameters
    ----------
    argv : sequence of str, optional
        Command line; ``["--help"]`` explains it.

    Raises
    ------
    SystemExit
        If an argument is not valid or the data are not there.
    """
    options = _parser().parse_args(argv)
    notion = _NOTIONS[options.notion]
    data = _load(options.dataset, options.seed)
    train, test = _split(data, options.seed)
    print(_headline(options, train, test))
    pipeline = Pipeline(
        [
            ("preprocess", _preprocessing(data.categorical)),
            ("clf", RateConstrainedClassifier(constraint=options.notion)),
        ]
    )
    with config_context(enable_metadata_routing=True):
        search, results = _cross_validate(pipeline, train, notion, options)
        print(_cross_validated_table(results, search.best_params_["clf__slack"]))
        results += _held_out(pipeline, train, test, notion, options)
    print(_held_out_table(results, search.best_params_["clf__slack"]))
    options.output.mkdir(parents=True, exist_ok=True)
    written = options.output / "tradeoff.csv", options.output / "tradeoff.png"
    pd.DataFrame(results).to_csv(written[0], index=False)
    _picture(results, options, written[1])
    print(f"Written: {written[0]} and {written[1]}.")


# ---------------------------------------------------------------------- data


def _load(name: str, seed: int) -> _Data:
    if name == "synthetic":
        bunch = make_biased_classification(4_000, bias=0.4, imbalance=0.4, random_state=seed)
        X, codes = pd.DataFrame(bunch.data, columns=bunch.feature_names), []
    else:
        try:
            bunch = load_dataset(name)
        except (FileNotFoundError, OSError) as error:
            raise SystemExit(str(error)) from error
        X, codes = bunch.data, DATASETS[name].codes.split()
    numeric = X.select_dtypes("number").columns
    categorical = [c for c in X if c in codes or c not in numeric]
    return _Data(X, bunch.target, np.asarray(bunch.sensitive_features), categorical)


def _split(data: _Data, seed: int) -> tuple[_Data, _Data]:
    """A quarter of each label in each group is held out."""
    strata = encode_groups({"y": data.y, "group": data.groups}).index
    train, test = train_test_split(
        np.arange(len(data.y)), test_size=0.25, stratify=strata, random_state=seed
    )
    return data.rows(train), data.rows(test)


def _preprocessing(categorical: list[str]) -> Any:
    indicators = OneHotEncoder(handle_unknown="ignore")
    return make_column_transformer((indicators, categorical), remainder=StandardScaler())


# ---------------------------------------------------------------------- models


def _cross_validate(
    pipeline: Pipeline, train: _Data, notion: _Notion, options: argparse.Namespace
) -> tuple[GridSearchCV, list[_Result]]:
    """Search over the slack, and the unconstrained model on the same folds."""
    cv = StratifiedSensitiveKFold(options.cv, shuffle=True, random_state=options.seed)
    n_fits = (len(options.slack) + 1) * options.cv
    with tqdm(total=n_fits, desc="cross-validation", unit="fit") as bar:

        def accuracy(estimator: Any, X: Any, y: Any) -> float:
            bar.update()
            return float(estimator.score(X, y))

        scoring = {"accuracy": accuracy, "gap": notion.scorer}
        search = GridSearchCV(
            pipeline,
            {"clf__slack": options.slack},
            scoring=scoring,
            refit=select_feasible("accuracy", "gap", max_violation=options.max_violation),
            cv=cv,
            error_score="raise",
        ).fit(train.X, train.y, sensitive_features=train.groups)
        scores = cross_validate(
            _unconstrained(pipeline),
            train.X,
            train.y,
            scoring=scoring,
            cv=cv,
            params={"sensitive_features": train.groups},
            error_score="raise",
        )
    found = search.cv_results_
    results = [_validated(_UNCONSTRAINED, np.nan, scores, np.s_[:])]
    for i, slack in enumerate(options.slack):
        folds = {
            f"test_{name}": np.array([found[f"split{k}_test_{name}"][i] for k in range(options.cv)])
            for name in scoring
        }
        folds["fit_time"] = found["mean_fit_time"][[i]]
        results.append(_validated(_OURS, slack, folds, np.s_[:]))
    return search, results


def _unconstrained(pipeline: Pipeline) -> Pipeline:
    return clone(pipeline).set_params(clf=LogisticRegression(max_iter=1_000))
