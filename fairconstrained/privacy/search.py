"""The total privacy cost of a cross-validated search over private estimators."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any, NamedTuple

from sklearn.base import clone, is_classifier
from sklearn.model_selection import (
    KFold,
    LeaveOneOut,
    LeavePOut,
    PredefinedSplit,
    RepeatedKFold,
    RepeatedStratifiedKFold,
    ShuffleSplit,
    StratifiedKFold,
    StratifiedShuffleSplit,
    TimeSeriesSplit,
)
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from fairconstrained.exceptions import PrivacyWarning, warn_caller
from fairconstrained.privacy._loss_distributions import from_guarantees
from fairconstrained.privacy.accounting import (
    MIN_DELTA,
    UNITS,
    Budget,
    check_budget,
    check_positive,
    rounded_up,
)

__all__ = ["FitBudget", "SearchPrivacyCost", "epsilon_per_fit", "search_privacy_cost"]

_HALVINGS = 20

# Splitters whose folds depend on the number of rows (public) only, or on labels too.
_BY_POSITION = {
    *(KFold, LeaveOneOut, LeavePOut, PredefinedSplit, RepeatedKFold, ShuffleSplit, TimeSeriesSplit)
}
_BY_LABEL = {StratifiedKFold, StratifiedShuffleSplit, RepeatedStratifiedKFold}


@dataclass(frozen=True)
class SearchPrivacyCost:
    """Privacy of all models that a search trained, taken together.

    Attributes
    ----------
    epsilon, delta : float
        Differential privacy of releasing all of the models.
    unit : {"record", "record_replacement", "sensitive_features"}
        The difference between neighbouring data sets.
    n_fits : int
        Number of fits that see any one row, at most.
    words : str
        Scope and assumptions in words; also the ``str`` of the object.
    """

    epsilon: float
    delta: float
    unit: str
    n_fits: int
    words: str

    def __str__(self) -> str:
        return self.words


_WORDS = """\
All models that the search trained, together: epsilon = {epsilon} and delta = {delta:.4g}.
Protected: the {unit} ({difference}).
Counted: {n_candidates} candidates on {seen} training sets that hold any one row{refit}, \
{n_fits} fits.
Not covered: scores of held-out rows are computed from exact data, and the best candidate is \
chosen by them. Publish neither, unless the scores are computed on public data.
Assumed: which row is in which fold depends on no protected data; other steps of a pipeline learn \
nothing from protected data; every fit draws noise of its own (random_state=None)."""


def search_privacy_cost(search: Any, *, delta: float | None = None) -> SearchPrivacyCost:
    """Privacy of all models that a fitted search has trained on its folds, and of the refit.

    The attribute ``privacy_`` of ``best_estimator_`` is about its own fit only. The search has also
    trained every other candidate on every fold. Whoever sees those models, or anything made of
    them, learns more.

    Parameters
    ----------
    search : GridSearchCV or the like, fitted
        Its estimator, or steps of its pipeline, have the parameters `epsilon` and `delta`, which
        candidates may vary.
    delta : float, optional
        At which to report epsilon; by default twice the sum of the deltas of all fits.

    Returns
    -------
    SearchPrivacyCost
        ``str`` of it is a text for the people who decide about the release.

    Raises
    ------
    ValueError
        If no part of the estimator has the parameters `epsilon` and `delta`; if one is inside an
        ensemble or another meta-estimator, which may fit it any number of times; or if `delta` is
        below the sum of the deltas of all fits.

    Warns
    -----
    PrivacyWarning
        In three cases, in which the bound does not hold. The folds depend on protected data, so
        that one person's data decide in which fold others are. Stratified folds (the default of
        searches over classifiers) depend on labels, those of ``StratifiedSensitiveKFold`` also on
        sensitive features, and ``KFold(shuffle=True)`` on neither. Fits are seeded
        (``random_state``), so that differences between fits with the same noise show what it hides.
        Another step of a pipeline is fitted on the same protected rows.

    Notes
    -----
    A row is in all training sets but one of a K-fold split, and in the refit. Fits are composed
    from their (epsilon, delta) alone, each charged what its candidate was allowed to spend, by the
    optimal composition theorem [1]_ or by their sum, whichever is less. The refit is charged the
    largest epsilon and delta of all candidates, because the winner is not known beforehand.

    **Not covered:** scores on held-out rows are computed from exact data, and so is the choice of
    the winner by them. Neither is differentially private, unless scores are computed on public
    data. If the winner is refitted and released, its parameters have been chosen by exact scores.

    References
    ----------
    .. [1] Kairouz, Oh and Viswanath (2015), "The Composition Theorem for Differential Privacy".

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.base import BaseEstimator, ClassifierMixin
    >>> from sklearn.model_selection import GridSearchCV, KFold
    >>> from fairconstrained.model_selection import search_privacy_cost
    >>> class Private(ClassifierMixin, BaseEstimator):  # any estimator with these parameters
    ...     def __init__(self, epsilon=1.0, delta=1e-6, slack=0.1):
    ...         self.epsilon, self.delta, self.slack = epsilon, delta, slack
    ...     def fit(self, X, y):
    ...         self.classes_ = np.unique(y)
    ...         return self
    ...     def predict(self, X):
    ...         return np.zeros(len(X), dtype=int)
    >>> X, y = np.zeros((20, 1)), np.arange(20) % 2
    >>> search = GridSearchCV(Private(), {"slack": [0.05, 0.1]}, cv=KFold(3)).fit(X, y)
    >>> cost = search_privacy_cost(search)
    >>> print(f"{cost.n_fits} fits: epsilon {cost.epsilon:.2f}, delta {cost.delta:.1e}")
    5 fits: epsilon 5.00, delta 1.0e-05
    """
    check_is_fitted(search, "cv_results_")
    estimators = [
        clone(search.estimator).set_params(**clone(params, safe=False))
        for params in search.cv_results_["params"]
    ]
    candidates = list(map(_budgets, estimators))
    if not all(candidates):
        params = search.cv_results_["params"][candidates.index([])]
        raise ValueError(
            f"{search.estimator!r} with {params} has no part with the parameters epsilon and "
            "delta: nothing in it is private."
        )
    units = {budget.unit for budgets in candidates for budget in budgets}
    if len(units) > 1:
        raise ValueError(f"Candidates protect different things, {sorted(units)}: no sum exists.")
    (unit,) = units
    _check_folds(search, unit)
    check_steps(estimators, unit)
    seen = search.n_splits_ - _is_partition(search)  # training sets that hold a given row
    fits: Counter[tuple[float, float]] = Counter()
    for budgets in candidates:
        fits.update({(b.epsilon, b.delta): seen for b in budgets})
    n_fits = seen * len(candidates)
    if search.refit:
        fits.update(_dearest(candidates))
        n_fits += 1
    least = sum(n * d for (_, d), n in fits.items())
    delta = max(2 * least, MIN_DELTA) if delta is None else delta
    check_budget(delta=delta, unit=unit)
    if delta < least:
        raise ValueError(
            f"delta must be at least {least:.3g}, the sum of the deltas of all fits; got {delta!r}."
        )
    # Basic composition holds at any delta from `least` on.
    epsilon = min(sum(n * e for (e, _), n in fits.items()), from_guarantees(fits, delta))
    words = _WORDS.format(
        n_candidates=len(candidates),
        seen=seen,
        refit=" and the refit" if search.refit else "",
        n_fits=n_fits,
        epsilon=rounded_up(epsilon),
        delta=delta,
        unit=unit.replace("_", " "),
        difference=UNITS[unit],
    )
    return SearchPrivacyCost(epsilon, delta, unit, n_fits, words)


def check_steps(candidates: list[Any], unit: str) -> None:
    """Warn of noise that is not every fit's own, and of steps that read the rows exactly."""
    seeds: dict[str, None] = {}  # in order, each once
    learning: dict[str, None] = {}
    for candidate in candidates:
        for step in _steps(candidate):
            if _is_private(step):
                seed = step.get_params(deep=False).get("random_state")
                seeds |= {} if seed is None else {repr(seed): None}
            elif unit != "sensitive_features" and get_tags(step).requires_fit:
                learning[type(step).__name__] = None
    if seeds:
        _warn(
            f"The fits of this search are seeded (random_state={', '.join(seeds)}): they are not "
            "independent, differences between them can cancel their noise, and the bound for all "
            "of them does not hold. Use random_state=None."
        )
    if learning:
        _warn(
            f"The pipeline fits {', '.join(learning)} on the protected rows, exactly: what it "
            "learns of them is part of every model and in no epsilon. Give it public numbers, or "
            "leave it out and give feature_range."
        )


