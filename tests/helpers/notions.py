"""Random rows in score space, and notions bound to their labels and groups."""

from copy import copy
from typing import NamedTuple

import numpy as np
import torch

from fairconstrained.constraints import Space

NO_AUX = torch.zeros(0)


class ScoredRows(NamedTuple):
    scores: torch.Tensor
    y: torch.Tensor
    group: torch.Tensor
    weight: torch.Tensor

    def on(self, constraint):
        return constraint.partition.place(self.y, self.group, self.weight)

    @property
    def beside_labels(self):
        weight = self.weight.numpy()
        return {"sensitive_features": self.group.numpy(), "sample_weight": weight}

    def take(self, index):
        return ScoredRows(*(column[index] for column in self))


def random_rows(seed, n_classes=2, n_groups=3, n=60):
    """Random scores and weights; at least two rows of every label and group."""
    rng = np.random.default_rng(seed)
    every_cell = np.tile(np.indices((n_classes, n_groups)).reshape(2, -1), 2)
    rest = rng.integers([[n_classes], [n_groups]], size=(2, max(0, n - every_cell.shape[1])))
    y, group = np.hstack((every_cell, rest))
    n_outputs = 1 if n_classes == 2 else n_classes
    scores, weight = rng.normal(size=(len(y), n_outputs)), rng.exponential(size=len(y)) + 0.1
    return ScoredRows(*map(torch.as_tensor, (scores, y, group, weight)))


def bound(notion, shape, temperature=1.0, slack=0.05):
    """The notion on labels 0, 1, ... and groups a, b, ..., of which `shape` gives the numbers."""
    n_classes, n_groups = shape
    space = Space(list(range(n_classes)), list("abcdefg"[:n_groups]))
    return at_temperature(notion, temperature).bind(space, slack)


def at_temperature(notion, temperature):
    """The notion with this temperature; itself where it has none."""
    if "temperature" not in notion.get_params():
        return notion
    return copy(notion).set_params(temperature=temperature)


def soft_values(constraint, rows, aux=NO_AUX):
    return constraint.values(rows.scores, rows.on(constraint), aux)


def table(constraint, rows):
    """The table of soft statistics of a constraint without extra variables."""
    return constraint.statistic_at(NO_AUX).sums(rows.scores, rows.on(constraint))


def hard_values(constraint, rows, aux=NO_AUX):
    return constraint.hard_values(rows.scores, rows.on(constraint), aux)
