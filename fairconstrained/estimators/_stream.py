"""What partial_fit keeps of a stream: exact group moments, and rows up to a limit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy import sparse

from fairconstrained.features import as_features
from fairconstrained.moment_problem import GroupMoments

__all__ = ["Stream"]


@dataclass(frozen=True)
class Stream:
    """Everything seen so far; a chunk gives a new one, so that an error leaves the old as it was.

    Rows beyond the limit are a uniform sample: each row gets a random key, the smallest are kept.
    """

    classes: np.ndarray  # of shape (2,), sorted
    groups: np.ndarray | None  # labels of the groups seen, sorted; None without groups
    X: Any  # rows kept, dense or CSR
    y: np.ndarray  # class indices
    group: np.ndarray  # group indices
    weight: np.ndarray
    keys: np.ndarray
    n_seen: int
    seed: int
    moments: GroupMoments | None  # of all rows, cells in the order label x group

    @classmethod
    def begin(cls, classes, groups, n_features, seed, *, with_moments):
        """Nothing seen."""
        none = np.zeros(0, dtype=np.int64)
        n_groups = 1 if groups is None else 0
        moments = GroupMoments.none(2 * n_groups, n_features) if with_moments else None
        return cls(
            classes,
            None if groups is None else groups[:0],
            np.zeros((0, n_features)),
            none,
            none,
            np.zeros(0),
            np.zeros(0),
            0,
            seed,
            moments,
        )

    def extended(self, X, y, group, group_labels, weight, limit):
        """With a chunk of rows; `group` indexes `group_labels`."""
        groups = self.groups if group_labels is None else merged_labels(self.groups, group_labels)
        n_groups = 1 if groups is None else len(groups)
        old = positions(self.groups, groups)
        own = positions(group_labels, groups)[group]
        keys = np.random.default_rng([self.seed, self.n_seen]).random(len(y))
        moments = self.moments
        if moments is not None:
            cells = np.concatenate((old, old + n_groups))
            cell = torch.as_tensor(y * n_groups + own)
            chunk = GroupMoments.of(as_features(X), cell, torch.as_tensor(weight), 2 * n_groups)
            moments = moments.spread(torch.as_tensor(cells), 2 * n_groups).merged(chunk)
        kept = (
            stacked(self.X, X),
            np.concatenate((self.y, y)),
            np.concatenate((old[self.group], own)),
            np.concatenate((self.weight, weight)),
            np.concatenate((self.keys, keys)),
        )
        if len(kept[-1]) > limit:
            index = np.sort(np.argpartition(kept[-1], limit)[:limit])
            kept = tuple(column[index] for column in kept)
        n_seen = self.n_seen + len(y)
        return Stream(self.classes, groups, *kept, n_seen, self.seed, moments)


def merged_labels(first, second):
    """Sorted union of group labels; tuples (crossed columns) stay tuples."""
    try:
        labels = sorted({*first.tolist(), *second.tolist()})
    except TypeError as error:
        raise ValueError(
            "sensitive_features holds values of another kind than the chunks before: "
            f"{second[0]!r} after {first[0]!r}."
        ) from error
    if not isinstance(labels[0], tuple):
        return np.array(labels)
    array = np.empty(len(labels), dtype=object)
    array[:] = labels
    return array


def positions(some, all_labels):
    """Where some of the labels stand among all; one position without groups."""
    if all_labels is None:
        return np.zeros(1, dtype=np.int64)
    place = {label: i for i, label in enumerate(all_labels.tolist())}
    return np.array([place[label] for label in some.tolist()], dtype=np.int64)


def stacked(first, second):
    """Rows of both; CSR as soon as either is."""
    if sparse.issparse(first) or sparse.issparse(second):
        return sparse.csr_array(sparse.vstack([sparse.csr_array(first), sparse.csr_array(second)]))
    return np.concatenate((first, second))
