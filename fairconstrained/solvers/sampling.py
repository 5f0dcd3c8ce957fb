"""Which rows a step sees: plain functions, all drawing from the generator they are given."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Generator, Tensor

__all__ = ["Balanced", "shuffled_batches"]

_BLOCK_ROWS = 65_536


def shuffled_batches(n_rows: int, batch_size: int, rng: Generator) -> Iterator[Tensor]:
    """Batches of row indices for ever: every pass visits each row once, in a new order.

    The last batch of a pass is dropped if it would be smaller, unless it is the only one.
    """
    size = min(batch_size, n_rows)
    while True:
        order = torch.randperm(n_rows, generator=rng)
        for start in range(0, n_rows - size + 1, size):
            yield order[start : start + size]


class Balanced:
    """Equal numbers of rows from each stratum, independent and uniform within it.

    Parameters
    ----------
    strata : LongTensor of shape (n_rows,)
        0, 1, ... without gaps. Rows of a negative stratum are never drawn, unless all are: then
        they are one stratum.

    Raises
    ------
    ValueError
        If a stratum, or everything, is empty.

    Notes
    -----
    A draw of size n holds n tuples of one row per stratum, one tuple after the other: any part of
    the tuples is a smaller draw. Not for private training, whose batches must be Poisson samples.
    """

    def __init__(self, strata: Tensor):
        strata = strata.cpu()
        if len(strata) and int(strata.max()) < 0:
            strata = torch.zeros_like(strata)
        counts = torch.bincount(strata[strata >= 0])
        if not len(counts):
            raise ValueError("There are no rows to draw from.")
        if not counts.all():
            empty = torch.nonzero(counts == 0)[:, 0].tolist()
            raise ValueError(f"Groups {empty} are empty: equal numbers of rows cannot be drawn.")
        self.n_strata = len(counts)
        self._counts = counts
        self._order = torch.argsort(strata, stable=True)
        self._starts = len(strata) - counts.flip(0).cumsum(0).flip(0)

    def draw(self, size: int, rng: Generator) -> tuple[Tensor, Tensor]:
        """Row indices, (size * n_strata,), and how many rows of the data each stands for."""
        u = torch.rand((size, self.n_strata), generator=rng, dtype=torch.float64)
        index = self._order[self._starts + (u * self._counts).long()]
        scale = (self._counts.double() / size).expand(size, -1)
        return index.reshape(-1), scale.reshape(-1)

    def batches(self, batch_size: int, rng: Generator) -> Iterator[tuple[Tensor, Tensor]]:
        """Draws of about `batch_size` rows, at least one from each stratum, for ever.

        Many at a time: a draw of their size takes as long as the overhead of the operations.
        """
        size = max(1, round(batch_size / self.n_strata))
        n_rows = size * self.n_strata
        n_draws = max(1, _BLOCK_ROWS // n_rows)
        while True:
            rows, scale = self.draw(size * n_draws, rng)
            scale = n_draws * scale[:n_rows]
            for draw in torch.split(rows, n_rows):
                yield draw, scale
