"""Poisson batches and noise: plain functions, all drawing from the generator they are given.

Noise is drawn in double precision and added to sums of doubles; its lowest bits are not protected
against attacks on floating-point arithmetic (Mironov, 2012). A generator with a public seed
protects nothing: seeds are for experiments.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Generator, Tensor

__all__ = [
    "NOISES",
    "PoissonBatches",
    "seed_from_system",
    "with_gaussian_noise",
    "with_laplace_noise",
]

# Where torch keeps the 624 words of its Mersenne Twister in a CPU generator's state.
_STATE_BYTES, _WORDS = 5056, slice(24, 24 + 624 * 8)

_BLOCK_ROWS = 8192  # expected rows of the batches that are drawn together

AddNoise = Callable[[Tensor, float, Generator], Tensor]


def seed_from_system(rng: Generator) -> None:
    """Fill the generator's whole state with the operating system's randomness.

    Torch uses 32 bits of a seed: few enough to try them all out and subtract the noise.
    """
    state = rng.manual_seed(0).get_state()
    if len(state) != _STATE_BYTES:
        raise RuntimeError("This version of torch keeps the state of its generators otherwise.")
    words = np.frombuffer(os.urandom(624 * 4), dtype=np.uint32).astype(np.uint64)
    state[_WORDS] = torch.from_numpy(words.view(np.uint8))
    rng.set_state(state)


class PoissonBatches:
    """Batches that hold every row with the same probability, independently of all others.

    Time grows with the batches, not with `n_rows`: the gaps between chosen rows are geometric. As
    drawing them takes as long as some steps do with the rows, the gaps of a block of batches are
    drawn together: rows of one batch after the other, as if they were one long table.

    Parameters
    ----------
    n_rows : int
    rate : float
        Probability of each row.
    rng : Generator

    Examples
    --------
    >>> import torch
    >>> from fairconstrained.privacy.mechanisms import PoissonBatches
    >>> next(PoissonBatches(5, 1.0, torch.Generator()))
    tensor([0, 1, 2, 3, 4])
    """

    def __init__(self, n_rows: int, rate: float, rng: Generator):
        self.n_rows, self.rate, self.rng = n_rows, rate, rng
        self._drawn: list[Tensor] = []

    def __iter__(self) -> Iterator[Tensor]:
        return self

    def __next__(self) -> Tensor:
        """Indices of the next batch, in order; it may be empty."""
        if self.rate >= 1:
            return torch.arange(self.n_rows)
        if not self._drawn:
            n_batches = max(1, round(_BLOCK_ROWS / (self.rate * self.n_rows + 1)))
            rows = _chosen(n_batches * self.n_rows, self.rate, self.rng)
            starts = self.n_rows * torch.arange(n_batches + 1)
            ends = torch.searchsorted(rows, starts).diff().tolist()
            pieces = zip(torch.split(rows, ends), starts.tolist(), strict=False)
            self._drawn = [piece - start for piece, start in pieces][::-1]
        return self._drawn.pop()


def _chosen(n_rows: int, rate: float, rng: Generator) -> Tensor:
    """Which of `n_rows` rows are chosen, each with probability `rate`, in order."""
    pieces, last = [], -1
    while last < n_rows:
        n_gaps = int(rate * (n_rows - last) + 4 * (rate * n_rows) ** 0.5) + 16
        uniform = torch.rand(n_gaps, generator=rng, dtype=torch.float64)
        # log1p(-u) with u in [0, 1) is finite; the gap is at least 1.
        gaps = (torch.log1p(-uniform) / math.log1p(-rate)).floor() + 1
        chosen = last + gaps.clamp_max(2.0 * n_rows + 2).cumsum(0).long()
        pieces.append(chosen)
        last = int(chosen[-1])
    rows = torch.cat(pieces)
    return rows[rows < n_rows]


def with_gaussian_noise(value: Tensor, deviation: float, rng: Generator) -> Tensor:
    """Add independent normal noise of this standard deviation to every entry."""
    noise = torch.randn(value.shape, generator=rng, dtype=torch.float64)
    return value.add(noise.to(value), alpha=deviation)


def with_laplace_noise(value: Tensor, scale: float, rng: Generator) -> Tensor:
    """Add independent Laplace noise of this scale (deviation over sqrt(2)) to every entry."""
    uniform = torch.rand((2, *value.shape), generator=rng, dtype=torch.float64)
    exponential = -torch.log1p(-uniform)  # the difference of two is Laplace
    return value + scale * (exponential[0] - exponential[1]).to(value)


NOISES: dict[str, AddNoise] = {"gaussian": with_gaussian_noise, "laplace": with_laplace_noise}
