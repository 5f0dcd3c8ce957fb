r"""Poisson batches and noise, drawn from a given generator.

Sums and noise in floating point leak what they should hide: the doubles that a sum plus its noise
can reach depend on the sum [1]_. Here both are rounded to multiples of a power of two and added as
integers. The step :math:`s` of this grid depends on the noise alone, so that neighbouring data sets
reach the same numbers. The system's noise is that of real numbers, rounded: where double precision
or 64 bits leave the nearest multiple in doubt, more bits are drawn and more digits computed. That
bits end at 192 moves the law of an entry, on fewer than 2^62 multiples, by a total variation of
less than 2^-130: nothing to any delta, and not charged. So the result is as private as the Gaussian
or Laplace mechanism on rounded sums [2]_. Rounding moves each of d entries by at most
:math:`s / 2`. A row moves the rounded sum by at most

.. math:: \Delta_2 + s \sqrt d \le \Delta_2 + 2^{-24} \sigma,
          \qquad \Delta_1 + s\, d \le \Delta_1 + 2^{-24} b ,

and the accountant charges more than that
(:data:`~fairconstrained.privacy.accounting.GRID_SHIFT`).

References
----------
.. [1] Mironov (2012), "On Significance of the Least Significant Bits for Differential Privacy".
.. [2] Balcer and Vadhan (2018), "Differential Privacy on Finite Computers", on rounding.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from functools import cached_property
from importlib import import_module
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from scipy.special import ndtri
from torch import Generator, Tensor

from fairconstrained.arrays import Floats, Ints
from fairconstrained.privacy.accounting import Gaussian, Laplace, PrivacyGuarantee

# Expected rows of the batches that are drawn together, which costs less than drawing each.
_BLOCK_ROWS = 8192
# Random words at a time: a call of the system costs as much as some hundred words, and 32 KB stay
# in the first cache.
_BLOCK_WORDS = 4096
# Most that rounding adds to the norm of a row's contribution, in units of the noise: the accountant
# charges for it (GRID_SHIFT of privacy/accounting.py).
_GRID = 2.0**-24
# Largest number of steps of the grid; two such numbers add up within 64 bits.
_LARGEST = 2.0**61
# Seeds travel between workers as signed numbers of 64 bits.
_SEEDS = 2**63
# The quantile z of a word of at least _SHORT is off by less than _DOUBT * (1 + |z|), by rounding
# and by missing bits: of 125,000 words normal quantiles by a quarter of that.
_SHORT, _DOUBT = 2**48, 2.0**-49
# Random bits beyond a word that decide a rounding in doubt, and the bits of that computation, more
# than the 64 + 128 of the longer word.
_MORE_BITS, _PRECISION = 128, 224


class Law(NamedTuple):
    """A symmetric law of noise: its quantiles below zero, as a function of probabilities."""

    quantile: Callable[[Any], Any]  # of probabilities of at most 1/2
    probability: Callable[[Any, Any], Any]  # of being below a value, by mpmath's functions
    seeded: Callable[[Generator, int], Floats]


class SystemGenerator(Generator):
    """Cryptographic randomness of the operating system, which no one can predict or try out.

    The functions of this module draw from the system. Functions of torch that are given this
    generator draw from its Mersenne Twister, which has a state of its own and tells nothing.
    """

    def __init__(self) -> None:
        super().__init__()
        self.seed()
        # drawn and not yet used
        self._words = np.empty(0, np.uint64)
        self._ready: dict[tuple[Law, float], Ints] = {}

    def words(self, n: int) -> Any:
        """Return random words of 64 bits, which are drawn in blocks."""
        if n > len(self._words):
            self._words = np.frombuffer(os.urandom(8 * max(n, _BLOCK_WORDS)), np.uint64)
        drawn, self._words = self._words[:n], self._words[n:]
        return drawn

    def steps(self, law: Law, n: int, per_unit: float) -> Ints:
        """Draw noise in units of 1 / `per_unit`, rounded as real numbers would be."""
        if n > _BLOCK_WORDS:  # parts stay in the processor's cache
            sizes = [_BLOCK_WORDS] * (n // _BLOCK_WORDS) + [n % _BLOCK_WORDS]
            return np.concatenate([self.steps(law, size, per_unit) for size in sizes])
        # The steps of a fit add the same noise to few numbers, again and again.
        ready = self._ready.get((law, per_unit))
        if ready is None or n > len(ready):
            ready = self._block(law, per_unit)
        self._ready[law, per_unit] = ready[n:]
        return ready[:n]

    def _block(self, law: Law, per_unit: float) -> Ints:
        words = self.words(_BLOCK_WORDS)
        # A word and its complement are as far from the median, on both sides.
        tails = np.minimum(words, ~words)
        noise = per_unit * law.quantile(_probability(tails))
        steps: Floats = np.rint(noise)
        doubt = np.abs(noise - steps) - _DOUBT * noise > 0.5 - _DOUBT * per_unit
        for i in np.flatnonzero(doubt | (tails < _SHORT)):
            steps[i] = self._decided(law, int(tails[i]), per_unit)
        return np.where(words == tails, steps, -steps).astype(np.int64)

    @cached_property
    def _digits(self) -> Any:
        """The arithmetic of many digits by mpmath, which threads do not share."""
        context = import_module("mpmath").MPContext()
        context.prec = _PRECISION
        return context

    def _decided(self, law: Law, word: int, per_unit: float) -> int:
        """Round the noise of a word below the median by more random bits and more digits."""
        bits = word << _MORE_BITS | int.from_bytes(os.urandom(_MORE_BITS // 8))
        whole, mp = 2 ** (64 + _MORE_BITS), self._digits
        below = math.floor(per_unit * float(law.quantile((2 * bits + 1) / (2 * whole))))
        edge = law.probability(mp, mp.mpf(below + 0.5) / per_unit)  # of the next multiple
        return below + 1 if bits >= whole * edge else below


def _probability(words: Any) -> Floats:
    """Return the middle, in (0, 1], of the numbers whose first 64 bits are each word."""
    return (words.astype(np.float64) + 0.5) * 2.0**-64  # type: ignore[no-any-return]


class SharedGenerator(Generator):
    """Randomness of workers whose rows are released together, as if one worker had them all.

    Each worker draws from its own rows, independently: these batches are together one Poisson batch
    of all rows. A release is the sum over all workers plus the noise of the first one alone. Every
    worker rounds the sum over its own rows to the grid, and the first adds its noise to it, before
    these integers are summed. A row moves the sum of one worker, by as much as if that worker were
    alone: the charge is the same. Sums of single workers travel without noise, so workers must
    trust each other and the network between them.

    Functions of torch that are given this generator draw the same on all workers. A common seed
    of `own` is replaced on all workers but the first, which would otherwise draw the same batches.
    """

    def __new__(cls, own: Generator, workers: Any) -> Self:
        return super().__new__(cls)  # torch's takes a device

    def __init__(self, own: Generator, workers: Any):
        super().__init__()
        seed = own.initial_seed() % _SEEDS
        if workers.rank > 0:
            own_seed = np.random.SeedSequence([seed, workers.rank]).generate_state(1)
            own.manual_seed(int(own_seed[0]))  # nothing to a generator that draws from the system
        self.own = own
        self.workers = workers
        of_first = torch.tensor(seed if workers.rank == 0 else 0)
        self.manual_seed(int(workers.sum(of_first)))


def _source(rng: Generator) -> Generator:
    """Return the generator for draws that workers do not share."""
    return rng.own if isinstance(rng, SharedGenerator) else rng


def _exponential(rng: Generator, n: int) -> Floats:
    source = _source(rng)
    if isinstance(source, SystemGenerator):
        return -np.log(_probability(source.words(n)))
    uniform: Floats = torch.rand(n, generator=source, dtype=torch.float64).numpy()
    return -np.log1p(-uniform)


_NORMAL = Law(
    ndtri,
    lambda mp, value: mp.erfc(-value / mp.sqrt(2)) / 2,
    lambda rng, n: torch.randn(n, generator=rng, dtype=torch.float64).numpy(),
)
_LAPLACE = Law(
    lambda p: np.log(2.0 * p),
    lambda mp, value: mp.exp(value) / 2,
    lambda rng, n: np.subtract(*_exponential(rng, 2 * n).reshape(2, n)),
)


def _released(rng: Generator, part: Ints, noise: Ints) -> Ints:
    """Sum over all workers that share `rng`, plus noise once."""
    if not isinstance(rng, SharedGenerator):
        return part + noise
    most = int(_LARGEST) // rng.workers.size  # so many workers add up within 64 bits
    part = part.clip(-most, most)
    given = part + noise if rng.workers.rank == 0 else part
    total: Ints = rng.workers.sum(torch.from_numpy(given)).numpy()
    return total


class PoissonBatches:
    """Batches that hold every row with the same probability, independently of all others.

    Time grows with the batches, not with `n_rows`: the gaps between chosen rows are geometric. The
    gaps of a block of batches are drawn together, as if their rows were one long table.
    """

    def __init__(self, n_rows: int, rate: float):
        self.n_rows, self.rate = n_rows, rate
        self._drawn: list[Tensor] = []

    def draw(self, rng: Generator) -> Tensor:
        """Return indices of the next batch, in order; it may be empty."""
        if self.rate >= 1:
            return torch.arange(self.n_rows)
        if not self._drawn:
            n_batches = max(1, round(_BLOCK_ROWS / (self.rate * self.n_rows + 1)))
            rows = _chosen(n_batches * self.n_rows, self.rate, rng)
            starts = self.n_rows * torch.arange(n_batches + 1)
            sizes = torch.searchsorted(rows, starts).diff().tolist()
            self._drawn = list(torch.split(rows % self.n_rows, sizes))[::-1]
        return self._drawn.pop()


def _chosen(n_rows: int, rate: float, rng: Generator) -> Tensor:
    """Draw indices of the rows that are chosen, each with probability `rate`, in order."""
    pieces, last = [], -1
    while last < n_rows:
        n_gaps = int(rate * (n_rows - last) + 4 * (rate * n_rows) ** 0.5) + 16
        # The gap is at least 1.
        gaps = np.floor(_exponential(rng, n_gaps) / -math.log1p(-rate)) + 1
        chosen = last + np.minimum(gaps, 2.0 * n_rows + 2).cumsum().astype(np.int64)
        pieces.append(chosen)
        last = int(chosen[-1])
    rows = np.concatenate(pieces)
    return torch.from_numpy(rows[rows < n_rows])


def with_gaussian_noise(value: Tensor, deviation: float, rng: Generator) -> Tensor:
    """Add independent normal noise of standard deviation `deviation` to every entry."""
    return _added_on_grid(value, _NORMAL, deviation, math.sqrt(value.numel()), rng)


def with_laplace_noise(value: Tensor, scale: float, rng: Generator) -> Tensor:
    """Add independent Laplace noise of a scale, deviation / sqrt(2), to every entry."""
    return _added_on_grid(value, _LAPLACE, scale, value.numel(), rng)


def noise_generator(seed: int | None) -> Generator:
    """Return the system's randomness or, for experiments, a seeded generator."""
    return SystemGenerator() if seed is None else Generator().manual_seed(seed)


