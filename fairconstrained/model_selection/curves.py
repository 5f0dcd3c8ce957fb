"""Cross-validated scores along one parameter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from numpy.typing import ArrayLike
from sklearn import config_context
from sklearn.model_selection import GridSearchCV

from fairconstrained.metrics import demographic_parity_scorer
from fairconstrained.model_selection.splits import StratifiedSensitiveKFold

__all__ = ["tradeoff_curve"]


def tradeoff_curve(
    estimator: Any,
    X: Any,
    y: ArrayLike,
    *,
    sensitive_features: Any,
    param_name: str,
    param_range: Sequence[Any],
    cv: Any = None,
    scoring: Any = None,
    params: Mapping[str, Any] | None = None,
    return_train_score: bool = False,
    n_jobs: int | None = None,
) -> pd.DataFrame:
    """Cross-validated scores along one parameter, such as the slack of a constraint.

    Parameters
    ----------
    estimator : estimator
        Also a pipeline; each step that asks for `sensitive_features` receives them.
    X : array-like of shape (n_samples, n_features)
    y : array-like of shape (n_samples,)
    sensitive_features : array-like of shape (n_samples,) or (n_samples, n_columns)
    param_name : str
        Parameter to vary, such as ``"slack"``, or ``"clf__slack"`` in a pipeline.
    param_range : sequence
        Its values.
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
        and so on of single folds. Named as in ``cv_results_``,
        so that :func:`select_feasible` and
        :meth:`~fairconstrained.display.TradeoffDisplay.from_cv_results` read it.

    Raises
    ------
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
    """
    if cv is None or isinstance(cv, int):
        cv = StratifiedSensitiveKFold(n_splits=5 if cv is None else cv)
    if scoring is None:
        scoring = {"accuracy": "accuracy", "dp": demographic_parity_scorer}
    values = list(param_range)
    with config_context(enable_metadata_routing=True):
        search = GridSearchCV(
            estimator,
            {param_name: values},
            scoring=scoring,
            cv=cv,
            refit=False,
            n_jobs=n_jobs,
            return_train_score=return_train_score,
            error_score="raise",
        ).fit(X, y, sensitive_features=sensitive_features, **(params or {}))
    results = search.cv_results_
    prefixes = ("mean_test_", "std_test_", "mean_train_", "std_train_", "mean_fit_", "std_fit_")
    folds = [key for key in results if key.startswith("split") and "_test_" in key]
    columns = {key: column for key, column in results.items() if key.startswith(prefixes)}
    columns |= {key: results[key] for key in folds}
    return pd.DataFrame({param_name: pd.Series(values), **columns})
