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

__all__ = ["QuasiSeldonian"]

Array = NDArray[Any]
SAFETY = 0.6  # of the rows, the default of seldonian-engine
BARRIER = 1e5


class QuasiSeldonian:
    """Linear classifier of two classes with a safety test.

    Parameters
    ----------
    constraint : {"demographic_parity", "equalized_odds", "false_negative_rate"}
    slack, confidence : float
    random_state : int
    """

    def __init__(self, constraint: str, slack: float, confidence: float, random_state: int) -> None:
        self.constraint, self.slack = constraint, slack
        self.alpha, self.random_state = 1.0 - confidence, random_state

    def fit(self, X: Array, y: Array, *, sensitive_features: Array) -> QuasiSeldonian:
        """Choose a candidate, then test it; `certified_` says how the test ended."""
        rng = np.random.default_rng(self.random_state)
        order = rng.permutation(len(y))
        n_safety = int(SAFETY * len(y))
        first, second = order[n_safety:], order[:n_safety]
        cells = _conditions(self.constraint, y, sensitive_features)
        start = LogisticRegression().fit(X[first], y[first])
        theta = np.r_[start.coef_[0], start.intercept_]
        X, y = np.c_[X, np.ones(len(X))], np.asarray(y)
        scale = len(second) / len(first)

        def objective(theta: Array) -> float:
            scores = X[first] @ theta
            predicted = self._bound(scores > 0, [c[first] for c in cells], scale, 2.0)
            if predicted > self.slack:
                return BARRIER + predicted - self.slack
            signed = np.where(y[first] == 1, scores, -scores)
            return float(np.logaddexp(0.0, -signed).mean())

        found = minimize(objective, theta, method="Powell", options={"maxiter": 50})
        self.theta_ = found.x
        bound = self._bound(X[second] @ self.theta_ > 0, [c[second] for c in cells], 1.0, 1.0)
        self.certified_ = bool(bound <= self.slack)
        return self

    def predict(self, X: Array) -> Array:
        """Labels 0 and 1."""
        return (X @ self.theta_[:-1] + self.theta_[-1] > 0).astype(int)

    def _bound(self, predicted: Array, cells: list[Array], scale: float, inflation: float) -> float:
        """Upper bound of the gap or cap; `scale` times as many rows decide in the end."""
        of_gap = self.constraint != "false_negative_rate"
        n_ends = 2 * len(cells) if of_gap else len(cells)
        low, high = np.empty(len(cells)), np.empty(len(cells))
        for i, cell in enumerate(cells):
            event = predicted[cell] if of_gap else ~predicted[cell]
            n = len(event) * scale
            if n < 2:
                return 1.0
            deviation = event.std(ddof=1) if len(event) > 1 else 0.5
            half = inflation * deviation / np.sqrt(n) * student.ppf(1 - self.alpha / n_ends, n - 1)
            low[i], high[i] = event.mean() - half, event.mean() + half
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
    return {
        "demographic_parity": groups,
        "equalized_odds": [of & (y == label) for label in (0, 1) for of in groups],
        "false_negative_rate": [y == 1],
    }[constraint]
