"""A fairness-accuracy trade-off from end to end: ``python -m fairconstrained.quickstart``.

1. Build a pipeline of preprocessing and :class:`~fairconstrained.RateConstrainedClassifier`.
2. Search over its slack by cross-validation, scoring accuracy and fairness.
3. Refit the most accurate candidate whose violation is small enough.
4. On held-out rows, with confidence intervals, compare all slacks, an unconstrained model,
   fairlearn's reductions, and boosted trees with the constraint and without.
5. Write a table, a figure and a CSV file.

By default the data are generated. ``--dataset adult`` and other names use real data.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn import config_context
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import zero_one_loss
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from tqdm.auto import tqdm

from fairconstrained import RateConstrainedClassifier, metrics
from fairconstrained.datasets import list_datasets, load_dataset, make_biased_classification
from fairconstrained.datasets.catalogue import DATASETS
from fairconstrained.groups import encode_groups, group_name
from fairconstrained.metrics.bounds import wilson
from fairconstrained.model_selection import StratifiedSensitiveKFold, select_feasible

__all__ = ["main"]

_OURS = "fairconstrained"
_UNCONSTRAINED = "unconstrained"
_REDUCTIONS = "reductions"
_TREES = "trees, constrained"
_FREE_TREES = "trees, unconstrained"


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
    # What the bars span: a standard deviation over the folds either way, or a confidence interval.
    error_low: float
    error_high: float
    violation_low: float
    violation_high: float


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
        chosen, results = _cross_validate(pipeline, train, notion, options)
        print(f"\ncross-validated over {options.cv} folds, mean (a standard deviation either way)")
        print(_table(results, chosen))
        held_out = _held_out(pipeline, train, test, notion, options)
    print("\nheld-out rows, 95 % intervals (reductions: one draw of its random predictions)")
    print(_table(held_out, chosen))
    options.output.mkdir(parents=True, exist_ok=True)
    written = options.output / "tradeoff.csv", options.output / "tradeoff.png"
    pd.DataFrame(results + held_out).to_csv(written[0], index=False)
    _picture(results + held_out, chosen, options, written[1])
    print(f"\nWritten: {written[0]} and {written[1]}.")


# ---------------------------------------------------------------------- data


def _load(name: str, seed: int) -> _Data:
    if name == "synthetic":
        bunch = make_biased_classification(20_000, bias=0.4, imbalance=0.4, random_state=seed)
        X, codes = pd.DataFrame(bunch.data, columns=bunch.feature_names), []
    else:
        try:
            bunch = load_dataset(name)
        except OSError as error:
            raise SystemExit(str(error)) from error
        X, codes = bunch.data, DATASETS[name].codes.split()
    numeric = X.select_dtypes("number").columns
    categorical = [c for c in X if c in codes or c not in numeric]
    return _Data(X, bunch.target, np.asarray(bunch.sensitive_features), categorical)


def _split(data: _Data, seed: int) -> tuple[_Data, _Data]:
    """Hold out a quarter of the rows of each label in each group."""
    strata = encode_groups({"y": data.y, "group": data.groups}).codes
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
) -> tuple[float, list[_Result]]:
    """Search over the slack, and score the unconstrained model on the same folds."""
    folds = StratifiedSensitiveKFold(options.cv, shuffle=True, random_state=options.seed)
    choose = select_feasible("accuracy", "gap", max_violation=options.max_violation)
    n_fits = (len(options.slack) + 1) * options.cv
    with tqdm(total=n_fits, desc="cross-validation", unit="fit") as bar:

        def accuracy(estimator: Any, X: Any, y: Any) -> float:
            bar.update()  # a scorer is the only hook that scikit-learn's searches offer
            return float(estimator.score(X, y))

        def search(pipeline: Pipeline, grid: dict[str, Any], refit: Any) -> Any:
            return GridSearchCV(
                pipeline,
                grid,
                scoring={"accuracy": accuracy, "gap": notion.scorer},
                refit=refit,
                cv=folds,
                error_score="raise",
            ).fit(train.X, train.y, sensitive_features=train.groups)

        baseline = search(_unconstrained(pipeline), {}, False)
        ours = search(pipeline, {"clf__slack": options.slack}, choose)
    results = [
        *_validated(_UNCONSTRAINED, [np.nan], baseline.cv_results_),
        *_validated(_OURS, options.slack, ours.cv_results_),
    ]
    return ours.best_params_["clf__slack"], results


def _validated(method: str, slacks: list[float], found: dict[str, Any]) -> Iterator[_Result]:
    for i, slack in enumerate(slacks):
        yield _Result(
            "cross-validated",
            method,
            slack,
            error=1 - found["mean_test_accuracy"][i],
            violation=-found["mean_test_gap"][i],
            fit_time=found["mean_fit_time"][i],
            error_low=1 - found["mean_test_accuracy"][i] - found["std_test_accuracy"][i],
            error_high=1 - found["mean_test_accuracy"][i] + found["std_test_accuracy"][i],
            violation_low=-found["mean_test_gap"][i] - found["std_test_gap"][i],
            violation_high=-found["mean_test_gap"][i] + found["std_test_gap"][i],
        )


def _held_out(
    pipeline: Pipeline, train: _Data, test: _Data, notion: _Notion, options: argparse.Namespace
) -> list[_Result]:
    """Train each method on all training rows and measure it on the held-out rows."""
    metadata = {"sensitive_features": train.groups}

    def constrained(slack: float) -> Any:
        model = clone(pipeline).set_params(clf__slack=slack)
        return model.fit(train.X, train.y, **metadata).predict(test.X)

    def unconstrained(slack: float) -> Any:
        return _unconstrained(pipeline).fit(train.X, train.y).predict(test.X)

    def trees(slack: float) -> Any:
        model = _trees()
        if not np.isnan(slack):
            model = RateConstrainedClassifier(options.notion, slack=slack, model=model)
            return model.fit(_words(train.X), train.y, **metadata).predict(_words(test.X))
        return model.fit(_words(train.X), train.y).predict(_words(test.X))

    def reductions(slack: float) -> Any:
        from fairlearn import reductions

        preprocess = clone(pipeline["preprocess"]).set_params(sparse_threshold=0).fit(train.X)
        moment = getattr(reductions, notion.moment)(difference_bound=slack)
        model = reductions.ExponentiatedGradient(LogisticRegression(max_iter=1_000), moment)
        model.fit(preprocess.transform(train.X), train.y, **metadata)
        return model.predict(preprocess.transform(test.X), random_state=options.seed)

    jobs = [
        (_UNCONSTRAINED, np.nan, unconstrained),
        *((_OURS, slack, constrained) for slack in options.slack),
        (_FREE_TREES, np.nan, trees),
        *((_TREES, slack, trees) for slack in options.slack),
        *((_REDUCTIONS, slack, reductions) for slack in _reductions_slacks(options)),
    ]
    results = []
    with tqdm(jobs, desc="held-out rows", unit="fit") as bar:
        for method, slack, predict in bar:
            bar.set_postfix_str(method)
            start = time.perf_counter()
            predicted = predict(slack)
            seconds = time.perf_counter() - start
            error = zero_one_loss(test.y, predicted)
            violation = notion.metric(test.y, predicted, sensitive_features=test.groups)
            ends = metrics.confidence_interval(
                notion.metric, test.y, predicted, sensitive_features=test.groups, random_state=0
            )
            wrong = np.asarray(predicted != test.y)
            low, high = (float(end) for end in wilson(wrong.sum(), len(wrong)))
            results.append(
                _Result("held out", method, slack, error, violation, seconds, low, high, *ends)
            )
    return results


def _unconstrained(pipeline: Pipeline) -> Pipeline:
    return clone(pipeline).set_params(clf=LogisticRegression(max_iter=1_000))


def _trees() -> Any:
    return HistGradientBoostingClassifier(random_state=0)


def _words(X: pd.DataFrame) -> pd.DataFrame:
    """The table with words as categories: trees need no indicators."""
    words = X.select_dtypes(exclude="number").columns
    return X.astype(dict.fromkeys(words, "category"))


def _reductions_slacks(options: argparse.Namespace) -> list[float]:
    if importlib.util.find_spec("fairlearn") is None:
        print("fairlearn is not installed: no reductions. pip install 'fairconstrained[bench]'")
        return []
    if options.reductions is not None:
        return list(options.reductions)
    return options.slack if options.dataset == "synthetic" else [options.max_violation]


# ---------------------------------------------------------------------- results


def _headline(options: argparse.Namespace, train: _Data, test: _Data) -> str:
    codes, labels = encode_groups(train.groups)
    sizes = zip(labels, np.bincount(codes), strict=True)
    groups = ", ".join(f"{group_name(label)} ({size})" for label, size in sizes)
    return (
        f"{options.dataset}: {len(train.y)} training rows, {len(test.y)} held-out rows\n"
        f"groups: {groups}\n"
        f"constraint: {options.notion}, wanted violation at most {options.max_violation:g}"
    )


def _table(results: list[_Result], chosen: float) -> str:
    lines = [f"{'':21}{'slack':>6}  {'error':25}{'violation':25}{'fit (s)':>8}"]
    for r in results:
        slack = "" if np.isnan(r.slack) else f"{r.slack:g}"
        mark = "  <- chosen" if _is_chosen(r, chosen) else ""
        error = _with_ends(r.error, r.error_low, r.error_high)
        violation = _with_ends(r.violation, r.violation_low, r.violation_high)
        lines.append(f"{r.method:21}{slack:>6}  {error:25}{violation:25}{r.fit_time:8.2f}{mark}")
    return "\n".join(lines)


def _with_ends(value: float, low: float, high: float) -> str:
    return f"{value:.4f} ({low:.4f}, {high:.4f})"


def _is_chosen(result: _Result, chosen: float) -> bool:
    return result.method == _OURS and result.slack == chosen


def _picture(
    results: list[_Result], chosen: float, options: argparse.Namespace, path: Path
) -> None:
    # Imported here: everything else works without matplotlib.
    from matplotlib.figure import Figure

    from fairconstrained.display import TradeoffDisplay

    table = pd.DataFrame(results)
    figure = Figure(figsize=(10, 4), layout="constrained")
    axes = figure.subplots(1, 2)
    for ax, (rows, part) in zip(axes, table.groupby("rows", sort=False), strict=True):
        for method, points in part.groupby("method", sort=False):
            TradeoffDisplay(
                error=points["error"],
                violation=points["violation"],
                error_std=_reach(points, "error"),
                violation_std=_reach(points, "violation"),
                chosen=_position(points, chosen) if method == _OURS else None,
                slack=options.max_violation if method == _OURS else None,
                name=str(method),
                violation_name=f"violation of {options.notion.replace('_', ' ')}",
            ).plot(ax)
        ax.set_title(f"{options.dataset}, {rows}")
    figure.savefig(path, dpi=120)


def _reach(points: pd.DataFrame, name: str) -> Any:
    """How far the bars reach below and above; a gap can lie above its own interval."""
    value = points[name]
    ends = value - points[f"{name}_low"], points[f"{name}_high"] - value
    return np.maximum(np.array(ends), 0.0)


def _position(points: pd.DataFrame, chosen: float) -> int:
    return int(np.flatnonzero(points["slack"] == chosen)[0])


# ---------------------------------------------------------------------- arguments


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m fairconstrained.quickstart",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add(
        "--dataset",
        default="synthetic",
        choices=["synthetic", *list_datasets()],
        help="real data are read from the folder FAIRCONSTRAINED_DATA, or else downloaded",
    )
    add("--notion", default="demographic_parity", choices=list(_NOTIONS))
    add("--slack", nargs="+", type=float, default=[0.01, 0.02, 0.05, 0.1, 0.2], help="the grid")
    add(
        "--max-violation",
        type=float,
        default=0.05,
        help="the search chooses the best mean accuracy within it (default: %(default)s)",
    )
    add("--cv", type=int, default=3, help="number of folds (default: %(default)s)")
    add(
        "--reductions",
        nargs="*",
        type=float,
        help="bounds for fairlearn's reductions, none to leave them out (default: the grid on "
        "generated data, else the wanted violation: one fit on adult takes half a minute)",
    )
    add("--output", type=Path, default=Path(), help="folder for tradeoff.csv and tradeoff.png")
    add("--seed", type=int, default=0)
    return parser


if __name__ == "__main__":
    main()