def warn_of_exact_scores(estimator: Any, what: str) -> None:
    """Warn of private fits that are made several times, and compared by exact numbers."""
    params = estimator.get_params()
    if any(name.split("__")[-1] == "epsilon" and params[name] is not None for name in params):
        _warn(
            f"{what} fits a private estimator several times, and what it tells of held-out rows is "
            "exact: no epsilon covers its result. Hold out public rows, and publish one fit that "
            "was not chosen by others, or use PrivateGridSearch."
        )


def _steps(estimator: Any) -> list[Any]:
    """The estimators that a pipeline fits one after the other."""
    if not isinstance(estimator, Pipeline):
        return [estimator]
    steps = [step for _, step in estimator.steps if step not in (None, "passthrough")]
    return [inner for step in steps for inner in _steps(step)]


def _is_private(estimator: Any) -> bool:
    return {"epsilon", "delta"} <= set(estimator.get_params(deep=False))


def _budgets(estimator: Any) -> list[Budget]:
    """The budget of one fit, for each private part."""
    if isinstance(estimator, Pipeline):
        return [budget for step in _steps(estimator) for budget in _budgets(step)]
    own = estimator.get_params(deep=False)
    if _is_private(estimator):
        solver = own.get("solver")
        if not getattr(solver, "keeps_budget", True):
            raise ValueError(
                f"{type(solver).__name__} may spend more than epsilon: the cost of a search over "
                "it cannot be told from parameters. See privacy_ of each fit."
            )
        epsilon = math.inf if own["epsilon"] is None else own["epsilon"]
        if isinstance(epsilon, Budget):
            return [epsilon]
        return [Budget(float(epsilon), float(own["delta"]), own.get("protect", "record"))]
    nested = set(estimator.get_params())
    if any(
        f"{name.removesuffix('epsilon')}delta" in nested
        for name in nested
        if name.endswith("__epsilon")
    ):
        raise ValueError(
            f"{type(estimator).__name__} may fit the private estimator inside it any number of "
            "times: its cost cannot be told from parameters."
        )
    return []


