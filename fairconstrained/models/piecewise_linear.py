"""Columns as sums of ramps, so that a network sees where in its column a number lies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor, nn

from fairconstrained.models.features import Features

_ROWS = 1 << 15  # rows from which bins are chosen; of more rows so many at even distances


class PiecewiseLinear(nn.Module):
    r"""Piecewise linear encoding of columns: the first layer of a perceptron, without parameters.

    Output j is a column shifted, scaled and clipped,

    .. math::

        h_j(x) = \min \Big( \max \Big( \frac{x_{c(j)} - m_j}{s_j},\, a_j \Big),\, b_j \Big) .

    A column of more than two values gives a ramp for each of its n bins, which rises by
    :math:`2 / \sqrt n` within the bin: together they have about the norm of a standardised column,
    and a step of training moves the scores by as much. A linear layer on them is any continuous
    function of the column with kinks at the ends of bins. A column of two values gives one output,
    divided by its range. Outputs have mean zero on the rows by which they were chosen, and are
    bounded whatever x is.

    Parameters
    ----------
    index : LongTensor of shape (n_outputs,)
        :math:`c(j)`.
    centre, scale, low, high : Tensor of shape (n_outputs,)
        m, s, a and b.

    References
    ----------
    Gorishniy, Rubachev and Babenko, "On Embeddings for Numerical Features in Tabular Deep
    Learning", 2022, Section 3.2.

    Examples
    --------
    >>> import torch
    >>> from fairconstrained.models.features import DenseFeatures
    >>> from fairconstrained.models.piecewise_linear import PiecewiseLinear
    >>> X = torch.tensor([[0.0], [1.0], [3.0]], dtype=torch.float64)
    >>> layer = PiecewiseLinear.of(DenseFeatures(X), torch.ones(3).double(), n_bins=2)
    >>> (3 * 2**0.5 * layer(X)).round().tolist()  # bins from 0 to 1 and from 1 to 3
    [[-4.0, -2.0], [2.0, -2.0], [2.0, 4.0]]
    """

    index: Tensor
    centre: Tensor
    scale: Tensor
    low: Tensor
    high: Tensor

    def __init__(self, index: Tensor, centre: Tensor, scale: Tensor, low: Tensor, high: Tensor):
        super().__init__()
        self.register_buffer("index", index)
        self.register_buffer("centre", centre)
        self.register_buffer("scale", scale)
        self.register_buffer("low", low)
        self.register_buffer("high", high)

    @classmethod
    def of(cls, X: Features, weight: Tensor, n_bins: int) -> Self:
        """Choose bins by rows of weights (n,): at most `n_bins` for each column.

        A value is an end of bins if there are at most ``n_bins + 1`` values. Otherwise the ends are
        quantiles of the values, each counted with the square root of its weight: quantiles of rows
        would leave no bins to rare values, such as those of a column that is mostly zero, and
        quantiles of values would give as many to rare ones as to frequent ones.
        """
        rows = torch.linspace(0, len(weight) - 1, min(len(weight), _ROWS)).round().long()
        rows = rows.to(weight.device)
        table, weight = X.rows(rows).to_dense(), weight[rows]
        return cls._of_columns([_ramps(column, weight, n_bins) for column in table.T])

    @classmethod
    def within(cls, low: Tensor, high: Tensor, centre: Tensor, scale: Tensor, n_bins: int) -> Self:
        """Divide the ranges from `low` to `high` into bins of equal length, without reading rows.

        Outputs are zero at the `centre`. A column with the range from 0 to 1 is taken for an
        indicator: it gives one output, divided by its `scale`.

        Parameters
        ----------
        low, high, centre, scale : Tensor of shape (n_features,)
        n_bins : int
        """
        one = (low == 0.0) & (high == 1.0)
        ramps = [
            _scaled_indicator(a, b, c, s) if indicator else _equal_ramps(a, b, c, n_bins)
            for indicator, a, b, c, s in zip(one.tolist(), low, high, centre, scale, strict=True)
        ]
        return cls._of_columns(ramps)

    @classmethod
    def _of_columns(cls, ramps: Sequence[Tensor]) -> Self:
        """The layer with these centres, scales and bounds, (4, n_outputs) for each column."""
        n_outputs = torch.tensor([of_column.shape[1] for of_column in ramps])
        index = torch.arange(len(ramps)).repeat_interleave(n_outputs)
        return cls(index.to(ramps[0].device), *torch.cat(list(ramps), dim=1))

    def forward(self, X: Tensor) -> Tensor:
        """Encoded columns, (n, n_outputs)."""
        moved = X.index_select(1, self.index).sub_(self.centre).div_(self.scale)
        return moved.clamp(self.low, self.high)  # clamp_ has no rule for vmap

    def linear(self, coef: Tensor) -> tuple[Tensor, Tensor]:
        """Weights on the outputs and a constant: ``coef @ x`` for x within the bins.

        Parameters
        ----------
        coef : Tensor of shape (k, n_features)

        Returns
        -------
        weights : Tensor of shape (k, n_outputs)
        constant : Tensor of shape (k,)
        """
        weights = coef[:, self.index] * self.scale
        ends = self.centre + self.scale * self.low
        lowest = ends.new_empty(coef.shape[1]).scatter_reduce(
            0, self.index, ends, "amin", include_self=False
        )
        return weights, coef @ lowest - weights @ self.forward(lowest[None])[0]


def _ramps(column: Tensor, weight: Tensor, n_bins: int) -> Tensor:
    """Centres, scales and bounds of the outputs of a column, (4, n_outputs)."""
    values, place = torch.unique(column, return_inverse=True)
    if len(values) < 3:
        span = values[-1] - values[0]
        scale = torch.where(span > 0, span, torch.ones_like(span))
        mean = weight @ column / weight.sum()
        return torch.stack((mean, scale, *((end - mean) / scale for end in values[[0, -1]])))[
            :, None
        ]
    ends = values
    if len(values) > n_bins + 1:
        mass = weight.new_zeros(len(values)).index_add(0, place, weight).sqrt().cumsum(dim=0)
        levels = torch.linspace(0, 1, n_bins + 1).to(mass)[1:-1] * mass[-1]
        inner = values[torch.searchsorted(mass, levels)]
        ends = torch.unique(torch.cat((values[:1], inner, values[-1:])))
    middle, half = _middles(ends)
    mean = weight @ ((column[:, None] - middle) / half).clamp(-1.0, 1.0) / weight.sum()
    return _centred_ramps(middle, half, mean)


def _equal_ramps(low: Tensor, high: Tensor, centre: Tensor, n_bins: int) -> Tensor:
    """As `_ramps`, for bins of equal length, and zero at the centre."""
    steps = torch.linspace(0.0, 1.0, n_bins + 1).to(low)
    middle, half = _middles(low + (high - low) * steps)
    return _centred_ramps(middle, half, ((centre - middle) / half).clamp(-1.0, 1.0))


def _scaled_indicator(low: Tensor, high: Tensor, centre: Tensor, scale: Tensor) -> Tensor:
    """The one output of an indicator, (4, 1)."""
    bounds = (end.sub(centre).div(scale) for end in (low, high))
    return torch.stack((centre, scale, *bounds))[:, None]


def _middles(ends: Tensor) -> tuple[Tensor, Tensor]:
    """Middles and half lengths of bins."""
    return 0.5 * (ends[1:] + ends[:-1]), 0.5 * ends.diff()


def _centred_ramps(middle: Tensor, half: Tensor, mean: Tensor) -> Tensor:
    """Ramps from -1 to 1 within the bins, less their means, divided by the root of their number."""
    size = len(half) ** 0.5
    return torch.stack(
        (middle + mean * half, half * size, (-1.0 - mean) / size, (1.0 - mean) / size)
    )
