"""Splits, choices and trade-off curves for models with fairness constraints."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn import config_context
from sklearn.model_selection import GridSearchCV, StratifiedKFold

from fairconstrained.exceptions import ConstraintNotSatisfiedWarning, SmallGroupWarning
from fairconstrained.groups import encode_groups, group_name
from fairconstrained.metrics import demographic_parity_scorer
from fairconstrained.metrics._tables import check_labels, encode_labels
from fairconstrained.privacy.search import search_privacy_cost

__all__ = [
    "StratifiedSensitiveKFold",
    "pareto_front",
    "search_privacy_cost",
    "select_feasible",
    "tradeoff_curve",
]

Choose = Callable[[Mapping[str, Any]], int]


class StratifiedSensitiveKFold(StratifiedKFold):  # type: ignore[misc]
    """K folds with the same proportions of every label within every group.

    The strata of :class:`sklearn.model_selection.StratifiedKFold` are the combinations of label and
    group, so that the rates of each group can be measured in each fold.

    Parameters
    ----------
    n_splits : int, default=5
        Number of folds, at least 2.
    shuffle : bool, default=False
        Whether to shuffle each stratum before it is split.
    random_state : int, RandomState instance or None, default=None
        Seed of the shuffling.

    Notes
    -----
    With scikit-learn's metadata routing enabled, searches hand over `sensitive_features` by
    themselves. Without it pass them as ``groups=``.

    Examples
    --------
    >>> from fairconstrained.model_selection import StratifiedSensitiveKFold
    >>> y, sex = [0, 0, 0, 0, 1, 1, 1, 1], ["f", "f", "m", "m", "f", "f", "m", "m"]
    >>> cv = StratifiedSensitiveKFold(n_splits=2)
    >>> [test.tolist() for _, test in cv.split(y, y, sensitive_features=sex)]
    [[0, 2, 4, 6], [1, 3, 5, 7]]
    """

    __metadata_request__split = {"sensitive_features": True}  # noqa: RUF012 (scikit-learn's way)

    def split(
        self, X: Any, y: ArrayLike, groups: Any = None, sensitive_features: Any = None
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Indices of the training and test rows of each fold.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Only its length matters.
        y : array-like of shape (n_samples,)
            Class labels.
        groups : array-like, optional
            Sensitive features, for callers that hand over ``groups`` only.
        sensitive_features : array-like of shape (n_samples,) or (n_samples, n_columns), optional
            One group per combination of values. Without them, strata are the labels.

        Yields
        ------
        train, test : ndarray

        Raises
        ------
        ValueError
            Both `groups` and `sensitive_features`, missing values, lengths that differ, or no
            stratum with as many rows as there are folds.

        Warns
        -----
        SmallGroupWarning
            Names the strata with fewer rows than folds: some folds lack them.
        """
        if groups is not None and sensitive_features is not None:
            raise ValueError("Give sensitive_features or groups, not both: they mean the same.")
        sensitive = groups if sensitive_features is None else sensitive_features
        strata = self._strata(y, sensitive)
        with warnings.catch_warnings():  # the scikit-learn warning speaks of classes, not strata
            warnings.simplefilter("ignore", UserWarning)
            folds = list(super().split(X, strata))
        yield from folds

    def get_n_splits(
        self, X: Any = None, y: Any = None, groups: Any = None, sensitive_features: Any = None
    ) -> int:
        """Number of folds; the arguments do not matter (searches pass them)."""
        return int(self.n_splits)

    def _strata(self, y: ArrayLike, sensitive: Any) -> NDArray[np.int64]:
        (label,), classes = encode_labels(check_labels(y, "y"))
        if sensitive is None:
            index, names = label, [f"label {c!r}" for c in classes]
        else:
            group = encode_groups(sensitive, len(label))
            index = label * len(group.labels) + group.codes
            names = [f"label {c!r} in group {group_name(g)}" for c in classes for g in group.labels]
        counts = np.bincount(index, minlength=len(names))
        small = (counts > 0) & (counts < self.n_splits)
        listed = "; ".join(f"{names[i]}: {counts[i]} rows" for i in np.flatnonzero(small))
        if small.sum() == (counts > 0).sum():
            raise ValueError(
                f"n_splits={self.n_splits} is more than the rows of every stratum ({listed})."
            )
        if small.any():
            message = f"Fewer rows than n_splits={self.n_splits}, hence missing in some folds: "
            warnings.warn(message + listed, SmallGroupWarning, stacklevel=3)
        return index


