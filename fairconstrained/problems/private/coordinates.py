r"""Coordinates for private training from two noisy statistics: the rows' mean norm and mean.

Gradient descent suits rows with a mean near zero and norms of a few units. Public ranges alone do
not ensure that: the rows of a hundred columns that fill a quarter of their ranges all point the
same way, and steps along their mean swing from one constant prediction to the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from fairconstrained.models.base import clip_factors
from fairconstrained.models.features import Features
from fairconstrained.privacy.mechanisms import with_gaussian_noise

__all__ = ["Coordinates", "centred_chunks", "release_coordinates", "weighted_sum"]

_REACH = 2.0  # largest norm in the mean, in units of the typical norm; larger rows are clipped
_CHUNK_NUMBERS = 1 << 22  # of dense rows held at a time: 32 MB
_FAR = 0.99  # of the largest mean squared norm that rows within the range can have
_TYPICAL = 4.0  # rows of a larger typical norm are scaled down to this one


class Coordinates(NamedTuple):
    """Columns become (x - centre) / scale."""

    centre: Tensor  # (d,)
    scale: Tensor  # (d,)
    far: bool = False  # whether most rows are outside of the public range, by what was released


def release_coordinates(
    X: Features, public: Coordinates, noise: float, rng: Generator
) -> Coordinates:
    r"""Coordinates from releases of the rows' mean squared norm and of their mean.

    With :math:`u_i = (x_i - c) / s` in public coordinates that bring columns to [0, 1],

    .. math::

        \tilde r^2 = \frac1n \Big( \sum_i \min(\lVert u_i \rVert^2, d)
            + d\, \sigma \xi \Big), \qquad
        \tilde m = \frac1n \Big( \sum_i \mathrm{clip}_{2 \tilde r}(u_i)
            + 2 \tilde r\, \sigma \xi' \Big),

    with standard normal :math:`\xi, \xi'`: two Gaussian releases of noise multiplier
    :math:`\sigma`. The mean is shrunk towards zero by its known noise (positive-part James-Stein),
    and the scale grows where the typical norm of centred rows exceeds 4.

    Parameters
    ----------
    X : Features of shape (n, d)
    public : Coordinates
        From ranges that do not depend on the data.
    noise : float
        Noise multiplier of each of the two releases.
    rng : Generator

    Returns
    -------
    Coordinates
    """
    n_rows, n_columns = X.shape
    squares = X.square_norms(public.centre, 1.0 / public.scale)
    total = squares.clamp_max(n_columns).sum()
    typical = with_gaussian_noise(total, noise * n_columns, rng) / n_rows
    far = bool(typical > _FAR * n_columns)
    typical = typical.clamp(1.0, float(n_columns))
    reach = _REACH * float(typical.sqrt())
    factors = clip_factors(squares.sqrt(), reach)
    total = weighted_sum(X, factors, public.centre, public.scale)
    mean = with_gaussian_noise(total, noise * reach, rng) / n_rows
    of_noise = n_columns * (noise * reach / n_rows) ** 2
    mean = mean * (1.0 - of_noise / mean.square().sum().clamp_min(1e-30)).clamp_min(0.0)
    spread = (typical - mean.square().sum()).clamp_min(0.0).sqrt()
    return Coordinates(
        public.centre + public.scale * mean,
        public.scale * (spread / _TYPICAL).clamp_min(1.0),
        far,
    )


def centred_chunks(X: Features, centre: Tensor, scale: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Dense (x - centre) / scale of some rows at a time, and which rows they are.

    The difference comes first: where a centre is many scales away from zero, sums of x and of the
    centre differ by rounding errors that are larger than what a row may add.
    """
    n_rows, n_columns = X.shape
    size = max(1, _CHUNK_NUMBERS // n_columns)
    for index in torch.split(torch.arange(n_rows, device=centre.device), size):
        rows = slice(int(index[0]), int(index[-1]) + 1)
        yield rows, (X.rows(index).to_dense() - centre) / scale


def weighted_sum(X: Features, factor: Tensor, centre: Tensor, scale: Tensor) -> Tensor:
    """Sum of factor (x - centre) / scale, (d,)."""
    total = torch.zeros_like(centre)
    for rows, centred in centred_chunks(X, centre, scale):
        total += factor[rows] @ centred
    return total
