"""Processes of torch.distributed on this machine, for tests."""

import os
import sys
from datetime import timedelta
from multiprocessing import get_all_start_methods, get_context

import pytest
import torch
import torch.distributed as dist

from tests.helpers.repository import ROOT

_KIND = "forkserver"  # imports once what takes each process that is spawned some seconds
needs_gloo = pytest.mark.skipif(
    not (dist.is_available() and dist.is_gloo_available() and _KIND in get_all_start_methods()),
    reason="torch without gloo, or a system without forks",
)


def run_on_workers(task, path, size, *arguments, timeout=timedelta(minutes=5)):
    """What ``task(rank, *arguments)`` returns on each worker, or None for those that died."""
    context = get_context(_KIND)
    context.set_forkserver_preload(["fairconstrained.estimators", "torch.distributed"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), *sys.path]))
        each = ((task, rank, size, path, timeout, arguments) for rank in range(size))
        processes = [context.Process(target=_work, args=args) for args in each]
        for process in processes:
            process.start()
    for process in processes:
        process.join(300)
    found = [path / f"{rank}.pt" for rank in range(size)]
    return [torch.load(own, weights_only=False) if own.exists() else None for own in found]


def _work(task, rank, size, path, timeout, arguments):
    torch.set_num_threads(1)
    store = dist.FileStore(str(path / "store"), size)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=timeout)
    torch.save(task(rank, *arguments), path / f"{rank}.pt")
    os._exit(0)  # without the handshake of a tidy end: others may be gone
