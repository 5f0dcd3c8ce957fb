r"""Coordinates for private training: released centre and scales of the columns.

Gradient descent suits rows with a mean near zero and norms of a few units. Public ranges alone do
not ensure that: rows of a hundred columns that fill a quarter of their ranges all point the same
way. Nor do they tell a frequent category from a rare one, whose coefficient plain steps would learn
a hundred times slower.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from fairconstrained.models.features import Features, clip_factors
from fairconstrained.numerics import ROUNDING
from fairconstrained.privacy.mechanisms import Releases

_SIZES, _NORM, _MOMENTS = SCALING = (
    "sizes of the columns' entries",
    "mean squared norm",
    "moments of the columns",
)
# Entries are binned by their size, in powers of 4, up to the largest numbers that double precision
# has.
_FACTOR, _BINS = 4.0, 500
LARGEST = _FACTOR**_BINS  # beyond it entries are cut, so that no sum of them overflows
# Where noise hides variances of columns of a range of one as large as this, they need not be rare
# categories: at epsilon 0.1 on Parkinsons runs cost .014 of error (see the decisions).
_SMALL = 0.1
# Neighbouring columns of small variance that also count together: errors fall from .218 to .211 on
# ACSIncome (see the decisions).
_RUN = 16


class Coordinates(NamedTuple):
    """Columns become (x - centre) / scale."""

    centre: Tensor  # (d,)
    scale: Tensor  # (d,)
    far: bool = False  # whether most rows are outside of the public range, by the released moments
    run: Tensor | None = None  # (d,) index of each column's run; -1 for columns in none


def release_scales(
    X: Features, n_rows: int, public: Coordinates, releases: Releases, rng: Generator
) -> Coordinates:
    r"""Release scales of columns without a public range: powers of 4, where numbers are large.

    The release is a table of counts

    .. math:: T_{jb} = \sum_i w_i\, 1[4^b < |x_{ij}| \le 4^{b+1}] + C \sigma \xi_{jb},
              \qquad b = 1, \dots, 500, \quad w_i = \min(1, C / \sqrt{k_i}),

    where :math:`k_i` is the number of entries of row i beyond 4, and :math:`C = \min(d, 16)^{1/2}`:
    a row adds :math:`w_i` to :math:`k_i` entries, a vector of norm at most C, however many bins
    there are. The last one has all larger entries. The scale of column j is :math:`4^{b+1}` with
    the largest b whose count is beyond the noise and at least 1 % of the rows. Of `n_rows` rows,
    those of X are this worker's.
    """
    n_columns = X.shape[1]
    # Rows with more than 16 large entries count less in each.
    norm = min(n_columns, 16) ** 0.5
    zero, one = torch.zeros_like(public.centre), torch.ones_like(public.scale)

    def counted(_: slice, entries: Tensor) -> Tensor:
        size = (entries.abs().log2() / math.log2(_FACTOR)).ceil().clamp(1, _BINS + 1).long() - 1
        row, column = torch.nonzero(size, as_tuple=True)
        n_large = torch.bincount(row, minlength=len(entries)).double()
        weight = (norm / n_large.clamp_min(1).sqrt()).clamp_max(1.0)
        place = column * _BINS + size[row, column] - 1
        return torch.bincount(place, weight[row], minlength=n_columns * _BINS)

    table = chunk_sums(X, zero, one, counted)
    counts = releases.noisy(_SIZES, table, norm, rng).reshape(n_columns, _BINS)
    # With 500 bins in 100 columns, noise alone is beyond 5.4 standard deviations once in 600 fits.
    seen = counts > max(5.4 * releases.plan.noise(_SIZES) * norm, 0.01 * n_rows)
    largest = (seen * torch.arange(1, _BINS + 1, device=seen.device)).amax(dim=1)
    return public._replace(scale=torch.where(largest > 0, _FACTOR ** (largest + one), one))


def release_coordinates(
    X: Features, n_rows: int, public: Coordinates, releases: Releases, rng: Generator
) -> Coordinates:
    r"""Release the rows' mean squared norm and the columns' moments; return coordinates.

    With :math:`u_i = (x_i - c) / s` in public coordinates that bring columns to [0, 1], and
    :math:`v_i = (u_i, u_i \circ u_i)`,

    .. math::

        \tilde r^2 = \frac1n \Big( \sum_i \min(\lVert u_i \rVert^2, d)
            + d\, \sigma \xi \Big), \qquad
        (\tilde m, \tilde q) = \frac1n \Big( \sum_i \mathrm{clip}_{2 \tilde r}(v_i)
            + 2 \tilde r\, \sigma \xi' \Big),

    two Gaussian releases. The mean is shrunk towards zero by its known noise (positive-part
    James-Stein). Scales are the fourth roots of the variances, and the typical norm of the rows
    stays what it was, but at most 4. Columns of small variances form runs. Of the n = `n_rows`
    rows, those of X are this worker's.
    """
    n_columns = X.shape[1]
    total = X.square_norms(public.centre, 1.0 / public.scale).clamp_max(n_columns).sum()
    typical = releases.noisy(_NORM, total, n_columns, rng) / n_rows
    # Such rows would all be at corners of their ranges: more likely most are outside.
    far = bool(typical > 0.99 * n_columns)
    typical = typical.clamp(1.0, float(n_columns))
    # Noise is in proportion to the clipping norm: only rows of twice the typical one are clipped.
    reach = 2.0 * float(typical.sqrt())

    def clipped(_: slice, entries: Tensor) -> Tensor:
        both = torch.cat((entries, entries.square()), dim=1)
        return clip_factors(torch.linalg.vector_norm(both, dim=1), reach) @ both

    sums = chunk_sums(X, public.centre, public.scale, clipped)
    moments = releases.noisy(_MOMENTS, sums, reach, rng) / n_rows
    mean, square = moments[:n_columns], moments[n_columns:]
    deviation = releases.plan.noise(_MOMENTS) * reach / n_rows
    noise_square = n_columns * deviation**2
    mean = mean * (1.0 - noise_square / mean.square().sum().clamp_min(1e-30)).clamp_min(0.0)
    total_variance = (typical - mean.square().sum()).clamp_min(0.0)
    # Smaller variances are within two standard deviations of noise of none.
    variance, least = square - mean.square(), 2.0 * deviation
    scale, run = _scales(variance, total_variance, least), _runs(variance, least)
    return Coordinates(public.centre + public.scale * mean, public.scale * scale, far, run)


def _scales(variance: Tensor, total: Tensor, least: float) -> Tensor:
    r"""Return fourth roots of the columns' variances v, times a common factor.

    In columns :math:`x_j / s_j` noise costs about :math:`\sum_j s_j^2 / v_j` in the loss, because
    the curvature along a coefficient is in proportion to the variance. Rows may have norms of
    :math:`(\sum_j s_j^{-2})^{1/2}`, which the clip bounds. For a given product of both,
    :math:`s_j \propto v_j^{1/4}` costs least. Variances below `least` are noise: these columns
    share one scale, and the rest of the `total` variance is theirs.
    """
    known = variance > least
    known_variance = variance[known].sum()
    total = total.clamp_min(max(float(known_variance), ROUNDING))  # noise may contradict it
    squared = torch.where(known, variance, least).sqrt()
    norm = (variance / squared)[known].sum() + (total - known_variance) / least**0.5
    # Steps are of one size: rows of a larger typical norm are scaled down to this one.
    return torch.sqrt(squared * norm / total.clamp_max(4.0**2))


def _runs(variance: Tensor, least: float) -> Tensor:
    r"""Number the runs of columns whose variances v may be noise; -1 for other columns.

    A rare category can hardly be learnt by itself, but its neighbours are often alike, because
    encoders sort categories by their codes: models get a coefficient for the sum of each run. Runs
    have 16 to 31 of these columns, in their order. Where noise would hide variances of `_SMALL`
    too, there are none: such columns need not be rare.
    """
    small = (variance <= least) & (least < _SMALL)
    n_small = int(small.sum())
    run = (small.cumsum(0) - 1) * (n_small // _RUN) // max(n_small, 1)
    return torch.where(small & (n_small >= _RUN), run, -1)


def chunk_sums(
    X: Features, centre: Tensor, scale: Tensor, chunk_sum: Callable[[slice, Tensor], Tensor]
) -> Tensor:
    """Sum a function of some rows at a time, given their places and dense (x - centre) / scale.

    The difference comes first: far from zero sums of x and of the centre differ by rounding errors.
    """

    def some_sum(index: Tensor) -> Tensor:
        entries = (X.rows(index).to_dense() - centre) / scale
        return chunk_sum(slice(int(index[0]), int(index[-1]) + 1), entries)

    n_rows, n_columns = X.shape
    size = max(1, (1 << 22) // n_columns)  # 32 MB of dense rows
    places = torch.split(torch.arange(n_rows, device=centre.device), size)
    return reduce(torch.add, map(some_sum, places))
