"""Scorers of fairness metrics for ``cross_validate``, ``GridSearchCV`` and the like.

scikit-learn hands a scorer the estimator, X and y. The sensitive features come by metadata routing,
from columns of X, or from the scorer itself; :func:`fairness_scorer` makes all three kinds.
"""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.metrics import accuracy_score, make_scorer

from fairconstrained.arrays import read_columns
from fairconstrained.exceptions import warn_caller
from fairconstrained.metrics import auc, rates
from fairconstrained.metrics.dependence import exponential_renyi_mutual_information
from fairconstrained.metrics.inputs import CONSTANT, nearly_constant
from fairconstrained.metrics.probabilities import loss_gap

Metric = Callable[..., float]
# Ends of the names of metrics that are large where a model is fair.
GROW_WITH_FAIRNESS = "_ratio", "_group_min"
USEFUL = "of use: "  # before the name of a scorer in `scoring_all_models`

_NO_SENSITIVE_FEATURES = """\
{metric} got no sensitive_features. Give them to the scorer in one of these ways:
- metadata routing: call sklearn.set_config(enable_metadata_routing=True) once (in each thread), \
then search.fit(X, y, sensitive_features=s), search.score(X, y, sensitive_features=s) or \
cross_validate(..., params={{"sensitive_features": s}});
- a column of X, without routing: fairness_scorer({metric}, column="name of the column");
- held by the scorer, without routing: fairness_scorer({metric}, sensitive_features=s)."""


def fairness_scorer(
    metric: Metric,
    *,
    column: Any = None,
    sensitive_features: Any = None,
    response_method: str | list[str] = "predict",
    greater_is_better: bool | None = None,
    **kwargs: Any,
) -> Callable[..., float]:
    """Make a scorer of a metric that compares groups; greater is better.

    A metric that falls with fairness is negated. A model that predicts the same for 99 % of
    the rows or more has no score, but nan and a warning: it keeps any bound on a gap without being
    of use, and a search must not choose it. The metric itself has its value, and so has
    :func:`~fairconstrained.model_selection.tradeoff_curve`, which chooses nothing.

    Parameters
    ----------
    metric : callable
        ``metric(y_true, y_pred, *, sensitive_features, **kwargs) -> float``, such as the metrics
        of this package or of fairlearn.
    column : column name, position, or list of them, optional
        Columns of X that hold the sensitive features: X as given to the search, before any step
        of a pipeline. An integer that is no column's name is a position.
    sensitive_features : array-like of shape (n_samples,) or (n_samples, n_columns), optional
        Groups that the scorer holds, for callers that route no metadata, such as
        :func:`sklearn.inspection.permutation_importance`. From a pandas Series or DataFrame the
        rows with the index of X are taken; otherwise X must have the same rows in the same order.
        Without `column` and this the scorer asks for ``sensitive_features`` by metadata routing.
    response_method : str or list of str, default="predict"
        The response that the metric takes: "predict", "predict_proba" (of the positive class if
        there are two), or "decision_function". Of several it is the first that the estimator has.
    greater_is_better : bool, optional
        Whether the metric grows with fairness. By default names that end in ``_ratio`` or
        ``_group_min`` do; those that end in ``_difference``, ``_gap`` or ``_group_max`` do not,
        nor do the other metrics of this package.
    **kwargs
        More arguments of the metric, such as ``method="to_overall"``.

    Returns
    -------
    callable
        ``scorer(estimator, X, y)``; it can be pickled. The routed one of a metric with
        `control_features` compares groups within those that are routed to fits. It also works in
        ``TunedThresholdClassifierCV``, which gives its scorer no X and chooses among thresholds at
        which the labels of fewer than 99 % of the rows are the same. To weight it too, call
        ``scorer.set_score_request(sensitive_features=True, sample_weight=True)`` on a scorer of
        your own, with routing enabled.

    Raises
    ------
    ValueError
        If nothing says whether the metric grows with fairness, or if there are both `column` and
        `sensitive_features`.

    Notes
    -----
    After an error scikit-learn's searches return nan scores and continue. With
    ``error_score="raise"`` they show the error.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from fairconstrained.metrics import demographic_parity_difference, fairness_scorer
    >>> X, y = [[0, 1], [1, 1], [2, 0], [3, 0]], [0, 1, 0, 1]
    >>> scorer = fairness_scorer(demographic_parity_difference, column=1)
    >>> scorer(LogisticRegression().fit(X, [0, 0, 1, 1]), X, y)
    -1.0
    """
    if not callable(metric):
        raise ValueError(f"metric must be a function, such as those of metrics; got {metric!r}.")
    name, function = name_of(metric), getattr(metric, "func", metric)
    if greater_is_better is None:
        greater_is_better = name.endswith(GROW_WITH_FAIRNESS)
        falls = name.endswith(("_difference", "_gap", "_group_max"))
        ours = str(function.__module__).startswith("fairconstrained.metrics.")
        if not (greater_is_better or falls or ours):
            raise ValueError(
                f"greater_is_better must say whether {name} grows with fairness (True) or falls "
                "(False); got None, and the name does not end in _ratio, _group_min, _difference, "
                "_gap or _group_max."
            )
    options = {"response_method": response_method, "greater_is_better": greater_is_better, **kwargs}
    if column is not None and sensitive_features is not None:
        raise ValueError(
            f"column must be None where sensitive_features are given; got column={column!r}."
        )
    if column is None and sensitive_features is None:
        within_strata = "control_features" in inspect.signature(metric).parameters
        return (_StratifiedScorer if within_strata else _RoutedScorer)(metric, options)
    return _ReadingScorer(metric, column, sensitive_features, options)


