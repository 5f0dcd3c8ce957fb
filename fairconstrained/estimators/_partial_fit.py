"""Estimators with partial_fit, which train on all samples of a stream so far."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from torch import Generator

from fairconstrained.arrays import as_numpy
from fairconstrained.estimators._calls import data_by_position, unchanged_on_error
from fairconstrained.estimators._parameters import given_callbacks
from fairconstrained.estimators._private import PrivateFairClassifier
from fairconstrained.estimators._rows import Given, checked_weight, random_seed, with_groups
from fairconstrained.estimators._stream import Chunk, Steps, Stream, as_rows, rows_to_begin
from fairconstrained.estimators._training import Stage
from fairconstrained.groups import encode_groups
from fairconstrained.models import Posteriors
from fairconstrained.samples import check_all_samples, check_samples
from fairconstrained.solvers import LevelSet


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
