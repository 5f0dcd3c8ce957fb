"""The samples of a stream in memory, and the state of ``LevelSet`` on it."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import sparse
from torch import Generator

from fairconstrained.arrays import Array, Floats, Ints, as_numpy
from fairconstrained.fit.columns import random_seed
from fairconstrained.fit.exact import recorded
from fairconstrained.fit.rows import FitInputs, TrainingRows, checked_weight
from fairconstrained.fit.task import Fit, Solved, Stage, Task, callbacks_in
from fairconstrained.inputs.groups import Groups, joined, read_groups, recoded
from fairconstrained.inputs.labels import plain_labels
from fairconstrained.inputs.samples import check_samples
from fairconstrained.inputs.values import Description, check_kind
from fairconstrained.models.features import as_features
from fairconstrained.models.linear import WHITEN_ROWS
from fairconstrained.problems.erm import FairERM
from fairconstrained.problems.objectives import PairwiseLoss
from fairconstrained.problems.rows import Rows
from fairconstrained.solvers.base import Iterate, Solution, Status
from fairconstrained.solvers.level_set import LevelSet, LevelSetStream


class Chunk(NamedTuple):
    """Rows of a stream in order of arrival, with class and group indices."""

    X: Any  # dense or CSR
    y: Ints
    group: Ints
    weight: Floats

    def part(self, index: Any) -> Chunk:
        """Return the rows at an index."""
        return Chunk(*(column[index] for column in self))

    def then(self, other: Chunk) -> Chunk:
        """Return the rows of both chunks, in this order; X is CSR if one of them is sparse."""
        rest = (np.concatenate(both) for both in zip(self[1:], other[1:], strict=True))
        if sparse.issparse(self.X) or sparse.issparse(other.X):
            both = [sparse.csr_array(self.X), sparse.csr_array(other.X)]
            return Chunk(sparse.csr_array(sparse.vstack(both)), *rest)
        return Chunk(np.concatenate((self.X, other.X)), *rest)

    def as_rows(self, device: str) -> Rows:
        """Return the rows as solvers see them."""
        y, group, weight = (torch.as_tensor(column, device=device) for column in self[1:])
        return Rows((as_features(self.X, device),), y, group, weight)


@dataclass(frozen=True)
class Stream:
    """The samples of a stream so far; a chunk makes a new object, so errors keep the old one.

    Beyond the limit, the rows with the smallest random keys are kept: a uniform sample.
    """

    classes: Array  # of shape (2,), sorted
    groups: Array | None  # labels of the groups seen, sorted; None without groups
    rows: Chunk  # in memory
    keys: Floats
    n_seen: int
    seed: int
    description: Description | None = None  # of the groups so far; None without groups
    steps: Steps | None = None  # the state of a solver that continues

    def extended(
        self, X: Any, y: Array, classes: Any, groups: Groups | None, weight: Floats, limit: int
    ) -> tuple[Stream, Chunk]:
        """Return the stream after a chunk, and the rows of the chunk with positive weight."""
        check_kind(y.tolist()[:1], self.classes.tolist()[:1], "y")
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
        labels, codes, rows = self.groups, np.zeros(len(y), dtype=np.int64), self.rows
        if groups is not None and labels is not None:
            labels, (old, places) = joined([labels, groups.labels])
            rows = rows._replace(group=recoded(rows.group, old))
            codes = recoded(groups.codes, places)
        chunk = Chunk(X, np.searchsorted(self.classes, y), codes, weight).part(weight > 0)
        # Keys depend on the place in the stream, so that chunks of any size give the same sample.
        place = np.random.PCG64(self.seed).advance(self.n_seen)
        new_keys = np.random.Generator(place).random(len(chunk.y))
        rows, keys = rows.then(chunk), np.concatenate((self.keys, new_keys))
        if len(keys) > limit:
            # In order of arrival, which a solver that continues relies on.
            index = np.sort(np.argpartition(keys, limit)[:limit])
            rows, keys = rows.part(index), keys[index]
        n_seen = self.n_seen + len(chunk.y)
        return replace(self, groups=labels, rows=rows, keys=keys, n_seen=n_seen), chunk

    def training_rows(self, n_first: int | None = None) -> TrainingRows:
        """Return the rows in memory, or the first `n_first`, in the form that a fit takes."""
        names = None if self.description is None else self.description.columns
        rows = self.rows.part(slice(n_first))
        return TrainingRows(*rows, self.classes, self.groups, columns=names)


def extended_stream(
    task: Task, estimator: Any, stream: Stream | None, inputs: FitInputs, classes: Any
) -> tuple[Stream, Chunk]:
    """Validate a chunk; return the stream extended by it, and the rows of the chunk."""
    check_samples(**inputs._asdict())
    # scikit-learn notes the columns of the first chunk on the estimator.
    first = stream is None
    X, y = task.specification.training_rows(estimator, inputs.X, inputs.y, reset=first)
    X, weight = as_numpy(X), checked_weight(inputs.sample_weight, len(y))  # in numpy from now on
    groups, description = None, None if stream is None else stream.description
    if inputs.sensitive_features is not None:
        groups, description = read_groups(inputs.sensitive_features, len(y), description)
        groups = groups.certain("partial_fit")
        if isinstance(task.solver, LevelSet) and not groups.known.all():
            raise ValueError(
                "sensitive_features must have the group of every row in partial_fit with LevelSet, "
                f"whose state holds no rows of unknown group; it is missing in row "
                f"{int(groups.known.argmin())}."
            )
    if stream is None:
        labels = np.unique(y if classes is None else plain_labels(classes, "classes"))
        if len(labels) != 2:
            raise ValueError(
                f"{task.name} ranks one class above one other; partial_fit got {len(labels)}: "
                f"{labels.tolist()}. Give both in the first call, classes=[negative, positive]."
            )
        seen = None if groups is None else groups.labels[:0]
        codes, keys = np.zeros(0, dtype=np.int64), np.zeros(0)
        none = Chunk(X[:0], codes, codes, keys)
        stream = Stream(labels, seen, none, keys, 0, random_seed(task.random_state))
    stream = replace(stream, description=description)
    return stream.extended(X, y, classes, groups, weight, task.params["stream_memory"])


@dataclass(frozen=True)
class Steps:
    """State of ``LevelSet`` on a stream; each chunk makes a new one."""

    problem: FairERM  # on the rows it began with
    state: LevelSetStream
    waiting: Chunk  # for a full mini-batch, so that chunks do not matter

    def after(self, solver: LevelSet, seen: Array | None, rows: Chunk, device: str) -> Steps:
        """Return the state after a step for each full mini-batch; new groups have no variables."""
        known = list(self.problem.constraint.space.groups)
        new = [] if seen is None else [label for label in seen.tolist() if label not in known]
        if new:
            raise ValueError(
                f"partial_fit with LevelSet began with the groups {np.array(known).tolist()}; this "
                f"chunk has {new}, for which its state has no variables. Start over, with rows of "
                "all groups first."
            )
        rows, size = self.waiting.then(rows), solver.batch_size
        # Only full mini-batches: steps are then the same however the stream is cut.
        end = len(rows.y) - len(rows.y) % size
        state = self.state
        for start in range(0, end, size):
            state = state.after(solver, rows.part(slice(start, start + size)).as_rows(device))
        return replace(self, state=state, waiting=rows.part(slice(end, None)))

    def stage(self, data: Rows) -> Stage:
        """Return the problem on the rows `data`, with the state as its solution, in a copy."""
        risk = self.problem.risk
        if isinstance(risk, PairwiseLoss):
            # Take the fractions of labels from the rows that are measured.
            risk = PairwiseLoss.from_data(risk.surrogate, data)
        model = copy.deepcopy(self.problem.model)
        problem = replace(self.problem, data=data, risk=risk, model=model)
        state, w = self.state, self.state.x[: model.n_params]
        iterate = Iterate(w, *problem.evaluate(w), state.descent.multipliers(), torch.inf)
        history, status = [recorded(problem.constraint, iterate)], Status.STREAMING
        return Stage(problem, Solution(iterate, state.n_steps, status, history, [0.0], status))


def stepped(
    task: Task, stream: Stream, chunk: Chunk, rng: Generator
) -> tuple[Stream, tuple[Fit, Solved, list[str]] | None]:
    """Return the stream after the steps of a chunk, and fit, solution and omissions once begun."""
    if task.margin > 0:
        raise ValueError(
            f"{task.name}.margin must be 0 with {type(task.solver).__name__} in partial_fit: a "
            f"margin takes a second fit; got {task.margin!r}."
        )
    steps, left_out = stream.steps, []
    if steps is None:
        n_first = first_rows(task, stream)
        if n_first is None:
            return stream, None
        fit = task.learn(Fit(task, stream.training_rows(n_first), rng, []))
        problem, left_out = task.pose(fit)
        state = LevelSetStream.begin(task.solver, problem)
        chunk, steps = stream.rows, Steps(problem, state, stream.rows.part(slice(0)))
    steps = steps.after(task.solver, stream.groups, chunk, task.device)
    stage = steps.stage(stream.rows.as_rows(task.device))
    for callback in callbacks_in(task.callbacks) or ():
        callback(stage.solution.iterate)
    fit = Fit(task, stream.training_rows(), rng, [])
    return replace(stream, steps=steps), (fit, Solved([stage]), left_out)


def first_rows(task: Task, stream: Stream) -> int | None:
    """Return the number of rows the solver begins with; None while it should wait for more."""
    rows, n_first = stream.rows, None
    n_groups = 1 if stream.groups is None else len(stream.groups)
    if stream.groups is None or n_groups > 1:
        least = task.min_group_size
        in_cell = 1 if isinstance(least, str) else max(least, 1)
        cell = rows.y * n_groups + rows.group
        counts = np.cumsum(cell[:, None] == np.arange(2 * n_groups), axis=0)
        # The first row by which every cell has enough: it depends on the stream and not on its
        # chunks.
        enough = np.asarray((counts >= in_cell).all(axis=1))
        enough[: max(task.solver.batch_size, WHITEN_ROWS * rows.X.shape[1]) - 1] = False
        n_first = int(enough.argmax()) + 1 if enough.any() else None
    is_full = len(rows.y) >= task.params["stream_memory"]
    if n_first is None and is_full and len(np.unique(rows.y)) == 2:
        n_first = len(rows.y)
    return n_first
