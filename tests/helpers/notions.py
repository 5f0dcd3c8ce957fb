"""Random rows in score space, and notions bound to their labels and groups."""

from typing import NamedTuple

import numpy as np
import torch

from fairconstrained.constraints import Space


class Rows(NamedTuple):
    """Rows in score space."""

    scores: torch.Tensor
    y: torch.Tensor
    group: torch.Tensor
    weight: torch.Tensor

    def take(self, index):
        """These rows, in this order."""
        return Rows(*(column[index] for column in self))


def random_rows(seed, n_classes=2, n_groups=3, n=60):
    """Random scores and weights; at least two rows of every label and group."""
    rng = np.random.default_rng(seed)
    every_cell = np.tile(np.indices((n_classes, n_groups)).reshape(2, -1), 2)
    rest = rng.integers([[n_classes], [n_groups]], size=(2, max(0, n - every_cell.shape[1])))
    y, group = np.hstack((every_cell, rest))
    n_outputs = 1 if n_classes == 2 else n_classes
    return Rows(
        torch.as_tensor(rng.normal(size=(len(y), n_outputs))),
        torch.as_tensor(y),
        torch.as_tensor(group),
        torch.as_tensor(rng.exponential(size=len(y)) + 0.1),
    )


def bound(notion, shape, temperature=1.0):
    """The notion on labels 0, 1, ... and groups a, b, ..., of which `shape` gives the numbers."""
    n_classes, n_groups = shape
    space = Space(list(range(n_classes)), list("abcdefg"[:n_groups]))
    return notion.bind(space, 0.05, temperature)


def soft_values(constraint, rows):
    """Values of a constraint without extra variables, as optimised."""
    return constraint.values(rows.scores, rows.y, rows.group, torch.zeros(0), rows.weight)


def hard_values(constraint, rows):
    """Values as measured on predicted labels."""
    counts = constraint.counts(rows.y, rows.group, rows.weight)
    return constraint.of_moments(constraint.hard_sums(*rows), counts, torch.zeros(0))
