"""The quasi-Seldonian algorithm, as published, for one gap or cap and a linear model.

Thomas, da Silva, Barto, Giguere, Brun and Brunskill, "Preventing undesirable behavior of
intelligent machines", Science 366 (2019), and its tutorial: part of the rows chooses a candidate
that minimises the loss plus a barrier where the *predicted* outcome of the safety test is a
failure (its bound with the interval doubled, and with the size of the safety part); Powell's
method from the logistic fit. The other part tests it: Student's intervals of every rate, the error
split over all of their ends, interval arithmetic for differences and the largest of them.
"""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.stats import t as student
from sklearn.linear_model import LogisticRegression

__all__ = ["SAFETY", "QuasiSeldonian"]

Array = NDArray[Any]
SAFETY = 0.6  # of the rows, the default of seldonian-engine
BARRIER = 1e5


class QuasiSeldonian:
    """Linear classifier of two classes with a safety test.

    Parameters
    ----------
    constraint : {"demographic_parity", "equalized_odds", "false_negative_rate"}
    slack, confidence : float
    """

    def __init__(self, constraint: str, slack: float, confidence: float) -> None:
        self.constraint, self.slack, self.alpha = constraint, slack, 1.0 - confidence

    def fit(self, X: Array, y: Array, *, sensitive_features: Array) -> QuasiSeldonian:
        """Choose a candidate on the rows that the safety test does not get."""
        cells = _conditions(self.constraint, y, sensitive_features)
        factors = self._factors(cells, SAFETY / (1 - SAFETY), 2.0)
        rows, sign = np.c_[X, np.ones(len(X))], np.where(np.asarray(y) == 1, 1.0, -1.0)

        def objective(theta: Array) -> float:
            scores = rows @ theta
            predicted = self._bound(scores > 0, cells, factors)
            if predicted > self.slack:
                return BARRIER + predicted - self.slack
            return float(np.logaddexp(0.0, -sign * scores).mean())

        start = LogisticRegression().fit(X, y)
        theta = np.r_[start.coef_[0], start.intercept_]
        self.theta_ = minimize(objective, theta, method="Powell", options={"maxiter": 50}).x
        return self

    def passes(self, predicted: Array, y: Array, sensitive_features: Array) -> bool:
        """Whether the safety test on other rows lets it pass."""
        cells = _conditions(self.constraint, y, sensitive_features)
        bound = self._bound(predicted > 0, cells, self._factors(cells, 1.0, 1.0))
        return bool(bound <= self.slack)

    def predict(self, X: Array) -> Array:
        """Labels 0 and 1."""
        return (X @ self.theta_[:-1] + self.theta_[-1] > 0).astype(int)

    def _factors(self, cells: list[Array], scale: float, inflation: float) -> Array:
        """Half an interval, in standard deviations; `scale` times as many rows decide."""
        n_ends = len(cells) if self.constraint == "false_negative_rate" else 2 * len(cells)
        n = scale * np.array([len(cell) for cell in cells])
        many = np.maximum(n, 2.0)
        quantile = student.ppf(1 - self.alpha / n_ends, many - 1)
        return np.where(n >= 2, inflation * quantile / np.sqrt(many), np.inf)

    def _bound(self, predicted: Array, cells: list[Array], factors: Array) -> float:
        """Upper bound of the gap or cap."""
        if not np.isfinite(factors).all():
            return 1.0
        of_gap = self.constraint != "false_negative_rate"
        n = np.array([len(cell) for cell in cells])
        rate = np.array([np.count_nonzero(predicted[cell] == of_gap) for cell in cells]) / n
        variance = rate * (1 - rate) * n / np.maximum(n - 1, 1)
        half = factors * np.sqrt(np.where(n > 1, variance, 0.25))
        low, high = rate - half, rate + half
        if not of_gap:
            return float(high.max())
        n_groups = len(cells) // (2 if self.constraint == "equalized_odds" else 1)
        return float(
            max(
                high[base + g] - low[base + h]
                for base in range(0, len(cells), n_groups)
                for g, h in permutations(range(n_groups), 2)
            )
        )


def _conditions(constraint: str, y: Array, group: Array) -> list[Array]:
    """The rows that each rate is about."""
    groups = [group == g for g in np.unique(group)]
    conditions = {
        "demographic_parity": groups,
        "equalized_odds": [of & (y == label) for label in (0, 1) for of in groups],
        "false_negative_rate": [y == 1],
    }
    return [np.flatnonzero(cell) for cell in conditions[constraint]]
