"""Processes that train one model together, each with a part of the rows.

Counts, tables and gradients, which are additive over rows, are summed by collectives of
``torch.distributed``, so that every worker makes the step that one worker with all rows would make.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from fairconstrained.exceptions import WorkerError

T = TypeVar("T")

_PATIENCE = timedelta(seconds=10)  # how long to wait for a heartbeat
_OUT_OF_STEP = (
    "the workers are there, but out of step. All have to fit the same estimators in the same "
    "order, and a worker that raises an error in training has to end."
)


class Workers:
    """Some processes of ``torch.distributed``, or this one alone.

    Parameters
    ----------
    rank : int, default=0
        The number of this one.
    size : int, default=1
        How many there are.
    group : ProcessGroup, optional
        Of ``torch.distributed``; default: all processes.

    Examples
    --------
    >>> import torch
    >>> from fairconstrained.workers import Workers
    >>> alone = Workers()
    >>> alone.sum(torch.ones(2)), alone.gather("mine")
    (tensor([1., 1.]), ['mine'])
    """

    def __init__(self, rank: int = 0, size: int = 1, group: Any = None):
        self.rank = rank
        self.size = size
        self._group = group
        self._turn = 0  # number of sums and gathers so far
        self._losses = 0

    @classmethod
    def initialised(cls, group: Any = None) -> Workers:
        """The processes of a group, or this one alone if ``torch.distributed`` is not initialised.

        Parameters
        ----------
        group : ProcessGroup, optional
            Default: all processes.
        """
        if not (dist.is_available() and dist.is_initialized()):
            return cls()
        return cls(dist.get_rank(group), dist.get_world_size(group), group)

    def part(self, n_rows: int, unit: int = 1) -> slice:
        """Return the part of this worker in a draw: whole groups of `unit` rows.

        Raises
        ------
        ValueError
            If there is not one for each worker.
        """
        n_units = n_rows // unit
        if n_units < self.size:
            raise ValueError(
                f"a batch of {n_rows} rows, in units of {unit} for balance between groups, cannot "
                f"be shared by {self.size} workers; take a larger batch_size."
            )
        ends = [unit * (n_units * rank // self.size) for rank in (self.rank, self.rank + 1)]
        return slice(*ends)

    def sum(self, tensor: Tensor) -> Tensor:
        """Sum over the workers; the same on each.

        Raises
        ------
        WorkerError
            If some worker is gone.
        """
        if self.size == 1:
            return tensor
        self._turn += 1
        total = tensor.detach().clone(memory_format=torch.contiguous_format)
        with self._naming_the_lost():
            dist.all_reduce(total, group=self._group)
        return total

    def sum_with_gradient(self, tensor: Tensor) -> Tensor:
        """Return the sum over the workers, with the gradient of this worker's part."""
        return tensor if self.size == 1 else self.sum(tensor) + (tensor - tensor.detach())

    def same(self, tensor: Tensor) -> Tensor:
        """Return the tensor of the first worker."""
        mine = tensor if self.rank == 0 else torch.zeros_like(tensor)
        return self.sum(mine)

    def gather(self, mine: T) -> list[T]:
        """Return the objects of all workers, in their order: small ones that can be pickled.

        Raises
        ------
        WorkerError
            If some worker is gone, or is not where the others are.
        """
        if self.size == 1:
            return [mine]
        self._turn += 1
        found = [(self._turn, mine)] * self.size
        with self._naming_the_lost():
            dist.all_gather_object(found, found[0], group=self._group)
        turns, said = zip(*found, strict=True)
        if len(set(turns)) > 1:
            raise WorkerError(f"worker {self.rank} of {self.size} cannot go on: {_OUT_OF_STEP}")
        return list(said)

    def largest(self, mine: Tensor) -> float:
        """Return the largest of one number of each worker."""
        return max(self.gather(float(mine)))

    def any(self, mine: object) -> bool:
        """Return whether this is true on some worker."""
        return any(self.gather(bool(mine)))

    def asked(self, callbacks: Sequence[Callable[..., Any]]) -> list[Callable[..., Any]]:
        """Return callbacks whose answer is true on all workers if it is on one."""
        if self.size == 1:
            return list(callbacks)

        def ask_all(*about: object) -> bool:
            answers: list[object] = []
            with self.agreeing():
                answers += [callback(*about) for callback in callbacks]  # each has to be called
            return self.any(any(answers))

        return [ask_all]

    @contextmanager
    def agreeing(self) -> Iterator[None]:
        """Raise on all workers what is raised on one.

        Within it no worker may wait for another.

        Raises
        ------
        WorkerError
            If another worker has raised an error. The message holds it.
        """
        error: Exception | None = None
        try:
            yield
        except Exception as raised:
            if self.size == 1:
                raise
            error = raised
        said = self.gather(None if error is None else f"{type(error).__name__}: {error}")
        if error is not None:
            raise error
        for rank, message in enumerate(said):
            if message is not None:
                raise WorkerError(f"worker {rank} of {self.size} raised {message}")

    @contextmanager
    def _naming_the_lost(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            raise WorkerError(
                f"worker {self.rank} of {self.size} cannot go on: {self._missing()} {error}"
            ) from error

    def _missing(self) -> str:
        """Ranks without a heartbeat, in words: survivors leave theirs in the shared store."""
        self._losses += 1
        store = dist.distributed_c10d._get_default_store()
        missing = []
        try:
            store.set(f"fairconstrained/alive/{self._losses}/{self.rank}", "1")
            for rank in range(self.size):
                try:
                    store.wait([f"fairconstrained/alive/{self._losses}/{rank}"], _PATIENCE)
                except RuntimeError:
                    missing.append(rank)
        except RuntimeError:
            return "the process that started the workers gives no heartbeat."
        if not missing:
            return _OUT_OF_STEP
        found = ", ".join(f"worker {rank}" for rank in missing)
        return f"{found} gave no heartbeat within {_PATIENCE.seconds} s."


ALONE = Workers()


def refuse_difference(what: str, said: Sequence[object]) -> None:
    """Raise ValueError on all workers unless they have said the same.

    Parameters
    ----------
    what : str
        In words.
    said : sequence
        The answers of the workers, by :meth:`Workers.gather`.
    """
    for rank, own in enumerate(said):
        if own != said[0]:
            raise ValueError(
                f"workers must agree in their {what}: worker 0 has {said[0]}, worker {rank} has "
                f"{own}."
            )
