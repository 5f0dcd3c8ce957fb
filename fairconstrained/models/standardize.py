"""Columns shifted and scaled by fixed amounts."""

from __future__ import annotations

from torch import Tensor, nn


class Standardize(nn.Module):
    """Shift and scale the columns by fixed amounts: the first layer of a perceptron."""

    centre: Tensor
    scale: Tensor

    def __init__(self, centre: Tensor, scale: Tensor):
        super().__init__()
        self.register_buffer("centre", centre)
        self.register_buffer("scale", scale)

    def forward(self, X: Tensor) -> Tensor:
        """Standardised columns."""
        return (X - self.centre) / self.scale

    def linear(self, coef: Tensor) -> tuple[Tensor, Tensor]:
        """Weights (k, d) on the outputs and a constant (k,) that give ``coef @ x``."""
        return coef * self.scale, coef @ self.centre
