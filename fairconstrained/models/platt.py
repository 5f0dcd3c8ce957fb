"""Platt scaling: increasing maps from ranking scores to log odds, which change no AUC."""

from __future__ import annotations

import warnings

import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from fairconstrained.arrays import as_numpy

_RIDGE = 1e-4  # on the mean loss: keeps the slope finite if the scores separate the labels
_FLATTEST = 1e-6  # least slope for standardised scores: the order must not be reversed
_EXACT = 1e-12


def log_odds_scale(scores: Tensor, y: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return slope and offset that turn scores (n,) into log odds of the label (Platt scaling).

    The slope of the logistic regression stays positive, which keeps the order of the scores.
    """
    weight = weight / weight.sum()
    mean = weight @ scores
    std = (weight @ (scores - mean) ** 2).sqrt()
    unit = std if std > 0 else torch.ones_like(std)
    z, labels, weights = map(as_numpy, (((scores - mean) / unit)[:, None], y, weight))
    model = LogisticRegression(C=1.0 / _RIDGE, tol=_EXACT, solver="newton-cholesky")
    with warnings.catch_warnings():  # where scores separate the labels it goes on by another solver
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(z, labels, weights)
    found, intercept = scores.new_tensor([model.coef_[0, 0], model.intercept_[0]])
    slope = found.clamp_min(_FLATTEST) / unit
    return slope, intercept - slope * mean