def noisy_argmax(values: Sequence[float], scale: float, rng: Generator) -> int:
    """Return the place of the largest value with exponential noise: report noisy max, no more."""
    return int(np.argmax(np.asarray(values) + scale * _exponential(rng, len(values))))


def _added_on_grid(value: Tensor, law: Law, scale: float, spread: float, rng: Generator) -> Tensor:
    """Return `value` plus `scale` times noise, both rounded to multiples of a power of two.

    `spread` is the largest norm of a vector of this size with entries of at most 1. The result has
    double precision: a count may have an integer type, which would cut the noise to whole numbers.
    """
    value = value.detach().double()
    if scale == 0:
        if value.any():
            raise RuntimeError("A sum that is not zero would be released without noise.")
        return value
    step = 2.0 ** math.floor(math.log2(_GRID * scale / max(spread, 1.0)))
    exact: Floats = value.cpu().numpy().reshape(-1)
    source, size = _source(rng), value.numel()
    if isinstance(source, SystemGenerator):
        noise = source.steps(law, size, scale / step)
    else:
        noise = _rounded(scale * law.seeded(source, size), step)
    steps = _released(rng, _rounded(exact, step), noise)
    return torch.from_numpy(steps * step).reshape(value.shape).to(value)


def _rounded(numbers: Floats, step: float) -> Ints:
    """Convert to steps of the grid, as 64-bit integers; NaN counts as zero."""
    largest = _LARGEST * step
    numbers = np.where(numbers == numbers, numbers, 0.0)  # np.nan_to_num would double the time
    return np.rint(np.minimum(np.maximum(numbers, -largest), largest) / step).astype(np.int64)


