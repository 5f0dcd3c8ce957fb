"""Devices, and the state that threads share: torch's global generator, limits on threads."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from threadpoolctl import ThreadpoolController
from torch import Generator


def check_device(name: str, device: Any) -> None:
    """Raise ValueError, with the name of the parameter, unless this process can compute there."""
    try:
        if torch.device(device).type == "meta":
            raise RuntimeError("it holds no numbers")
        torch.empty(0, device=torch.device(device))
    except (RuntimeError, TypeError, AssertionError) as error:
        raise ValueError(
            f"{name} must be a torch device that this machine has, such as 'cpu' ({error}); got "
            f"{device!r}."
        ) from error


class _Shared:
    """Users of the shared state, and its values before."""

    def __init__(self) -> None:
        self.generator = threading.RLock()  # held by the thread that has seeded torch
        self.counting = threading.Lock()
        self.limited = 0  # threads that are within `one_thread`
        self.own = threading.local()  # .depth: how often this thread is
        self.torch_threads = 1
        self.blas: Any = None


_shared = _Shared()


@contextmanager
def seeded(seed: int, device: Any = "cpu") -> Iterator[Generator]:
    """Yield a generator, with the global generator of torch seeded alike in the meantime.

    Modules draw their initial parameters and their dropout from the global generator, of which a
    process has one. Threads therefore take turns, and each finds it as it was.

    Examples
    --------
    >>> import torch
    >>> from fairconstrained.process import seeded
    >>> with seeded(0) as rng:
    ...     torch.equal(torch.rand(2), torch.rand(2, generator=rng))
    True
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
    own = shared.own
    own.depth = getattr(own, "depth", 0) + 1
    if own.depth == 1:
        threads = torch.get_num_threads()  # a thread's first question would undo its limit
        with shared.counting:
            if not shared.limited:
                shared.torch_threads = threads
                shared.blas = _libraries().limit(limits=1, user_api="blas")
            shared.limited += 1
        torch.set_num_threads(1)
    try:
        yield
    finally:
        own.depth -= 1
        if own.depth == 0:
            torch.set_num_threads(shared.torch_threads)
            with shared.counting:
                shared.limited -= 1
                if not shared.limited:
                    shared.blas.restore_original_limits()


@functools.cache
def _libraries() -> ThreadpoolController:
    """Search for the BLAS libraries once, since a search takes longer than a small fit's steps."""
    return ThreadpoolController()


def _in_forked_child() -> None:
    """Begin anew: a forked process has a copy of the memory, but only one of the threads.

    Locks of the other threads would never be released. OpenMP would wait for threads that are not
    there, so torch gets one, as in the worker processes of its own ``DataLoader``.
    """
    global _shared
    if _shared.limited:
        _shared.blas.restore_original_limits()
    _shared = _Shared()
    torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_in_forked_child)
