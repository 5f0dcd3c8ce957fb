"""Choice of a candidate of a search: the best feasible one, and the Pareto front."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import t as student

from fairconstrained.arrays import Floats
from fairconstrained.exceptions import ConstraintNotSatisfiedWarning, warn_caller
from fairconstrained.metrics.bounds import check_confidence


def select_feasible(
    score: str = "accuracy",
    violation: str = "dp",
    max_violation: float = 0.05,
    *,
    rule: str = "mean",
    confidence: float = 0.95,
) -> Callable[[Mapping[str, Any]], int]:
    r"""Choose the best candidate of a search among those that keep a fairness constraint.

    Parameters
    ----------
    score, violation : str
        Names in the search's `scoring`. The violation is a fairness scorer, which gives the
        *negated* gap: the violation is ``-mean_test_<violation>``.
    max_violation : float, default=0.05
        Largest violation over the test folds of a feasible candidate.
    rule : {"mean", "one_standard_error", "upper_bound"}, default="mean"
        A candidate is feasible if this does not exceed `max_violation`: its mean violation over the
        folds, the mean plus one standard error, or Student's upper bound of the mean. Where slacks
        are taken from a grid, the candidate that "mean" chooses is as likely above `max_violation`
        on new rows as below.
    confidence : float, default=0.95
        The confidence of the upper bound.

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
        An unknown rule. When called: a name that is not in `scoring`, a violation that is not a
        negated gap, no scores of single folds where the rule needs them, or no candidate without
        nan.

    Warns
    -----
    ConstraintNotSatisfiedWarning
        When called and no candidate is feasible.

    Notes
    -----
    Standard errors are :math:`s / \sqrt{k}` over k folds. Folds share training rows and are not
    independent, so no rule is a certificate. For one, see
    :class:`~fairconstrained.model_selection.CertifiedClassifier`.

    With several scores and a callable `refit`, scikit-learn's ``search.score`` does not know which
    scorer to use; call a scorer on ``search.best_estimator_``.

    Examples
    --------
    >>> from fairconstrained.model_selection import select_feasible
    >>> results = {"mean_test_accuracy": [0.9, 0.8, 0.7], "mean_test_dp": [-0.2, -0.04, -0.01]}
    >>> select_feasible("accuracy", "dp", max_violation=0.05)(results)
    1
    """
    if rule not in _RULES:
        raise ValueError(f"rule must be one of {list(_RULES)}; got {rule!r}.")
    check_confidence(confidence)
    return _Choice(score, violation, max_violation, rule, confidence)


# How many standard errors are added to the mean over k folds.
_RULES: Mapping[str, Callable[[int, float], float]] = {
    "mean": lambda k, confidence: 0.0,
    "one_standard_error": lambda k, confidence: 1.0,
    "upper_bound": lambda k, confidence: float(student.ppf(confidence, k - 1)),
}


@dataclass(frozen=True)
class _Choice:
    """The choice of :func:`select_feasible`."""

    score: str
    violation: str
    max_violation: float
    rule: str
    confidence: float

    def __call__(self, cv_results: Mapping[str, Any]) -> int:
        """Return the index of the chosen candidate."""
        scores = _mean_scores(cv_results, self.score)
        violations = -_mean_scores(cv_results, self.violation)
        usable = np.flatnonzero(~np.isnan(scores) & ~np.isnan(violations))
        if not usable.size:
            raise ValueError(
                f"Every candidate has a nan score in {self.score!r} or {self.violation!r}. "
                "Fairness scorers need sensitive_features: enable metadata routing, or give them "
                'column=; error_score="raise" in the search shows the cause.'
            )
        if violations[usable].min() < 0:
            raise ValueError(
                "violation must name a scorer of a negated gap, at most 0; got "
                f"{self.violation!r} with a mean of {-violations[usable].min():.3g}."
            )
        if self.rule != "mean":
            violations = violations + self._margins(cv_results)
        feasible = usable[violations[usable] <= self.max_violation]
        if feasible.size:
            return int(feasible[np.lexsort((violations[feasible], -scores[feasible]))[0]])
        least = int(usable[np.lexsort((-scores[usable], violations[usable]))[0]])
        warn_caller(
            f"No candidate keeps {self.violation!r} within max_violation={self.max_violation:g}; "
            f"chose the least violation, {violations[least]:.3g}.",
            ConstraintNotSatisfiedWarning,
        )
        return least

    def _margins(self, cv_results: Mapping[str, Any]) -> Floats:
        """Return the standard errors that the rule adds to the mean violations."""
        suffix = f"_test_{self.violation}"
        keys = [key for key in cv_results if key.startswith("split") and key.endswith(suffix)]
        if len(keys) < 2:
            raise ValueError(
                f"rule needs the scores of at least two folds of {self.violation!r} "
                f"(split0{suffix}, ...), as in the cv_results_ of a search; got {len(keys)}."
            )
        folds = np.stack([np.asarray(cv_results[key], dtype=float) for key in keys])
        errors = folds.std(axis=0, ddof=1) / np.sqrt(len(keys))
        return np.asarray(_RULES[self.rule](len(keys), self.confidence) * errors)


def _mean_scores(cv_results: Mapping[str, Any], name: str) -> Floats:
    prefix = "mean_test_"
    if prefix + name not in cv_results:
        known = [key.removeprefix(prefix) for key in cv_results if key.startswith(prefix)]
        raise ValueError(f"{name!r} is not among the scores of the search, {known}.")
    return np.asarray(cv_results[prefix + name], dtype=float)


def pareto_front(error: ArrayLike, violation: ArrayLike) -> NDArray[np.bool_]:
    """Points on the Pareto front of two quantities that should be small.

    A point is dominated by one that is no worse in both and better in one. Equal points do not
    dominate each other. Points with a nan are not on the front. Takes O(n log n).

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
