"""Which rows a step sees: plain functions, all drawing from the generator they are given."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Generator, Tensor

_BLOCK_ROWS = 65_536


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
        return index.reshape(-1), self.scale(size)

    def scale(self, size: int) -> Tensor:
        """How many rows of the data each row of a draw stands for, (size * n_strata,)."""
        return (self._counts.double() / size).expand(size, -1).reshape(-1)


class ShuffledBatches:
    """Batches of row indices for ever: every pass visits each row once, in a new order.

    The last batch of a pass is dropped if it would be smaller, unless it is the only one.

    Parameters
    ----------
    n_rows, batch_size : int
    rng : Generator
    """

    def __init__(self, n_rows: int, batch_size: int, rng: Generator):
        self._n_rows = n_rows
        self._size = min(batch_size, n_rows)
        self._rng = rng
        self.state = (torch.zeros(0, dtype=torch.long), 0)  # the order of this pass, and where

    def __iter__(self) -> Iterator[Tensor]:
        return self

    def __next__(self) -> Tensor:
        order, start = self.state
        if start + self._size > len(order):
            order, start = torch.randperm(self._n_rows, generator=self._rng), 0
        self.state = order, start + self._size
        return order[start : start + self._size]


class BalancedBatches:
    """Draws of about `batch_size` rows, at least one from each stratum, for ever.

    Many at a time: a single draw is mostly the overhead of its operations.

    Parameters
    ----------
    balanced : Balanced
    batch_size : int
    rng : Generator
    """

    def __init__(self, balanced: Balanced, batch_size: int, rng: Generator):
        self._balanced = balanced
        self._size = max(1, round(batch_size / balanced.n_strata))
        self._n_rows = self._size * balanced.n_strata
        self._n_draws = max(1, _BLOCK_ROWS // self._n_rows)
        self._rng = rng
        self._scale = balanced.scale(self._size)
        self.state = (torch.zeros(0, dtype=torch.long), 0)  # rows of a block of draws, and where

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return self

    def __next__(self) -> tuple[Tensor, Tensor]:
        rows, start = self.state
        if start == len(rows):
            rows, start = self._balanced.draw(self._size * self._n_draws, self._rng)[0], 0
        end = start + self._n_rows
        self.state = rows, end
        return rows[start:end], self._scale
