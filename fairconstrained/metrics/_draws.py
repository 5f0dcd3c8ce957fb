"""Draws of what samples like this one would show."""

from __future__ import annotations

from typing import Any

import numpy as np

from fairconstrained.arrays import Array
from fairconstrained.metrics._tables import check_weights, named_groups

N_DRAWS = 10_000  # of tables of counts, and of errors of AUCs


def effective_rows(group: Array, weight: Array, n_groups: int) -> Array:
    """Number of equally weighted rows that say as much, by group (Kish 1965)."""
    total, squares = (
        np.bincount(group, weights=w, minlength=n_groups) for w in (weight, weight**2)
    )
    return np.asarray(total**2 / np.where(squares > 0, squares, 1.0))


class Rows:
    """The data, and draws of their errors."""

    def __init__(self, y_true: Any, y_pred: Any, groups: Any, weight: Any, rng: Any) -> None:
        self.y_true, self.y_pred, self.rng = y_true, y_pred, rng
        n_rows = len(y_pred)
        self.weight = check_weights(weight, n_rows)
        self.sensitive_features = np.zeros(n_rows) if groups is None else groups
        self.group, self.groups = named_groups(self.sensitive_features, n_rows)
        self.effective = effective_rows(self.group, self.weight, len(self.groups))

    def tables(self, cells: Array) -> tuple[Array, Array]:
        """Cell probabilities (n_groups, n_cells) and draws (n_draws, n_groups, n_cells) of counts.

        Half a row is added to each cell (Jeffreys' prior): a rate of 0 of 50 is not known exactly.
        """
        total = cells.sum(axis=1, keepdims=True)
        size = np.maximum(np.round(self.effective), 1).astype(np.int64)
        counts = cells * (size[:, None] / np.where(total > 0, total, 1.0))
        p = (counts + 0.5) / (counts + 0.5).sum(axis=1, keepdims=True)
        draws = [self.rng.multinomial(n, row, size=N_DRAWS) for n, row in zip(size, p, strict=True)]
        return p, np.stack(draws, axis=1).astype(float)

    def normal(self, covariance: Array) -> Array:
        """Draws of normal errors, (n_draws, m)."""
        values, vectors = np.linalg.eigh(covariance)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        return np.asarray(self.rng.normal(size=(N_DRAWS, len(root))) @ root.T)
