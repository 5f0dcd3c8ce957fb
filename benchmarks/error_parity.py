"""error-parity: random thresholds by group that keep a relaxed constraint, by scipy's HiGHS.

Cruz and Hardt (2024), "Unprocessing Seven Years of Algorithmic Fairness", arXiv:2306.07261. The ROC
point of each group lies in the convex hull of its ROC curve, and the linear program

    min  expected error   s.t.  |rate of one group - rate of another| <= slack

has the weights of the hull's corners as variables; predictions draw a corner. Written anew, because
the package (0.3.12) asks for numpy below 2. Installed without its dependencies it finds the same
costs with 2.4, and ends with an error on some problems. Two differences: the corners' weights are
variables, where it has points and then looks for weights, and a midpoint of scores is a threshold.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise, permutations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Corners(NamedTuple):
    """Corners of the hull of the ROC curve of a group."""

    threshold: Floats
    rates: Floats  # (k, 2), rows of labels 0 and 1 that are predicted 1


def corners(scores: Floats, y: Ints) -> Corners:
    """Return the corners of the upper convex hull, from no row predicted 1 to all."""
    order = np.argsort(-scores, kind="stable")
    falling, of_label = scores[order], y[order, None] == [0, 1]
    above = np.concatenate((np.zeros((1, 2)), of_label.cumsum(axis=0) / of_label.sum(axis=0)))
    between = 0.5 * (falling[1:] + falling[:-1])
    threshold = np.concatenate(([np.inf], between, [-np.inf]))
    kept: list[int] = []
    for i in np.flatnonzero(np.concatenate(([True], np.diff(falling) != 0, [True]))):
        while len(kept) > 1:
            (x, up), (x2, up2) = above[kept[-1]] - above[kept[-2]], above[i] - above[kept[-2]]
            if up * x2 > up2 * x:
                break
            kept.pop()
        kept.append(i)
    return Corners(threshold[kept], above[kept])


def thresholds(
    scores: Floats, y: Ints, groups: Ints, constraint: str, slack: float
) -> Callable[[Floats, Ints], Floats]:
    """Return the probability of label 1, by scores and groups, with rates at most `slack` apart."""
    names = np.unique(groups)
    hulls = [corners(scores[groups == g], y[groups == g]) for g in names]
    counts = [np.bincount(y[groups == g], minlength=2) for g in names]
    starts = np.cumsum([0] + [len(hull.threshold) for hull in hulls])
    places = [slice(*ends) for ends in pairwise(starts)]
    cost = [(hull.rates * [1, -1]) @ n / len(y) for hull, n in zip(hulls, counts, strict=True)]
    compared = []  # (k, number of rates) of each group
    for hull, n in zip(hulls, counts, strict=True):
        all_rows = hull.rates @ n[:, None] / n.sum()
        compared.append(all_rows if constraint == "demographic_parity" else hull.rates)
    differences = []
    for i, j in permutations(range(len(names)), 2):
        rows = np.zeros((compared[0].shape[1], starts[-1]))
        rows[:, places[i]] = compared[i].T
        rows[:, places[j]] -= compared[j].T
        differences.append(rows)
    one = np.zeros((len(names), starts[-1]))
    for i, place in enumerate(places):
        one[i, place] = 1.0
    bound = np.concatenate(differences)
    solved = linprog(
        np.concatenate(cost), bound, np.full(len(bound), slack), one, np.ones(len(names))
    )
    if solved.x is None:
        raise RuntimeError(f"HiGHS does not solve the program: {solved.message}")

    def accepted(scores: Floats, groups: Ints) -> Floats:
        chance = np.zeros(len(scores))
        for name, hull, place in zip(names, hulls, places, strict=True):
            own = groups == name
            chance[own] = (scores[own, None] >= hull.threshold) @ solved.x[place]
        return chance.clip(0.0, 1.0)

    return accepted
