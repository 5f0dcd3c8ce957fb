"""Estimators with partial_fit: they train on all samples of a stream so far."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy import sparse
from torch import Generator

from fairconstrained.arrays import Array, Floats, Ints, as_numpy, check_all_samples, check_samples
from fairconstrained.constraints.space import Space
from fairconstrained.estimators._calls import data_by_position, unchanged_on_error
from fairconstrained.estimators._parameters import given_callbacks
from fairconstrained.estimators._private import PrivateFairClassifier
from fairconstrained.estimators._reporting import recorded
from fairconstrained.estimators._rows import (
    Given,
    TrainingRows,
    checked_weight,
    random_seed,
    with_groups,
)
from fairconstrained.estimators._training import Stage
from fairconstrained.groups import Groups, encode_groups
from fairconstrained.models.features import as_features
from fairconstrained.models.posteriors import Posteriors
from fairconstrained.problems.erm import FairERM
from fairconstrained.problems.moments import GroupMoments
from fairconstrained.problems.objectives import PairwiseLoss
from fairconstrained.problems.rows import Rows
from fairconstrained.solvers.base import Iterate, Solution, Status
from fairconstrained.solvers.level_set import LevelSet, LevelSetStream

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


# ---------------------------------------------------------------------- the estimator


class StreamingClassifier(PrivateFairClassifier):
    """A binary classifier with ``partial_fit`` and the parameter `stream_memory`."""

    __metadata_request__partial_fit = {"sensitive_features": True}  # noqa: RUF012
    margin: float
    stream_memory: int
    _stream: Stream | None = None
    _steps: Steps | None = None

    @data_by_position("X", "y", "classes")
    def partial_fit(
        self,
        X: Any,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        *,
        sensitive_features: Any = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Train on all samples that this method has seen so far.

        The estimator keeps up to `stream_memory` samples. As long as it has kept all of them, the
        model is that of :meth:`fit` on the same samples, up to rounding. After that it keeps a
        uniform sample and trains on it. With ``surrogate="binormal"``, ``objective="auc"`` and a
        linear model the whole stream still counts, because moments of groups add up exactly over
        chunks of any size. The samples kept then serve to measure true AUCs only.

        Every call runs the solver from the start. With ``warm_start=True`` it starts from the last
        solution, which is faster and agrees within the tolerance of the slack.

        With ``solver=LevelSet()`` (and ``surrogate="quadratic"``) a call updates the state of the
        solver. Each sample is used once, in one mini-batch of the solver's `batch_size`. Samples
        wait until a mini-batch is full, so the model does not depend on the chunks. The solver
        begins once there are a full mini-batch, five samples for each column (which determine the
        coordinates), and samples of both labels in at least two groups. It begins at the latest
        with `stream_memory` samples, and then leaves out sets without samples. New groups may
        appear until it begins, and `alpha` and `slack` are read at that time. The samples kept only
        serve to measure the model, so a call is fast with a small `stream_memory`.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        classes : array-like of shape (2,), optional
            Both labels. They are needed in the first call unless its samples have both.
        sensitive_features : array-like of shape (n_samples,) or (n_samples, n_columns), optional
            As in :meth:`fit`. New groups may appear at any time, but see above for ``LevelSet``.
        sample_weight : array-like of shape (n_samples,), optional

        Returns
        -------
        self
            It can predict once it has seen both classes, or with ``LevelSet`` once the solver has
            begun. A call to :meth:`fit` ends the stream.

        Raises
        ------
        ValueError
            If a label is not in `classes`, if the number of columns changes, if only some chunks
            have sensitive features, or, with ``LevelSet``, if a group is new after the solver has
            begun; also on one of several workers within
            :func:`~fairconstrained.distributed.sharded_rows`. The estimator is then in the state
            from before the call.
        """
        with unchanged_on_error(self):
            training = self._checked_training()
            check_all_samples(
                f"{type(self).__name__}.partial_fit",
                "a stream is kept by one process. fit takes the rows of all workers.",
            )
            if self.epsilon is not None:
                raise ValueError(
                    f"{type(self).__name__}.partial_fit needs epsilon=None: every call would spend "
                    "the whole budget."
                )
            if isinstance(training.specification, Posteriors):
                raise ValueError(
                    f"{type(self).__name__}.partial_fit needs a linear model or a network: "
                    f"{self.model!r} would have to be fitted to the whole stream again."
                )
            given = Given(X, y, sensitive_features, sample_weight)
            stream, chunk = self._extended(training, given, classes)
            self._stream = stream
            rows = with_groups(self, stream.training_rows())
            if isinstance(training.solver, LevelSet):
                self._step(stream, chunk, training, training.solver)
            elif len(np.unique(stream.rows.y)) == 2:
                training.train(rows)
        return self

    def _forget(self) -> None:
        for name in ("_stream", "_steps"):
            if name in vars(self):
                delattr(self, name)

    def _extended(self, training: Any, given: Given, classes: Any) -> tuple[Stream, Chunk]:
        """The stream after a chunk, and the rows of the chunk."""
        check_samples(**given._asdict())
        first = self._stream is None
        X, y = training.specification.training_rows(self, given.X, given.y, reset=first)
        X, weight = as_numpy(X), checked_weight(given.sample_weight, len(y))  # kept in numpy
        groups = None
        if given.sensitive_features is not None:
            groups = encode_groups(given.sensitive_features, len(y))
        stream = self._stream
        if stream is None:
            seed, moments = random_seed(self.random_state), training.from_moments(X.shape[1])
            stream = Stream.begin(y, classes, groups, X.shape[1], seed, with_moments=moments)
        return stream.extended(X, y, classes, groups, weight, self.stream_memory)

    def _step(self, stream: Stream, chunk: Chunk, training: Any, solver: LevelSet) -> None:
        """Continue from the state of the last call, or begin."""
        if self.margin > 0:
            raise ValueError(
                f"{type(self).__name__}.margin must be 0 with {type(solver).__name__} in "
                f"partial_fit: a margin takes a second fit; got {self.margin!r}."
            )
        with training.seeded(stream.seed) as rng:
            steps = self._steps
            if steps is None:
                chunk, steps = stream.rows, self._begun(stream, training, solver, rng)
            if steps is None:
                return
            steps.check_groups(stream.groups)
            self._steps = steps = steps.after(solver, chunk, self.device)
            problem = steps.on(as_rows(stream.rows, self.device))
            solution = steps.solution(problem)
            for callback in given_callbacks(self.callbacks) or ():
                callback(solution.iterate)
            training.finish([Stage(problem, solution)])

    def _begun(
        self, stream: Stream, training: Any, solver: LevelSet, rng: Generator
    ) -> Steps | None:
        """The state of the solver before its first step, or None while it waits for rows."""
        rows, n_first = stream.rows, None
        if stream.groups is None or stream.n_groups > 1:
            least = 1 if isinstance(self.min_group_size, str) else self.min_group_size
            n_first = rows_to_begin(rows, stream.n_groups, solver.batch_size, least)
        if n_first is None:
            if len(rows.y) < self.stream_memory or len(np.unique(rows.y)) < 2:
                return None
            n_first = len(rows.y)  # sets without enough rows are left out, with a warning
        training.prepare(stream.training_rows(rows.part(slice(n_first))), rng)
        return Steps.begin(solver, training.pose(), training.rows.space, rows.part(slice(0)))
