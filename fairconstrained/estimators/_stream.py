"""State of partial_fit: exact group moments, rows up to a limit, the state of a solver."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import sparse

from fairconstrained.arrays import Array, Floats, Ints
from fairconstrained.constraints import Space
from fairconstrained.estimators._reporting import recorded
from fairconstrained.estimators._rows import TrainingRows
from fairconstrained.groups import Groups
from fairconstrained.models.features import as_features
from fairconstrained.problems import FairERM, Rows
from fairconstrained.problems.moments import GroupMoments
from fairconstrained.problems.objectives import PairwiseLoss
from fairconstrained.solvers import Iterate, LevelSet, Solution, Status
from fairconstrained.solvers.level_set import LevelSetStream

_WHITEN_ROWS = 5  # rows per column that decorrelating coordinates need


class Chunk(NamedTuple):
    """Rows of a stream in order of arrival, with class and group indices."""

    X: Any  # dense or CSR
    y: Ints
    group: Ints
    weight: Floats

    def part(self, index: Any) -> Chunk:
        """Some of these rows."""
        return Chunk(*(column[index] for column in self))

    def then(self, other: Chunk) -> Chunk:
        """These rows, followed by others; X is CSR if one of both is sparse."""
        rest = (np.concatenate(both) for both in zip(self[1:], other[1:], strict=True))
        if sparse.issparse(self.X) or sparse.issparse(other.X):
            both = [sparse.csr_array(self.X), sparse.csr_array(other.X)]
            return Chunk(sparse.csr_array(sparse.vstack(both)), *rest)
        return Chunk(np.concatenate((self.X, other.X)), *rest)


@dataclass(frozen=True)
class Stream:
    """The stream so far. Each chunk gives a new object, so errors leave the old one unchanged.

    Beyond the limit the rows are a uniform sample: each row gets a random key, and those with the
    smallest keys are kept.
    """

    classes: Array  # of shape (2,), sorted
    groups: Array | None  # labels of the groups seen, sorted; None without groups
    rows: Chunk  # those kept
    keys: Floats
    n_seen: int
    seed: int
    moments: GroupMoments | None  # of all rows, cells in the order label x group

    @classmethod
    def begin(
        cls,
        y: Array,
        classes: Any,
        groups: Groups | None,
        n_features: int,
        seed: int,
        *,
        with_moments: bool,
    ) -> Stream:
        """An empty stream with the classes and the type of groups of the first chunk."""
        labels = np.unique(y if classes is None else classes)
        if len(labels) != 2:
            raise ValueError(
                f"AUCFairClassifier ranks one class above one other; partial_fit got {len(labels)}"
                f": {labels.tolist()}. Give both in the first call, classes=[negative, positive]."
            )
        codes = np.zeros(0, dtype=np.int64)
        none = Chunk(np.zeros((0, n_features)), codes, codes, np.zeros(0))
        moments = GroupMoments.none(2 if groups is None else 0, n_features)
        seen = None if groups is None else groups.labels[:0]
        return cls(labels, seen, none, np.zeros(0), 0, seed, moments if with_moments else None)

    def training_rows(self, rows: Chunk | None = None) -> TrainingRows:
        """The rows kept, or the given rows of the stream, in the form that a fit takes."""
        rows = self.rows if rows is None else rows
        return TrainingRows(*rows, self.classes, self.groups, self.moments)

    @property
    def n_groups(self) -> int:
        """Number of groups so far; 1 without groups."""
        return 1 if self.groups is None else len(self.groups)

    def extended(
        self, X: Any, y: Array, classes: Any, groups: Groups | None, weight: Floats, limit: int
    ) -> tuple[Stream, Chunk]:
        """The stream after a chunk, and the rows of the chunk with positive weight."""
        self._check(y, classes, groups)
        labels, own, old = self.groups, *np.split(np.zeros(len(y) + 1, dtype=np.int64), [len(y)])
        if groups is not None and self.groups is not None:
            labels = merged_labels(self.groups, groups.labels)
            old = positions(self.groups, labels)
            own = positions(groups.labels, labels)[groups.codes]
        codes = np.searchsorted(self.classes, y).astype(np.int64)
        chunk = Chunk(X, codes, own, weight).part(weight > 0)
        moments = self.moments
        if moments is not None:
            moments = _merged(moments, old, 1 if labels is None else len(labels), chunk)
        rows = self.rows._replace(group=old[self.rows.group]).then(chunk)
        new_keys = np.random.default_rng([self.seed, self.n_seen]).random(len(chunk.y))
        keys = np.concatenate((self.keys, new_keys))
        if len(keys) > limit:
            index = np.sort(np.argpartition(keys, limit)[:limit])
            rows, keys = rows.part(index), keys[index]
        n_seen = self.n_seen + len(chunk.y)
        return Stream(self.classes, labels, rows, keys, n_seen, self.seed, moments), chunk

    def _check(self, y: Array, classes: Any, groups: Groups | None) -> None:
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


def _merged(moments: GroupMoments, old: Ints, n_groups: int, chunk: Chunk) -> GroupMoments:
    """Merge moments, whose groups now have the positions `old`, with those of a chunk."""
    cells = torch.as_tensor(np.concatenate((old, old + n_groups)))
    cell = torch.as_tensor(chunk.y * n_groups + chunk.group)
    weight = torch.as_tensor(chunk.weight)
    of_chunk = GroupMoments.of(as_features(chunk.X), cell, weight, 2 * n_groups)
    return moments.spread(cells, 2 * n_groups).merged(of_chunk)


def merged_labels(first: Array, second: Array) -> Array:
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


def positions(some: Array, all_labels: Array) -> Ints:
    """Positions of some labels among all labels."""
    place = {label: i for i, label in enumerate(all_labels.tolist())}
    return np.array([place[label] for label in some.tolist()], dtype=np.int64)


# ---------------------------------------------------------------------- a solver that continues


def rows_to_begin(rows: Chunk, n_groups: int, batch_size: int, min_rows: int) -> int | None:
    """The number of first rows that determine coordinates and sets, or None if there are too few.

    They must be a mini-batch, five rows per column, and `min_rows` rows of both labels of every
    group so far.
    """
    least = max(batch_size, _WHITEN_ROWS * rows.X.shape[1])
    cell = rows.y * n_groups + rows.group
    counts = np.cumsum(cell[:, None] == np.arange(2 * n_groups), axis=0)
    enough = np.asarray((counts >= max(min_rows, 1)).all(axis=1))
    enough[: least - 1] = False
    return int(enough.argmax()) + 1 if enough.any() else None


def as_rows(rows: Chunk, device: str) -> Rows:
    """Rows as solvers see them."""
    y, group, weight = (torch.as_tensor(column, device=device) for column in rows[1:])
    return Rows((as_features(rows.X, device),), y, group, weight)


@dataclass(frozen=True)
class Steps:
    """The state of a solver on a stream. Each chunk gives a new object, so errors leave the old.

    Rows wait until they fill a mini-batch, so the state does not depend on the chunks.
    """

    problem: FairERM  # on the rows it began with
    space: Space
    state: LevelSetStream
    waiting: Chunk

    @classmethod
    def begin(cls, solver: LevelSet, problem: FairERM, space: Space, none: Chunk) -> Steps:
        return cls(problem, space, LevelSetStream.begin(solver, problem), none)

    def after(self, solver: LevelSet, rows: Chunk, device: str) -> Steps:
        """The state after a step for each full mini-batch."""
        rows, size = self.waiting.then(rows), solver.batch_size
        end = len(rows.y) - len(rows.y) % size
        batches = (
            as_rows(rows.part(slice(start, start + size)), device) for start in range(0, end, size)
        )
        state = self.state.through(solver, batches)
        return replace(self, state=state, waiting=rows.part(slice(end, None)))

    def check_groups(self, seen: Array | None) -> None:
        """Raise ValueError for groups that the state has no variables for."""
        known = list(self.space.groups)
        new = [] if seen is None else [label for label in seen.tolist() if label not in known]
        if new:
            raise ValueError(
                f"partial_fit with LevelSet began with the groups {np.array(known).tolist()}; this "
                f"chunk has {new}, for which its state has no variables. Begin anew, with rows of "
                "all groups first."
            )

    def on(self, data: Rows) -> FairERM:
        """The problem on other rows, with a copy of the model, to measure the model."""
        weights = torch.stack([data.weight[data.y == k].sum() for k in (0, 1)])
        risk = self.problem.risk
        if isinstance(risk, PairwiseLoss):
            risk = replace(risk, fractions=tuple((weights / weights.sum()).tolist()))
        return replace(self.problem, data=data, risk=risk, model=copy.deepcopy(self.problem.model))

    def solution(self, problem: FairERM) -> Solution:
        """The state as a solution, measured on `problem`."""
        state = self.state
        w = state.x[: problem.model.n_params]
        soft, hard = problem.evaluate(w)
        iterate = Iterate(w, soft, hard, state.descent.multipliers(), torch.inf)
        told = [recorded(problem.constraint, iterate)]
        return Solution(iterate, state.n_steps, Status.STREAMING, told, [0.0], Status.STREAMING)