def name_of(metric: Callable[..., float]) -> str:
    """Return the name of a metric, or of the function of a ``functools.partial``."""
    function = metric.func if isinstance(metric, functools.partial) else metric
    return str(getattr(function, "__name__", repr(function)))


class _WithGroups:
    """A metric that, without sensitive features, raises an error that says how to pass them.

    A scorer has its value judged. TunedThresholdClassifierCV asks for it at each threshold, without
    a judge, and takes the first nan for the best: near constants and values that are not defined
    get the `worst` value there.
    """

    def __init__(self, metric: Metric, worst: float) -> None:
        self.__name__ = getattr(metric, "__name__", repr(metric))  # a partial with its options
        self.metric, self.worst = metric, worst

    def __call__(
        self,
        y_true: Any,
        y_pred: Any,
        *,
        sensitive_features: Any = None,
        judge: Callable[[float, Any, Metric], float] | None = None,
        **kwargs: Any,
    ) -> float:
        if sensitive_features is None:
            raise ValueError(_NO_SENSITIVE_FEATURES.format(metric=self.__name__))
        score = self.metric(y_true, y_pred, sensitive_features=sensitive_features, **kwargs)
        if judge is not None:
            return judge(score, y_pred, self.metric)
        return score if _use(score, y_pred, self.metric) else self.worst


def _nan_without_use(score: float, predictions: Any, metric: Metric) -> float:
    """Return the score of the predictions, or nan with a warning if they are nearly constant."""
    if not nearly_constant(predictions):
        return score
    warn_caller(
        f"{name_of(metric)} has no score, but nan, for a model whose predictions are within "
        f"{CONSTANT:g} of a constant: a useless model keeps any bound on a gap.",
        UserWarning,
    )
    return float("nan")


def _score(score: float, predictions: Any, metric: Metric) -> float:
    return score


def _use(score: float, predictions: Any, metric: Metric) -> float:
    return float(not nearly_constant(predictions) and not np.isnan(score))


def scoring_all_models(scoring: Mapping[str, Any]) -> dict[str, Any]:
    """Return scorers that do not leave out useless models, each beside a scorer of usefulness.

    Usefulness is 1, or -1 where scores are negated, if the predictions are not nearly constant and
    have a score, otherwise 0; the scorer's name begins with `USEFUL`.
    """
    scorers = dict(scoring)
    for name, scorer in scoring.items():
        if isinstance(scorer, (_RoutedScorer, _ReadingScorer)):
            scorers[name], scorers[USEFUL + name] = copy.copy(scorer), copy.copy(scorer)
            scorers[name].judge, scorers[USEFUL + name].judge = _score, _use
    return scorers


_SklearnScorer: Any = type(make_scorer(accuracy_score))