ADD_NOISE = {Gaussian: with_gaussian_noise, Laplace: with_laplace_noise}


class Releases:
    """The noisy sums of a plan, each released at most as often as it was accounted for."""

    def __init__(self, plan: PrivacyGuarantee):
        self.plan = plan
        self._planned = plan.releases
        self._left = {name: times for name, (_, times) in self._planned.items()}

    def noisy(self, name: str, total: Tensor, bound: float, rng: Generator) -> Tensor:
        """Release a sum over the rows of this worker, or with a SharedGenerator of all workers.

        A row adds at most `bound` to it: in the l2 norm, or the l1 norm for Laplace noise. It is a
        RuntimeError if the release has been made as often as planned.
        """
        return self.noisy_parts(name, [total], bound, rng)[0]

    def noisy_parts(
        self, name: str, totals: Sequence[Tensor], bound: float, rng: Generator
    ) -> list[Tensor]:
        """Release several sums, to which a row adds at most `bound` together."""
        if self._left.get(name, 0) < 1:
            raise RuntimeError(f"The privacy budget is spent: the plan has no {name} left.")
        self._left[name] -= 1
        release, _ = self._planned[name]
        add_noise = ADD_NOISE[type(release)]
        return [add_noise(total, release.noise * bound, rng) for total in totals]
