"""Which rows a step sees: plain functions, all drawing from the generator they are given."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Generator, Tensor

__all__ = ["shuffled_batches"]


def shuffled_batches(n_rows: int, batch_size: int, rng: Generator) -> Iterator[Tensor]:
    """Batches of row indices for ever: every pass visits each row once, in a new order.

    The last batch of a pass is dropped if it would be smaller, unless it is the only one.
    """
    size = min(batch_size, n_rows)
    while True:
        order = torch.randperm(n_rows, generator=rng)
        for start in range(0, n_rows - size + 1, size):
            yield order[start : start + size]
