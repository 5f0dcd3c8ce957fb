"""The best feasible candidate of a search, Pareto fronts, and scores along a parameter."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn import config_context
from sklearn.metrics import accuracy_score, make_scorer
from sklearn.model_selection import GridSearchCV, check_cv
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping
from sklearn.utils.parallel import Parallel, delayed

from fairconstrained.arrays import check_has, check_number, splittable
from fairconstrained.exceptions import (
    ConstraintNotSatisfiedWarning,
    NoUsefulModelError,
    warn_caller,
)
from fairconstrained.inputs.samples import check_samples
from fairconstrained.metrics import demographic_parity_difference
from fairconstrained.metrics.scorers import USEFUL, fairness_scorer, scoring_all_models
from fairconstrained.model_selection._common import (
    passing_metadata,
    plain_objects,
    warn_of_exact_scores,
)
from fairconstrained.model_selection.splits import StratifiedSensitiveKFold
from fairconstrained.sharing import follow


def select_feasible(
    score: str = "accuracy", violation: str = "dp", max_violation: float = 0.05
) -> Callable[[Mapping[str, Any]], int]:
    """Return a function that chooses a search's best candidate within a fairness constraint.

    Parameters
    ----------
    score, violation : str
        Names in the search's `scoring`. The violation is a fairness scorer, which gives the
        *negated* gap: the violation is ``-mean_test_<violation>``.
    max_violation : float, default=0.05
        Largest mean violation over the test folds of a feasible candidate. If slacks come from a
        grid, the chosen candidate exceeds it on new rows as often as not. For a certificate, see
        :class:`~fairconstrained.model_selection.CertifiedClassifier`.

    Returns
    -------
    callable
        For the parameter `refit` of ``GridSearchCV`` and the like; it can be pickled. It returns
        the index of the highest mean score among the feasible candidates, or if none is feasible,
        with a ConstraintNotSatisfiedWarning, of the smallest violation; the other decides ties.
        Candidates with a nan, which fairness scorers give to near constants, and values of a
        :func:`tradeoff_curve` that are not ``useful`` are never chosen. It raises ValueError for a
        name that is not in `scoring` and a violation that is not a negated gap, and a
        NoUsefulModelError if every candidate has a nan.

    Notes
    -----
    With several scores and a callable `refit`, scikit-learn's ``search.score`` does not know which
    scorer to use; call a scorer on ``search.best_estimator_``.

    Examples
    --------
    >>> from fairconstrained.model_selection import select_feasible
    >>> results = {"mean_test_accuracy": [0.9, 0.8, 0.7], "mean_test_dp": [-0.2, -0.04, -0.01]}
    >>> select_feasible("accuracy", "dp", max_violation=0.05)(results)
    1
    """
    check_number("max_violation", max_violation, "a number >= 0", lambda most: most >= 0)
    return partial(_chosen, score, violation, max_violation)


def _chosen(score: str, violation: str, max_violation: float, cv_results: Mapping[str, Any]) -> int:
    """Return the index of the chosen candidate."""
    prefix = "mean_test_"
    known = [key.removeprefix(prefix) for key in cv_results if key.startswith(prefix)]
    for name in (score, violation):
        if name not in known:
            raise ValueError(f"{name!r} is not among the scores of the search, {known}.")
    scores = np.asarray(cv_results[prefix + score], dtype=float)
    violations = violations_of(cv_results, violation)
    useful = cv_results.get("useful", np.ones(len(scores), dtype=bool))  # of a tradeoff_curve
    usable = np.flatnonzero(~np.isnan(scores) & ~np.isnan(violations) & useful)
    if not usable.size:
        raise NoUsefulModelError(
            f"No useful model was found among the {len(scores)} candidates: each is nearly "
            f"constant, or has a nan score in {score!r} or {violation!r}. A gap is nan where the "
            "predictions of a fold are within 0.01 of a constant (add larger slacks), where "
            "nothing is left to compare, or a group lacks rows "
            "that it needs. Fairness scorers need sensitive_features: enable metadata routing, or "
            'give them column=; error_score="raise" in the search shows the cause.'
        )
    feasible = usable[violations[usable] <= max_violation]
    if feasible.size:
        return int(feasible[np.lexsort((violations[feasible], -scores[feasible]))[0]])
    least = int(usable[np.lexsort((-scores[usable], violations[usable]))[0]])
    params = cv_results.get("params")
    of_params = "" if params is None else f", with {params[least]}"
    without = len(scores) - len(usable)
    left_out = f" {without} candidates with a nan, such as near constants, were left out."
    warn_caller(
        f"No useful model was found that keeps {violation!r} within max_violation={max_violation:g}"
        f"; the least violation that has one is {violations[least]:.3g}{of_params}: it was chosen."
        + (left_out if without else ""),
        ConstraintNotSatisfiedWarning,
    )
    return least


def violations_of(cv_results: Mapping[str, Any], name: str) -> NDArray[np.float64]:
    """Return the mean violations of the candidates, whose scores are negated gaps."""
    violations = -np.asarray(cv_results[f"mean_test_{name}"], dtype=float)
    if (violations < 0).any():
        raise ValueError(
            f"violation must name a scorer of a negated gap, at most 0; got {name!r} with a mean "
            f"of {-np.nanmin(violations):.3g}."
        )
    return violations


def pareto_front(error: ArrayLike, violation: ArrayLike) -> NDArray[np.bool_]:
    """Find the Pareto front of two quantities that should be small, in O(n log n).

    One point dominates another if it is no worse in both and better in one. Equal points do not
    dominate each other. Points with a nan are not on the front.

    Parameters
    ----------
    error, violation : array-like of shape (n_points,)

    Returns
    -------
    ndarray of shape (n_points,), bool

    Examples
    --------
    >>> from fairconstrained.model_selection import pareto_front
    >>> pareto_front([0.1, 0.2, 0.2, 0.3], [0.3, 0.1, 0.2, 0.1])
    array([ True,  True, False, False])
    """
    points = np.asarray(error, dtype=float), np.asarray(violation, dtype=float)
    if points[0].ndim != 1 or points[0].shape != points[1].shape:
        raise ValueError(
            "error and violation must be one-dimensional and of equal length; got shapes "
            f"{points[0].shape} and {points[1].shape}."
        )
    front = np.zeros(len(points[0]), dtype=bool)
    candidates = np.flatnonzero(~np.isnan(points[0]) & ~np.isnan(points[1]))
    order = candidates[np.lexsort((points[1][candidates], points[0][candidates]))]
    x, v = points[0][order], points[1][order]
    first = np.searchsorted(x, x)  # first point of the same error: the least violation among them
    least_before = np.minimum.accumulate(v)[first - 1]  # of the points of smaller error
    front[order] = (v == v[first]) & ((first == 0) | (v < least_before))
    return front


def tradeoff_curve(
    estimator: Any,
    X: Any,
    y: ArrayLike,
    *,
    sensitive_features: Any,
    param_name: str | None = None,
    param_range: Sequence[Any] = (),
    cv: Any = None,
    scoring: Any = None,
    params: Mapping[str, Any] | None = None,
    n_jobs: int | None = None,
) -> pd.DataFrame:
    """Cross-validate scores along one parameter, such as the slack of a constraint.

    Parameters
    ----------
    estimator : estimator
        Also a pipeline; each step that requests `sensitive_features` receives them.
    X : array-like of shape (n_samples, n_features)
    y : array-like of shape (n_samples,)
    sensitive_features : array-like of shape (n_samples,) or (n_samples, n_columns)
    param_name : str, optional
        Parameter to vary, such as ``"slack"``, in a pipeline ``"clf__slack"``; None: nothing.
    param_range : sequence
        Its values.
    cv : int or splitter, default=5
        A number of folds of :class:`StratifiedSensitiveKFold`, or any splitter.
    scoring : dict of str to scorer, list of str, or scorer, optional
        By default ``{"accuracy": "accuracy", "dp": demographic_parity_scorer}``, weighted if there
        is a `sample_weight`, and within `control_features` if there are any.
    params : dict, optional
        More metadata, such as ``{"sample_weight": w}``, for whatever requests it.
    n_jobs : int, optional
        Number of parallel jobs over folds.

    Returns
    -------
    DataFrame
        One row per value, in the order of `param_range`: the column `param_name`, and for each
        score ``mean_test_<score>`` and ``std_test_<score>`` over the folds, ``mean_fit_time`` and
        ``std_fit_time`` in seconds, and ``split0_test_<score>`` and so on of single folds. Named as
        in ``cv_results_``, so that :func:`select_feasible` and
        :meth:`~fairconstrained.display.TradeoffDisplay.from_cv_results` read it. Fairness scorers
        score near constants here, and ``useful`` says that there are none in any fold.

    Notes
    -----
    Metadata routing is enabled inside. Errors in a fit or a scorer are raised, not turned into nan.
    A classifier as the model is fitted once for a fold. Slacks are taken from the largest down, and
    linear models start at the solution for the slack before.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from fairconstrained.model_selection import tradeoff_curve
    >>> X = np.random.default_rng(0).normal(size=(80, 2))
    >>> curve = tradeoff_curve(LogisticRegression(), X, X[:, 0] > 0, sensitive_features=X[:, 1] > 0,
    ...                        param_name="C", param_range=[0.01, 1.0], cv=2)
    >>> bool(curve["mean_test_accuracy"].diff()[1] > 0.1)
    True
    """
    check_has("estimator", estimator, "fit")
    if param_name is not None and (isinstance(param_range, str) or not np.iterable(param_range)):
        raise ValueError(f"param_range must list values of {param_name!r}; got {param_range!r}.")
    if cv is None or isinstance(cv, int):
        cv = StratifiedSensitiveKFold(n_splits=5 if cv is None else cv)
    # As in scikit-learn, other metadata need not have a row for each sample.
    weight = (params or {}).get("sample_weight")
    check_samples(X=X, y=y, sensitive_features=sensitive_features, sample_weight=weight)
    y = plain_objects(y)
    if scoring is None:
        gap: Any = fairness_scorer(demographic_parity_difference)
        accuracy, asked = make_scorer(accuracy_score), {"sample_weight": weight is not None}
        with config_context(enable_metadata_routing=True):
            accuracy.set_score_request(**asked)
            gap.set_score_request(sensitive_features=True, control_features=True, **asked)
        scoring = {"accuracy": accuracy, "dp": gap}
    values = [None] if param_name is None else list(param_range)
    groups = splittable(sensitive_features)
    cv, metadata = check_cv(cv, y), {"sensitive_features": groups, **(params or {})}
    grid = {} if param_name is None else {param_name: values}
    warn_of_exact_scores(estimator, "tradeoff_curve", grid)
    if isinstance(scoring, (list, tuple)):  # of names, as in scikit-learn
        scoring = dict(zip(scoring, scoring, strict=True))
    scorers = scoring_all_models(scoring if isinstance(scoring, Mapping) else {"score": scoring})
    order: Any = np.arange(len(values))
    if all(isinstance(value, Real) for value in values):  # from loose slacks to strict ones
        order = np.argsort(np.negative(np.asarray(values, dtype=float)), kind="stable")
    ordered = {name: [values[i] for i in order] for name in grid}
    task = estimator, ordered, scorers, {"X": X, "y": y, **metadata}

    with passing_metadata("tradeoff_curve"):
        routes = MetadataRouter(owner="tradeoff_curve").add(
            splitter=cv, method_mapping=MethodMapping().add(caller="fit", callee="split")
        )
        routed = routes.route_params(params=metadata, caller="fit")
        folds = [_Fold(cv, *fold) for fold in cv.split(X, y, **routed.splitter.split)]
        measured = Parallel(n_jobs=n_jobs)(delayed(_measure)(*task, fold) for fold in folds)
    return _table(grid, np.argsort(order), measured)


@dataclass
class _Fold:
    """One fold of a splitter."""

    cv: Any
    train: Any
    test: Any

    def split(self, X: Any, y: Any = None, **metadata: Any) -> Iterator[tuple[Any, Any]]:
        yield self.train, self.test

    def get_n_splits(self, X: Any = None, y: Any = None, **metadata: Any) -> int:
        return 1

    def get_metadata_routing(self) -> Any:
        return self.cv.get_metadata_routing()


def _measure(
    estimator: Any, grid: Any, scorers: Any, rows: Mapping[str, Any], fold: _Fold
) -> Mapping[str, Any]:
    """Return the results of a grid on one fold; any joblib backend can pickle this function."""
    options = {"scoring": scorers, "refit": False, "error_score": "raise"}
    search = GridSearchCV(follow(estimator), grid, cv=fold, **options).fit(**rows)
    results: Mapping[str, Any] = search.cv_results_
    return results


def _table(
    grid: Mapping[str, Any], place: Any, measured: Sequence[Mapping[str, Any]]
) -> pd.DataFrame:
    """Return a table of each value's mean, deviation and single scores over folds."""
    columns: dict[str, Any] = dict(grid)
    single: dict[str, Any] = {}
    useful = []
    for key in (key for key in measured[0] if key.startswith(("mean_fit_time", "mean_test_"))):
        folds = np.array([results[key][place] for results in measured])
        if USEFUL in key:
            useful.append(np.abs(folds).min(axis=0) == 1)
            continue
        name = key.removeprefix("mean_")
        columns |= {key: folds.mean(axis=0), f"std_{name}": folds.std(axis=0)}
        if name != "fit_time":
            single |= {f"split{k}_{name}": scores for k, scores in enumerate(folds)}
    columns |= single | ({"useful": np.all(useful, axis=0)} if useful else {})
    return pd.DataFrame(columns)
