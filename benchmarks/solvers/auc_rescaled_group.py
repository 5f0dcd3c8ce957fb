"""Post-processing: one group's scores become w1 score + w2 (Kallus and Zhou 2019).

The paper's grid of w1 and w2, on the scores of a logistic regression without constraints in units
of their deviation; among the pairs that keep the training gap the one of highest AUC. It needs
everybody's group to predict, and cannot change the AUC within a group.
"""

from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.objectives.auc_fair import Fitted
from benchmarks.objectives.rate_constrained import base_model

METHOD = "rescaled group"
OBJECTIVES = ["auc_fair"]
SCALES = np.arange(0.05, 5.001, 0.05)
OFFSETS = np.arange(-3.0, 3.001, 0.1)
QUANTILES = 200  # of each label in each group: AUCs of the grid are exact to about 1 / QUANTILES


def slacks(notion: str, asked: list[float]) -> list[float]:
    """Between groups only."""
    return [] if notion == "intra_group" else asked


def fit(X: Any, y: Any, sensitive_features: Any, *, notion: str, slack: float, seed: int) -> Fitted:
    """Train, then try the grid on the second group."""
    model = base_model(len(y)).fit(X, y)
    scores = model.decision_function(X)
    mean, deviation = scores.mean(), scores.std()
    z = (scores - mean) / deviation
    levels = (np.arange(QUANTILES) + 0.5) / QUANTILES
    cells = [(label, group) for label in (0, 1) for group in (0, 1)]
    masks = [(y == label) & (sensitive_features == group) for label, group in cells]
    quantiles = [np.quantile(z[mask], levels) for mask in masks]
    shares = np.array([mask.mean() for mask in masks])

    def quality(pair: tuple[float, float]) -> tuple[float, float]:
        scale, offset = pair
        moved = [
            scale * q + offset if group else q
            for q, (_, group) in zip(quantiles, cells, strict=True)
        ]
        gap, auc = _gap_and_auc(moved, shares, notion)
        return max(gap, slack), -auc

    scale, offset = min(product(SCALES, OFFSETS), key=quality)

    def rescaled(X: Any, groups: Any) -> NDArray[np.float64]:
        z = (model.decision_function(X) - mean) / deviation
        return np.where(groups == 1, scale * z + offset, z)

    return Fitted(rescaled)


def _gap_and_auc(
    cells: list[NDArray[np.float64]], shares: NDArray[np.float64], notion: str
) -> tuple[float, float]:
    """From sorted scores of the cells (label, group): 00, 01, 10, 11."""
    of_pairs = np.array([[np.searchsorted(b, a).mean() / len(b) for b in cells] for a in cells])
    weights = np.outer(shares, shares)
    auc = (weights * of_pairs)[2:, :2].sum() / weights[2:, :2].sum()
    if notion == "inter_group":
        return abs(of_pairs[3, 0] - of_pairs[2, 1]), auc
    between = (weights * of_pairs)[np.ix_((1, 3), (0, 2))].sum()
    return abs(between / weights[np.ix_((1, 3), (0, 2))].sum() - 0.5), auc
