"""Devices, threads, and processes that train one model together.

Threads share torch's global generator and limits on threads. Processes have a part of the rows
each: counts, tables and gradients, which are additive over rows, are summed by collectives of
``torch.distributed``, so that every worker makes the step that one worker with all rows would make.
"""

from __future__ import annotations

import math
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import lru_cache
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from sklearn.utils.validation import _num_samples
from threadpoolctl import ThreadpoolController
from torch import Generator, Tensor

from fairconstrained.arrays import CHOSEN_WORKERS
from fairconstrained.exceptions import WorkerError

__all__ = ["sharded_rows"]

T = TypeVar("T")

# A table with more entries gains from threads: boosted trees on so many take a second without them.
_FEW_ENTRIES = 1_000_000
_PATIENCE = timedelta(seconds=10)  # how long to wait for a heartbeat
_OUT_OF_STEP = (
    "the workers are there, but out of step. All have to fit the same estimators in the same "
    "order, and a worker that raises an error in training has to end."
)


def check_device(name: str, device: Any) -> None:
    """Raise ValueError, naming the parameter, unless this process can compute on the device."""
    try:
        # Tensors can be allocated on the meta device, too, so its name has to be checked.
        if torch.device(device).type == "meta":
            raise RuntimeError("it holds no numbers")
        torch.empty(0, device=torch.device(device))
    except (RuntimeError, TypeError, AssertionError) as error:
        raise ValueError(
            f"{name} must be a torch device that this machine has, such as 'cpu' ({error}); got "
            f"{device!r}."
        ) from error


class _Shared:
    """Locks, the number of threads that limit themselves, and the limits to restore."""

    def __init__(self) -> None:
        self.generator = threading.RLock()  # held by the thread that has seeded torch
        self.counting = threading.Lock()
        self.limited = 0  # threads that are within `one_thread`
        self.local = threading.local()  # .depth: nested calls in this thread
        self.torch_threads = 1
        self.libraries: ThreadpoolController | None = None
        self.blas: Any = None


_shared = _Shared()


