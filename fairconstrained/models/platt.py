"""Platt scaling: increasing maps from ranking scores to log odds, which change no AUC."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

_RIDGE = 1e-4  # on the mean loss: keeps the slope finite if the scores separate the labels
_FLATTEST = 1e-6  # least slope for standardised scores: the order must not be reversed
_STEPS = 50
_EXACT = 1e-13


def log_odds_scale(scores: Tensor, y: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Slope and offset that turn scores (n,) into log odds of the label (Platt scaling).

    This is logistic regression on one variable by Newton's method. The slope stays positive, which
    keeps the order of the scores.
    """
    weight = weight / weight.sum()
    mean = weight @ scores
    std = (weight @ (scores - mean) ** 2).sqrt()
    unit = std if std > 0 else torch.ones_like(std)
    z = (scores - mean) / unit
    sign = 2.0 * y.to(scores.dtype) - 1.0
    rate = weight[y == 1].sum()
    x = torch.stack((torch.zeros_like(rate), torch.logit(rate)))

    def loss(x: Tensor) -> Tensor:
        return weight @ F.softplus(-sign * (x[0] * z + x[1])) + 0.5 * _RIDGE * x[0] ** 2

    for _ in range(_STEPS):
        p = torch.sigmoid(x[0] * z + x[1])
        error, curvature = weight * (p - y), weight * p * (1.0 - p)
        gradient = torch.stack((error @ z + _RIDGE * x[0], error.sum()))
        cross = curvature @ z
        hessian = torch.stack(
            (
                torch.stack((curvature @ z**2 + _RIDGE, cross)),
                torch.stack((cross, curvature.sum())),
            )
        )
        step = torch.linalg.solve(hessian, gradient)
        while loss(x - step) > loss(x) and step.abs().max() > _EXACT:
            step = 0.5 * step
        x = x - step
        if step.abs().max() <= _EXACT * (1.0 + x.abs().max()):
            break
    slope = x[0].clamp_min(_FLATTEST) / unit
    return slope, x[1] - slope * mean
