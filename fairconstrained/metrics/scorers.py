"""Scorers of fairness metrics for ``cross_validate``, ``GridSearchCV`` and the like.

scikit-learn hands a scorer the estimator, X and y. The sensitive features come either by metadata
routing or from columns of X; :func:`fairness_scorer` makes both kinds.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn import config_context
from sklearn.metrics import make_scorer

from fairconstrained.metrics.auc import (
    bpsn_bnsp_gap,
    group_auc_gap,
    inter_group_auc_gap,
    intra_group_auc_gap,
    negative_equality_gap,
    positive_equality_gap,
)
from fairconstrained.metrics.information import exponential_renyi_mutual_information
from fairconstrained.metrics.losses import loss_gap
from fairconstrained.metrics.rates import (
    demographic_parity_difference,
    demographic_parity_ratio,
    equal_opportunity_difference,
    equalized_odds_difference,
    error_rate_difference,
    false_positive_rate_difference,
)

__all__ = [
    "bpsn_bnsp_scorer",
    "demographic_parity_ratio_scorer",
    "demographic_parity_scorer",
    "equal_opportunity_scorer",
    "equalized_odds_scorer",
    "error_rate_parity_scorer",
    "fairness_scorer",
    "false_positive_rate_parity_scorer",
    "group_auc_scorer",
    "inter_group_auc_scorer",
    "intra_group_auc_scorer",
    "loss_gap_scorer",
    "mutual_information_scorer",
    "negative_equality_scorer",
    "positive_equality_scorer",
]

Metric = Callable[..., float]
Scorer = Callable[..., float]

_NO_SENSITIVE_FEATURES = """\
{metric} got no sensitive_features. Give them to the scorer in one of these ways:
- metadata routing: call sklearn.set_config(enable_metadata_routing=True) once (in each thread), \
then search.fit(X, y, sensitive_features=s), search.score(X, y, sensitive_features=s) or \
cross_validate(..., params={{"sensitive_features": s}});
- a column of X, without routing: fairness_scorer({metric}, column="name of the column")."""


def fairness_scorer(
    metric: Metric,
    *,
    column: Any = None,
    response_method: str | list[str] = "predict",
    **kwargs: Any,
) -> Scorer:
    """Scorer of a metric that compares groups; greater is better.

    A gap is negated. A metric that is marked by :func:`~fairconstrained.metrics.greater_is_better`
    keeps its sign: the ratios of this package are.

    Parameters
    ----------
    metric : callable
        ``metric(y_true, y_pred, *, sensitive_features, **kwargs) -> float``, such as the metrics
        of this package or of fairlearn.
    column : column name, position, or list of them, optional
        Columns of X that hold the sensitive features: X as given to the search, before any step
        of a pipeline; a pandas or polars DataFrame, a numpy array or a sparse matrix. An integer
        that is no column's name is a position. By default the scorer asks for
        ``sensitive_features`` through scikit-learn's metadata routing.
    response_method : str or list of str, default="predict"
        What the metric judges: "predict", "predict_proba" (of the positive class if there are
        two), "decision_function", or the first that the estimator has of several.
    **kwargs
        More arguments of the metric, such as ``method="to_overall"``.

    Returns
    -------
    callable
        ``scorer(estimator, X, y)``; it can be pickled. The routed one is a scikit-learn scorer and
        also works in ``TunedThresholdClassifierCV`` (which gives its scorer no X, hence no
        column). To weight it too, call
        ``scorer.set_score_request(sensitive_features=True, sample_weight=True)`` on a scorer of
        your own, with routing enabled.

    Notes
    -----
    Where an error occurs, scikit-learn's searches return nan scores and continue; with
    ``error_score="raise"`` they show it.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from fairconstrained.metrics import demographic_parity_difference, fairness_scorer
    >>> X, y = [[0, 1], [1, 1], [2, 0], [3, 0]], [0, 1, 0, 1]
    >>> scorer = fairness_scorer(demographic_parity_difference, column=1)
    >>> scorer(LogisticRegression().fit(X, [0, 0, 1, 1]), X, y)
    -1.0
    """
    options = {
        "response_method": response_method,
        "greater_is_better": _grows_with_fairness(metric),
        **kwargs,
    }
    if column is not None:
        return _ColumnScorer(metric, column, options)
    scorer: Any = make_scorer(_Routed(metric), **options)
    with config_context(enable_metadata_routing=True):
        scorer.set_score_request(sensitive_features=True)
    return scorer  # type: ignore[no-any-return]


def _grows_with_fairness(metric: Metric) -> bool:
    function = metric.func if isinstance(metric, functools.partial) else metric
    return bool(getattr(function, "greater_is_better", False))


class _Routed:
    """`metric`, with an error that says how sensitive features reach a scorer."""

    def __init__(self, metric: Metric) -> None:
        self.__name__ = repr(metric)  # of a partial, which has no name of its own
        functools.update_wrapper(self, metric)
        self.metric = metric

    def __call__(self, *args: Any, sensitive_features: Any = None, **kwargs: Any) -> float:
        if sensitive_features is None:
            raise ValueError(_NO_SENSITIVE_FEATURES.format(metric=self.__name__))
        return self.metric(*args, sensitive_features=sensitive_features, **kwargs)


class _ColumnScorer:
    """Scorer that takes the sensitive features from columns of X."""

    def __init__(self, metric: Metric, column: Any, options: dict[str, Any]) -> None:
        self.metric = metric
        self.column = column
        self.options = options

    def __call__(
        self, estimator: Any, X: Any, y_true: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> float:
        options = {**self.options, "sensitive_features": _read_columns(X, self.column)}
        if sample_weight is not None:
            options["sample_weight"] = sample_weight
        return float(make_scorer(self.metric, **options)(estimator, X, y_true))

    def __repr__(self) -> str:
        name = getattr(self.metric, "__name__", repr(self.metric))
        options = "".join(f", {key}={value!r}" for key, value in self.options.items())
        return f"fairness_scorer({name}, column={self.column!r}{options})"


def _read_columns(X: Any, column: Any) -> dict[str, Any]:
    keys = column if isinstance(column, list) else [column]
    return {str(i): _read_column(X, key) for i, key in enumerate(keys)}


def _read_column(X: Any, key: Any) -> Any:
    names = list(getattr(X, "columns", ()))
    if key in names:
        return X[key]
    try:
        if names:
            return X[names[key]]
        values = (X if hasattr(X, "shape") else np.asarray(X, dtype=object))[:, [key]]
    except (TypeError, IndexError) as error:
        raise ValueError(
            f"column must name a column of X or be its position; got {key!r}, and X has the "
            f"columns {names or f'0 to {np.shape(X)[1] - 1}'}."
        ) from error
    return (values.toarray() if hasattr(values, "toarray") else values).reshape(-1)


demographic_parity_scorer = fairness_scorer(demographic_parity_difference)
demographic_parity_ratio_scorer = fairness_scorer(demographic_parity_ratio)
equal_opportunity_scorer = fairness_scorer(equal_opportunity_difference)
equalized_odds_scorer = fairness_scorer(equalized_odds_difference)
error_rate_parity_scorer = fairness_scorer(error_rate_difference)
false_positive_rate_parity_scorer = fairness_scorer(false_positive_rate_difference)
mutual_information_scorer = fairness_scorer(exponential_renyi_mutual_information)
loss_gap_scorer = fairness_scorer(loss_gap, response_method="predict_proba")


# AUC gaps judge scores; probabilities rank alike.
_SCORES = ["decision_function", "predict_proba"]
group_auc_scorer = fairness_scorer(group_auc_gap, response_method=_SCORES)
inter_group_auc_scorer = fairness_scorer(inter_group_auc_gap, response_method=_SCORES)
intra_group_auc_scorer = fairness_scorer(intra_group_auc_gap, response_method=_SCORES)
positive_equality_scorer = fairness_scorer(positive_equality_gap, response_method=_SCORES)
negative_equality_scorer = fairness_scorer(negative_equality_gap, response_method=_SCORES)
bpsn_bnsp_scorer = fairness_scorer(bpsn_bnsp_gap, response_method=_SCORES)