@contextmanager
def seeded(seed: int, device: Any = "cpu") -> Iterator[Generator]:
    """Yield a generator with this seed, which torch's global generator has in the meantime, too.

    Modules draw their initial parameters and their dropout from the one global generator of a
    process. Threads therefore take turns, and each restores its state.
    """
    devices = [torch.device(device)] if torch.device(device).type == "cuda" else []
    with _shared.generator, torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield torch.Generator().manual_seed(seed)


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit torch and BLAS to one thread, since more threads slow small operations down.

    BLAS has one limit for all threads of the process, and torch starts new threads with the last
    limit that any thread has set. The first thread to come therefore remembers both limits, and
    the last one to leave restores them.
    """
    shared = _shared  # of this process, also where a child is forked in the meantime
    local = shared.local
    local.depth = getattr(local, "depth", 0) + 1
    if local.depth == 1:
        threads = torch.get_num_threads()  # a thread's first question would undo its limit
        with shared.counting:
            if not shared.limited:
                shared.torch_threads = threads
                # A search for the libraries takes longer than a small fit's steps.
                shared.libraries = shared.libraries or ThreadpoolController()
                shared.blas = shared.libraries.limit(limits=1, user_api="blas")
            shared.limited += 1
        torch.set_num_threads(1)
    try:
        yield
    finally:
        local.depth -= 1
        if local.depth == 0:
            torch.set_num_threads(shared.torch_threads)
            with shared.counting:
                shared.limited -= 1
                if not shared.limited:
                    shared.blas.restore_original_limits()


@contextmanager
def one_openmp_thread(X: Any) -> Iterator[None]:
    """Limit OpenMP to one thread around a user's classifier, if the table X is small.

    Threads wait for each other at each node of a tree. If another program has one of their cores,
    they wait thousands of times for its turn to end. A number chosen by the user stays, whether by
    OMP_NUM_THREADS or by a limit that differs from the number of cores.
    """
    shape = X.shape if hasattr(X, "shape") else (_num_samples(X),)
    few = math.prod(shape) <= _FEW_ENTRIES
    if not few or "OMP_NUM_THREADS" in os.environ:
        yield
        return
    # A container may have fewer cores than the machine.
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    libraries = _libraries(len(sys.modules)).select(user_api="openmp")
    paths = [library["filepath"] for library in libraries.info() if library["num_threads"] == cores]
    with libraries.select(filepath=paths).limit(limits=1):
        yield


@lru_cache(maxsize=1)
def _libraries(n_modules: int) -> ThreadpoolController:
    """Find the thread pools of loaded libraries, again whenever more modules are imported."""
    return ThreadpoolController()


def _in_forked_child() -> None:
    """Reset the shared state in a forked process, which has only one of the parent's threads.

    Locks of the other threads would never be released. OpenMP would wait for threads that are not
    there, so torch gets one, as in the worker processes of its own ``DataLoader``.
    """
    global _shared
    # The parent will restore its limit of BLAS; no thread of the child would lift the inherited
    # one.
    if _shared.limited:
        _shared.blas.restore_original_limits()
    _shared = _Shared()
    torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_in_forked_child)


class Workers:
    """The processes of a group of ``torch.distributed``, or this process alone."""

    def __init__(self, rank: int = 0, size: int = 1, group: Any = None):
        self.rank = rank
        self.size = size
        self._group = group
        self._turn = 0  # number of sums and gathers so far
        self._losses = 0

    @classmethod
    def initialised(cls, group: Any = None) -> Workers:
        """Return the processes of a group, or this process alone without ``torch.distributed``."""
        if not (dist.is_available() and dist.is_initialized()):
            return cls()
        return cls(dist.get_rank(group), dist.get_world_size(group), group)

    def part(self, n_rows: int, unit: int = 1) -> slice:
        """Return this worker's slice of a draw: whole units of `unit` rows, at least one unit."""
        n_units = n_rows // unit
        if n_units < self.size:
            raise ValueError(
                f"a batch of {n_rows} rows, in units of {unit} for balance between groups, cannot "
                f"be shared by {self.size} workers; take a larger batch_size."
            )
        ends = [unit * (n_units * rank // self.size) for rank in (self.rank, self.rank + 1)]
        return slice(*ends)

    def sum(self, tensor: Tensor) -> Tensor:
        """Return the sum over the workers, on each of them; raise WorkerError if one is gone."""
        if self.size == 1:
            return tensor
        self._turn += 1
        # The sum is taken in place, and gloo takes contiguous tensors only.
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
        """Return a small object of each worker, which can be pickled, in the order of the ranks.

        Raise WorkerError if some worker is gone, or is not where the others are.
        """
        if self.size == 1:
            return [mine]
        self._turn += 1
        # The turns show whether all workers take part in the same exchange.
        # torch fills the list, whose length counts.
        messages = [(self._turn, mine)] * self.size
        with self._naming_the_lost():
            dist.all_gather_object(messages, messages[0], group=self._group)
        turns, values = zip(*messages, strict=True)
        if len(set(turns)) > 1:
            raise WorkerError(f"worker {self.rank} of {self.size} cannot go on: {_OUT_OF_STEP}")
        return list(values)

    def agreed_callbacks(self, callbacks: Sequence[Callable[..., Any]]) -> list[Callable[..., Any]]:
        """Return callbacks whose answer is true on all workers if it is on one."""
        if self.size == 1:
            return list(callbacks)

        def ask_all(*about: object) -> bool:
            answers: list[object] = []
            with self.agreeing():
                answers += [callback(*about) for callback in callbacks]  # each has to be called
            return any(self.gather(any(answers)))

        return [ask_all]

    @contextmanager
    def agreeing(self) -> Iterator[None]:
        """Raise an error of one worker on all workers; on the others as a WorkerError.

        Inside this context no worker may wait for another.
        """
        if self.size == 1:
            yield
            return
        error: Exception | None = None
        try:
            yield
        except Exception as raised:
            error = raised
        errors = self.gather(None if error is None else f"{type(error).__name__}: {error}")
        if error is not None:
            raise error
        for rank, message in enumerate(errors):
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
        """Name the workers without a heartbeat; the others leave theirs in the shared store."""
        self._losses += 1
        # There is no public way to the store, which outlives a worker that collectives wait for.
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
        names = ", ".join(f"worker {rank}" for rank in missing)
        return f"{names} gave no heartbeat within {_PATIENCE.seconds} s."


ALONE = Workers()


def refuse_difference(what: str, values: Sequence[object]) -> None:
    """Raise ValueError, naming `what`, unless all workers gathered the same value."""
    for rank, value in enumerate(values):
        if value != values[0]:
            raise ValueError(
                f"workers must agree in their {what}: worker 0 has {values[0]}, worker {rank} has "
                f"{value}."
            )


@contextmanager
def sharded_rows(group: Any = None) -> Iterator[None]:
    """Treat the rows given to ``fit`` inside this context as this worker's part of the rows.

    All workers call ``fit`` with the same parameters and their own rows, and end with the same
    model: without `epsilon` the one that a single worker finds on all rows, up to rounding. They
    exchange only counts, tables of the constraint, gradients, the names of labels and groups, and
    scores whose order is compared.

    It works for all estimators, with a linear model or a fitted classifier as `model`, a
    :class:`sklearn.frozen.FrozenEstimator`. The constrained linear model on its posteriors learns
    from the rows of all workers, its calibration and the models of the groups from the first
    worker's.

    AUCs, and gaps at all thresholds of an interval, are functions of all scores. Up to 400,000 rows
    each worker sends the scores of its rows, and the values are exact. Above, W workers send
    :math:`K = 400000 / (W C)` quantiles for each of C labels and groups. ``violation_`` then
    differs from the gap of all rows by at most 4 / K for AUCs and 2 / (K L) for gaps in an interval
    of length L. A gap of ranks (``"rank_parity"``) differs by at most 2 / K from the gap in an
    interval whose ends are at most 1 / K away. The optimised functions and their gradients are
    sums over all rows. Platt scaling and ``interval="auto"`` use the same scores.

    With `epsilon`, linear models of all estimators take part. Each worker draws the Poisson batch
    of its own rows, the noise on the sum over all workers is drawn once, by the first, and
    ``privacy_`` is the same as for one worker with all rows. Sums over the rows of one worker
    travel without noise: the workers are one party, which has to trust the network between them.
    Where groups alone are secret, which worker has a row must not depend on its group.

    Choose parameters outside: a search would score on each worker's own rows, so workers would
    choose differently; ``GridSearchCV`` ends with an error on all. With `n_jobs`, fits run in
    threads or processes in which each worker is alone. ``CertifiedClassifier``,
    ``PrivateGridSearch`` and ``partial_fit`` raise an error. An error in training, such as a file
    of ``Blocks`` that cannot be read, must end its worker, since the others are still in the fit.

    Parameters
    ----------
    group : ProcessGroup, optional
        Of ``torch.distributed``; default: all processes. Its ``timeout`` is how long to wait for a
        worker that does not answer.

    Examples
    --------
    A process alone; ``torchrun`` or Dask start several, and give each its rank.

    >>> import torch.distributed as dist
    >>> from fairconstrained import RateConstrainedClassifier
    >>> from fairconstrained.datasets import make_biased_classification
    >>> from fairconstrained.distributed import sharded_rows
    >>> data = make_biased_classification(500, random_state=0)
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> with sharded_rows():
    ...     clf = RateConstrainedClassifier().fit(
    ...         data.data, data.target, sensitive_features=data.sensitive_features)
    >>> clf.feasible_
    True
    >>> dist.destroy_process_group()
    """
    if not (dist.is_available() and dist.is_initialized()):
        raise ValueError(
            "sharded_rows needs the workers of torch.distributed: call "
            "torch.distributed.init_process_group first, as programs for torchrun do."
        )
    workers = Workers.initialised(group)
    if workers.rank < 0:
        raise ValueError(
            "sharded_rows must be called by the processes of `group`; this process is not in it."
        )
    before = CHOSEN_WORKERS.set(workers)
    try:
        yield
    finally:
        CHOSEN_WORKERS.reset(before)


@contextmanager
def taken_workers() -> Iterator[Workers]:
    """Yield the workers of ``sharded_rows``; fits inside this context run on one worker alone."""
    workers = CHOSEN_WORKERS.get() or ALONE
    # Fits inside this one, such as of a pipeline's steps, see this worker's rows alone.
    before = CHOSEN_WORKERS.set(None)
    try:
        yield workers
    finally:
        CHOSEN_WORKERS.reset(before)