def select_feasible(
    score: str = "accuracy", violation: str = "dp", max_violation: float = 0.05
) -> Choose:
    """Choose the best candidate of a search among those that keep a fairness constraint.

    Parameters
    ----------
    score, violation : str
        Names in the search's `scoring`. The violation is a fairness scorer, which gives the
        *negated* gap: the violation is ``-mean_test_<violation>``.
    max_violation : float, default=0.05
        Largest mean violation over the test folds of a feasible candidate.

    Returns
    -------
    callable
        For the parameter `refit` of ``GridSearchCV`` and the like; it can be pickled. It returns
        the index of the highest mean score among the feasible candidates (of equal ones the less
        violating), and where none is feasible the least violation (of equal ones the better
        score). Candidates with a nan are never chosen.

    Raises
    ------
    ValueError
        When called: a name that is not in `scoring`, a violation that is not a negated gap, or no
        candidate without nan.

    Warns
    -----
    ConstraintNotSatisfiedWarning
        When called and no candidate is feasible.

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
    return functools.partial(
        _best_feasible, score=score, violation=violation, max_violation=max_violation
    )


def _best_feasible(
    cv_results: Mapping[str, Any], *, score: str, violation: str, max_violation: float
) -> int:
    scores = _mean_scores(cv_results, score)
    violations = -_mean_scores(cv_results, violation)
    usable = np.flatnonzero(~np.isnan(scores) & ~np.isnan(violations))
    if not usable.size:
        raise ValueError(
            f"Every candidate has a nan score in {score!r} or {violation!r}. Fairness scorers need "
            "sensitive_features: enable metadata routing, or give them column=; "
            'error_score="raise" in the search shows the cause.'
        )
    if violations[usable].min() < 0:
        raise ValueError(
            f"violation must name a scorer of a negated gap, at most 0; got {violation!r} with a "
            f"mean of {-violations[usable].min():.3g}."
        )
    feasible = usable[violations[usable] <= max_violation]
    if feasible.size:
        return int(feasible[np.lexsort((violations[feasible], -scores[feasible]))[0]])
    least = int(usable[np.lexsort((-scores[usable], violations[usable]))[0]])
    warnings.warn(
        f"No candidate keeps {violation!r} within max_violation={max_violation:g}; chose the least "
        f"violation, {violations[least]:.3g}.",
        ConstraintNotSatisfiedWarning,
        stacklevel=2,
    )
    return least


def _mean_scores(cv_results: Mapping[str, Any], name: str) -> NDArray[np.float64]:
    prefix = "mean_test_"
    if prefix + name not in cv_results:
        known = [key.removeprefix(prefix) for key in cv_results if key.startswith(prefix)]
        raise ValueError(f"{name!r} is not among the scores of the search, {known}.")
    return np.asarray(cv_results[prefix + name], dtype=float)


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
        likewise), ``mean_fit_time`` and ``std_fit_time`` in seconds. Named as in ``cv_results_``,
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
    columns = {key: column for key, column in results.items() if key.startswith(prefixes)}
    return pd.DataFrame({param_name: pd.Series(values), **columns})


def pareto_front(error: ArrayLike, violation: ArrayLike) -> NDArray[np.bool_]:
    """Which points no other point beats, both quantities to be small.

    A point is beaten by one that is no worse in both and better in one; equal points do not beat
    each other. Points with a nan are not on the front. O(n log n).

    Parameters
    ----------
    error, violation : array-like of shape (n_points,)

    Returns
    -------
    ndarray of shape (n_points,), bool

    Raises
    ------
    ValueError
        If the shapes differ or are not one-dimensional.

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
