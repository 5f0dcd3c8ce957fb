"""The data that partial_fit keeps of a stream: exact group moments, and rows up to a limit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import sparse

from fairconstrained.estimators._rows import TrainingRows
from fairconstrained.models.features import as_features
from fairconstrained.problems.moments import GroupMoments


class Chunk(NamedTuple):
    """Rows of a stream in order of arrival, with class and group indices."""

    X: Any  # dense or CSR
    y: np.ndarray
    group: np.ndarray
    weight: np.ndarray

    def part(self, index: Any) -> Chunk:
        """Some of these rows."""
        return Chunk(*(column[index] for column in self))

    def then(self, other: Chunk) -> Chunk:
        """These rows, followed by others."""
        rest = (np.concatenate(both) for both in zip(self[1:], other[1:], strict=True))
        return Chunk(stacked(self.X, other.X), *rest)


@dataclass(frozen=True)
class Stream:
    """The stream so far. Each chunk gives a new object, so errors leave the old one unchanged.

    Beyond the limit the rows are a uniform sample: each row gets a random key, and those with the
    smallest keys are kept.
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
    def begin(cls, y, classes, groups, n_features, seed, *, with_moments):
        """An empty stream with the classes and the type of groups of the first chunk."""
        labels = np.unique(y if classes is None else classes)
        if len(labels) != 2:
            raise ValueError(
                f"AUCFairClassifier ranks one class above one other; partial_fit got {len(labels)}"
                f": {labels.tolist()}. Give both in the first call, classes=[negative, positive]."
            )
        none = np.zeros(0, dtype=np.int64)
        n_cells = 2 if groups is None else 0
        return cls(
            labels,
            None if groups is None else groups.labels[:0],
            np.zeros((0, n_features)),
            none,
            none,
            np.zeros(0),
            np.zeros(0),
            0,
            seed,
            GroupMoments.none(n_cells, n_features) if with_moments else None,
        )

    @property
    def rows(self) -> Chunk:
        """The rows kept."""
        return Chunk(self.X, self.y, self.group, self.weight)

    def training_rows(self, rows: Chunk | None = None) -> TrainingRows:
        """The rows kept, or the given rows of the stream, in the form that a fit takes."""
        rows = self.rows if rows is None else rows
        return TrainingRows(*rows, self.classes, self.groups, self.moments)

    @property
    def n_groups(self) -> int:
        """Number of groups so far; 1 without groups."""
        return 1 if self.groups is None else len(self.groups)

    def extended(self, X, y, classes, groups, weight, limit):
        """The stream after a chunk, and the rows of the chunk with positive weight."""
        self._check(y, classes, groups)
        labels = self.groups if groups is None else merged_labels(self.groups, groups.labels)
        old = positions(self.groups, labels)
        own = old[y * 0] if groups is None else positions(groups.labels, labels)[groups.codes]
        used = weight > 0
        y = np.searchsorted(self.classes, y)
        chunk = Chunk(*(column[used] for column in (X, y, own, weight)))
        moments = self.moments
        if moments is not None:
            moments = _merged(moments, old, 1 if labels is None else len(labels), chunk)
        rows = self.rows._replace(group=old[self.group]).then(chunk)
        new_keys = np.random.default_rng([self.seed, self.n_seen]).random(len(chunk.y))
        keys = np.concatenate((self.keys, new_keys))
        if len(keys) > limit:
            index = np.sort(np.argpartition(keys, limit)[:limit])
            rows, keys = rows.part(index), keys[index]
        n_seen = self.n_seen + len(chunk.y)
        return Stream(self.classes, labels, *rows, keys, n_seen, self.seed, moments), chunk

    def _check(self, y, classes, groups):
        new = np.setdiff1d(y, self.classes)
        if len(new) or (classes is not None and set(classes) != set(self.classes)):
            raise ValueError(
                f"partial_fit began with the classes {self.classes.tolist()}; this chunk has "
                f"{new.tolist() if len(new) else f'classes={list(classes)}'}."
            )
        if (groups is None) != (self.groups is None):
            raise ValueError(
                "sensitive_features must be given in all calls of partial_fit or in none; this "
                f"chunk has {'none' if groups is None else 'some'}, unlike those before."
            )


def _merged(moments, old, n_groups, chunk):
    """Merge moments, whose groups now have the positions `old`, with those of a chunk."""
    cells = torch.as_tensor(np.concatenate((old, old + n_groups)))
    cell = torch.as_tensor(chunk.y * n_groups + chunk.group)
    weight = torch.as_tensor(chunk.weight)
    of_chunk = GroupMoments.of(as_features(chunk.X), cell, weight, 2 * n_groups)
    return moments.spread(cells, 2 * n_groups).merged(of_chunk)


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
    """Positions of some labels among all labels; a single 0 without groups."""
    if all_labels is None:
        return np.zeros(1, dtype=np.int64)
    place = {label: i for i, label in enumerate(all_labels.tolist())}
    return np.array([place[label] for label in some.tolist()], dtype=np.int64)


def stacked(first, second):
    """Stack the rows of both matrices; the result is CSR if one of them is sparse."""
    if sparse.issparse(first) or sparse.issparse(second):
        return sparse.csr_array(sparse.vstack([sparse.csr_array(first), sparse.csr_array(second)]))
    return np.concatenate((first, second))
