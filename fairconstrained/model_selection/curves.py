"""Cross-validated scores along one parameter."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from numpy.typing import ArrayLike
from sklearn import config_context
from sklearn.model_selection import GridSearchCV

from fairconstrained.metrics.scorers import demographic_parity_scorer
from fairconstrained.model_selection._privacy_warnings import warn_of_exact_scores
from fairconstrained.model_selection.splits import StratifiedSensitiveKFold


def tradeoff_curve(
    estimator: Any,
    X: Any,
    y: ArrayLike,
    *,
    sensitive_features: Any,
    param_name: str | Mapping[str, str] | None = None,
    param_range: Sequence[Any] | Mapping[str, Sequence[Any]] = (),
    cv: Any = None,
    scoring: Any = None,
    params: Mapping[str, Any] | None = None,
    return_train_score: bool = False,
    n_jobs: int | None = None,
) -> pd.DataFrame:
    """Cross-validated scores along one parameter, such as the slack of a constraint.

    Parameters
    ----------
    estimator : estimator or dict of str to estimator
        Also pipelines; each step that asks for `sensitive_features` receives them. Of several
        estimators, one that lacks `param_name`, such as one without a constraint, gives one row.
    X : array-like of shape (n_samples, n_features)
    y : array-like of shape (n_samples,)
    sensitive_features : array-like of shape (n_samples,) or (n_samples, n_columns)
    param_name : str or dict of str to str, optional
        Parameter to vary, such as ``"slack"``, or ``"clf__slack"`` in a pipeline; where estimators
        differ, a dict by their names, which may leave some out. None: nothing varies.
    param_range : sequence or dict of str to sequence
        Its values, or a dict of them by the names of the estimators.
    cv : int or splitter, default=5
        A number of folds of :class:`StratifiedSensitiveKFold`, or any splitter.
    scoring : dict of str to scorer, optional
        By default ``{"accuracy": "accuracy", "dp": demographic_parity_scorer}``.
    params : dict, optional
        More metadata, such as ``{"sample_weight": w}``, for whatever requests it.
    return_train_score : bool, default=False
        Whether to add the scores on the training folds.
    n_jobs : int, optional
        Number of parallel jobs over values and folds.

    Returns
    -------
    DataFrame
        One row per value, in the order of `param_range`: the column `param_name`, and for each
        score ``mean_test_<score>`` and ``std_test_<score>`` over the folds (``..._train_...``
        likewise), ``mean_fit_time`` and ``std_fit_time`` in seconds, and ``split0_test_<score>``
        and so on of single folds. Named as in ``cv_results_``, so that :func:`select_feasible` and
        :meth:`~fairconstrained.display.TradeoffDisplay.from_cv_results` read it. Of several
        estimators the rows stand below each other, with their names in the column ``estimator``.

    Raises
    ------
    ValueError
        If no estimator has the parameter `param_name`.
    Exception
        Whatever a fit or a scorer raises: no nan hides an error.

    Notes
    -----
    Metadata routing is enabled inside, whatever the global setting.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from fairconstrained.model_selection import tradeoff_curve
    >>> X = np.random.default_rng(0).normal(size=(80, 2))
    >>> curve = tradeoff_curve(LogisticRegression(), X, X[:, 0] > 0, sensitive_features=X[:, 1] > 0,
    ...                        param_name="C", param_range=[1e-6, 1.0], cv=2)
    >>> bool(curve["mean_test_accuracy"].diff()[1] > 0.3)
    True

    Several models, each a line of one picture:

    >>> from sklearn.naive_bayes import GaussianNB
    >>> models = {"regression": LogisticRegression(), "naive Bayes": GaussianNB()}
    >>> curves = tradeoff_curve(models, X, X[:, 0] > 0, sensitive_features=X[:, 1] > 0,
    ...                         param_name="C", param_range=[1e-6, 1.0], cv=2)
    >>> curves[["estimator", "C"]]
         estimator         C
    0   regression  0.000001
    1   regression  1.000000
    2  naive Bayes       NaN
    """
    if cv is None or isinstance(cv, int):
        cv = StratifiedSensitiveKFold(n_splits=5 if cv is None else cv)
    if scoring is None:
        scoring = {"accuracy": "accuracy", "dp": demographic_parity_scorer}
    several = isinstance(estimator, Mapping)
    models = estimator if several else {type(estimator).__name__: estimator}
    grids = _grids(models, param_name, param_range)
    curves = {}
    for name, grid in grids.items():
        warn_of_exact_scores(models[name], "tradeoff_curve")
        search = GridSearchCV(
            models[name],
            grid,
            scoring=scoring,
            cv=cv,
            n_jobs=n_jobs,
            return_train_score=return_train_score,
            refit=False,
            error_score="raise",
        )
        with config_context(enable_metadata_routing=True):
            search.fit(X, y, sensitive_features=sensitive_features, **(params or {}))
        curves[name] = pd.DataFrame({**grid, **_scores(search.cv_results_)})
    if not several:
        return next(iter(curves.values()))
    whole = pd.concat(curves, names=["estimator", None]).reset_index(level=0)
    varied = dict.fromkeys(parameter for grid in grids.values() for parameter in grid)
    return whole.reset_index(drop=True)[list(dict.fromkeys(["estimator", *varied, *whole]))]


def _grids(
    estimators: Mapping[str, Any], param_name: Any, param_range: Any
) -> dict[str, dict[str, list[Any]]]:
    """Return the parameter grid of each estimator; empty if it has no such parameter."""
    grids: dict[str, dict[str, list[Any]]] = {}
    for name, estimator in estimators.items():
        parameter = param_name.get(name) if isinstance(param_name, Mapping) else param_name
        values = param_range.get(name, ()) if isinstance(param_range, Mapping) else param_range
        varies = parameter in estimator.get_params()
        grids[name] = {str(parameter): list(values)} if varies else {}
    if param_name is not None and not any(grids.values()):
        raise ValueError(
            f"param_name must be a parameter of at least one of {list(estimators)}; got "
            f"{param_name!r}."
        )
    return grids


def _scores(cv_results: Mapping[str, Any]) -> dict[str, Any]:
    """Select means and deviations, then the test scores of single folds."""
    means = [key for key in cv_results if re.match("(mean|std)_(test|train|fit)_", key)]
    folds = [key for key in cv_results if re.match(r"split\d+_test_", key)]
    return {key: cv_results[key] for key in (*means, *folds)}