def _dearest(candidates: list[list[Budget]]) -> dict[tuple[float, float], int]:
    """The refit, of whichever candidate."""
    budgets = [budget for budgets in candidates for budget in budgets]
    largest = max(b.epsilon for b in budgets), max(b.delta for b in budgets)
    return {largest: max(map(len, candidates))}


def _splitter(search: Any) -> Any:
    """The class of the search's splitter; None for splits that were given as indices."""
    if search.cv is None or isinstance(search.cv, int):
        return StratifiedKFold if is_classifier(search.estimator) else KFold
    return type(search.cv) if hasattr(search.cv, "split") else None


def _is_partition(search: Any) -> bool:
    """Whether every row is held out exactly once."""
    splitter = _splitter(search)
    return splitter is not None and issubclass(splitter, (KFold, StratifiedKFold, LeaveOneOut))


def _check_folds(search: Any, unit: str) -> None:
    splitter = _splitter(search)
    public = _BY_POSITION | (_BY_LABEL if unit == "sensitive_features" else set())
    if splitter in public | {None}:
        return
    _warn(
        f"The folds of {splitter.__name__} may depend on protected data, and then one row decides "
        "in which folds others are: the bound of search_privacy_cost does not hold. Use "
        "KFold(shuffle=True)."
    )


def _warn(message: str) -> None:
    warn_caller(message, PrivacyWarning)


class FitBudget(NamedTuple):
    """The budget of each fit of a search.

    Examples
    --------
    >>> from fairconstrained.model_selection import epsilon_per_fit
    >>> budget = epsilon_per_fit(3.0, n_candidates=4, cv=5, delta=1e-5)
    >>> print(f"{budget.delta:.2e}")
    2.94e-07
    """

    epsilon: float
    delta: float


def epsilon_per_fit(
    total: float, n_candidates: int, cv: int, *, delta: float = 1e-5, refit: bool = True
) -> FitBudget:
    """Budget of each fit with which all models of a search keep a total.

    The inverse of :func:`search_privacy_cost` for candidates of equal budgets.

    Parameters
    ----------
    total : float
        Epsilon of all models together.
    n_candidates : int
    cv : int
        Number of folds; each row is in all training sets but one.
    delta : float, default=1e-5
        Delta of all models together. Half of it is divided among the fits, half is for composition.
    refit : bool, default=True
        Whether the winner is fitted once more, on all rows.

    Returns
    -------
    FitBudget
        ``epsilon`` and ``delta`` to give to the estimator. Held-out scores, and the choice made by
        them, are not covered.

    Examples
    --------
    >>> from fairconstrained.model_selection import epsilon_per_fit
    >>> budget = epsilon_per_fit(1.0, n_candidates=3, cv=5)
    >>> print(f"{budget.epsilon:.3f}")
    0.079
    """
    counts = {"n_candidates": (n_candidates, 1), "cv": (cv, 2)}
    for name, (value, least) in counts.items():
        if value != int(value) or value < least:
            raise ValueError(f"{name} must be an integer >= {least}; got {value!r}.")
    check_positive("total", total)
    check_budget(delta=delta, unit="record")
    n_fits = (cv - 1) * n_candidates + bool(refit)
    own = delta / (2 * n_fits)
    low, high = total / n_fits, total  # the sum always holds
    for _ in range(_HALVINGS):
        middle = (low * high) ** 0.5
        fits = Counter({(middle, own): n_fits})
        low, high = (middle, high) if from_guarantees(fits, delta) <= total else (low, middle)
    return FitBudget(low, own)