class _RoutedScorer(_SklearnScorer):  # type: ignore[misc]
    """Scorer that asks for sensitive features by metadata routing.

    The request is an attribute of the class: one made by ``set_score_request`` lacks the methods
    that other packages (imbalanced-learn's ``fit_resample``) add to scikit-learn's requests later.
    """

    __metadata_request__score = {"sensitive_features": True}  # noqa: RUF012
    judge = staticmethod(_nan_without_use)  # of a score, the predictions and the metric

    def __init__(self, metric: Metric, options: dict[str, Any]) -> None:
        # Finite, since scikit-learn interpolates between thresholds.
        worst = float(np.finfo(np.float32).min) * (1 if options["greater_is_better"] else -1)
        self.__dict__.update(vars(make_scorer(_WithGroups(metric, worst), **options)))

    def _score(self, *samples: Any, **kwargs: Any) -> float:
        """Score an estimator; TunedThresholdClassifierCV calls the metric itself."""
        return float(super()._score(*samples, **kwargs, judge=self.judge))


class _StratifiedScorer(_RoutedScorer):
    """Scorer that also asks for strata, for metrics that compare groups within strata."""

    __metadata_request__score = {"control_features": True}  # noqa: RUF012


# scikit-learn 1.6 generates narrower methods, which take no other metadata.
for _scorer in (_RoutedScorer, _StratifiedScorer):
    _scorer.set_score_request = _SklearnScorer.set_score_request


class _ReadingScorer:
    """Scorer that reads the sensitive features from columns of X, or holds them."""

    judge = staticmethod(_nan_without_use)

    def __init__(self, metric: Metric, column: Any, held: Any, options: dict[str, Any]) -> None:
        self.metric, self.column, self.held, self.options = metric, column, held, options

    def __call__(
        self, estimator: Any, X: Any, y_true: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> float:
        groups = self.held
        if self.column is not None:
            groups = read_columns(X, self.column)
        elif hasattr(X, "index") and hasattr(groups, "loc"):
            if not groups.index.is_unique:
                raise ValueError(
                    "sensitive_features must have an index without repetitions to be found by it; "
                    f"got {groups.index[groups.index.duplicated()].tolist()[0]!r} more than once."
                )
            if len(unknown := X.index.difference(groups.index)):
                raise ValueError(
                    f"sensitive_features has no row {unknown.tolist()[0]!r}, nor "
                    f"{len(unknown) - 1} other rows of the index of X."
                )
            groups = groups.loc[X.index]
        options = {**self.options, "sensitive_features": groups, "judge": self.judge}
        if sample_weight is not None:
            options["sample_weight"] = sample_weight
        scorer = make_scorer(_WithGroups(self.metric, np.nan), **options)
        return float(scorer(estimator, X, y_true))

    def __repr__(self) -> str:
        held = f"sensitive_features=<{type(self.held).__name__}>"
        source = held if self.column is None else f"column={self.column!r}"
        name = getattr(self.metric, "__name__", repr(self.metric))
        options = "".join(f", {key}={value!r}" for key, value in self.options.items())
        return f"fairness_scorer({name}, {source}{options})"


_SCORES = ["decision_function", "predict_proba"]  # AUC gaps judge scores; probabilities rank alike
demographic_parity_scorer = fairness_scorer(rates.demographic_parity_difference)
demographic_parity_ratio_scorer = fairness_scorer(rates.demographic_parity_ratio)
equal_opportunity_scorer = fairness_scorer(rates.equal_opportunity_difference)
equalized_odds_scorer = fairness_scorer(rates.equalized_odds_difference)
error_rate_parity_scorer = fairness_scorer(rates.error_rate_difference)
false_positive_rate_parity_scorer = fairness_scorer(rates.false_positive_rate_difference)
predictive_parity_scorer = fairness_scorer(rates.predictive_parity_difference)
false_omission_rate_parity_scorer = fairness_scorer(rates.false_omission_rate_difference)
mutual_information_scorer = fairness_scorer(exponential_renyi_mutual_information)
loss_gap_scorer = fairness_scorer(loss_gap, response_method="predict_proba")
group_auc_scorer = fairness_scorer(auc.group_auc_gap, response_method=_SCORES)
inter_group_auc_scorer = fairness_scorer(auc.inter_group_auc_gap, response_method=_SCORES)
intra_group_auc_scorer = fairness_scorer(auc.intra_group_auc_gap, response_method=_SCORES)
positive_equality_scorer = fairness_scorer(auc.positive_equality_gap, response_method=_SCORES)
negative_equality_scorer = fairness_scorer(auc.negative_equality_gap, response_method=_SCORES)
bpsn_bnsp_scorer = fairness_scorer(auc.bpsn_bnsp_gap, response_method=_SCORES)
