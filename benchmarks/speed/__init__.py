"""Timings that constants in the package cite."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist


@contextmanager
def as_worker() -> Iterator[tuple[int, int]]:
    """Rank and number of the workers that torchrun has started, or of one; one thread each."""
    torch.set_num_threads(1)
    if "WORLD_SIZE" not in os.environ:
        yield 0, 1
        return
    dist.init_process_group("gloo")
    yield dist.get_rank(), dist.get_world_size()
    dist.destroy_process_group()
