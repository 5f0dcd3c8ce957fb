"""Processes that train one module together: each measures its part of every draw of rows."""

from __future__ import annotations

from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from fairconstrained.exceptions import WorkerError

__all__ = ["Workers"]

_PATIENCE = timedelta(seconds=10)  # how long to wait for a heartbeat


class Workers:
    """The processes of ``torch.distributed``, or this one alone if it is not initialised.

    All of them draw the same rows from the same seed. A draw is cut into consecutive parts, one for
    each; what is additive over rows (moments and gradients) is summed by collectives, so that every
    worker makes the step that one worker would make, up to rounding.
    """

    def __init__(self) -> None:
        together = dist.is_available() and dist.is_initialized()
        self.rank = dist.get_rank() if together else 0
        self.size = dist.get_world_size() if together else 1
        self._losses = 0

    def part(self, n_rows: int, unit: int = 1) -> slice:
        """Where the part of this worker in a draw is: whole groups of `unit` rows.

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
        total = tensor.detach().clone()
        try:
            dist.all_reduce(total)
        except RuntimeError as error:
            raise WorkerError(
                f"worker {self.rank} of {self.size} cannot go on: {self._missing()} {error}"
            ) from error
        return total

    def sum_with_gradient(self, tensor: Tensor) -> Tensor:
        """The sum over the workers, whose gradient is that of this worker's part."""
        return tensor if self.size == 1 else self.sum(tensor) + (tensor - tensor.detach())

    def same(self, tensor: Tensor) -> Tensor:
        """What the first worker has."""
        mine = tensor if self.rank == 0 else torch.zeros_like(tensor)
        return self.sum(mine)

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
        found = ", ".join(f"worker {rank}" for rank in missing) or "no worker"
        return f"{found} gave no heartbeat within {_PATIENCE.seconds} s."
