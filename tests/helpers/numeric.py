"""Derivatives by differences, double precision, badly scaled columns."""

import numpy as np
import torch


def numerical_jacobian(function, x, step=1e-5):
    """Central differences of a vector function, of shape (m, *x.shape)."""
    columns = []
    for i in range(x.numel()):
        shift = torch.zeros(x.numel(), dtype=x.dtype)
        shift[i] = step
        shift = shift.reshape(x.shape)
        columns.append((function(x + shift) - function(x - shift)) / (2 * step))
    return torch.stack(columns, dim=-1).reshape(-1, *x.shape)


def tensor(values):
    return torch.as_tensor(values, dtype=torch.float64)


def badly_scaled(seed=0, n=400, d=5):
    """Correlated columns with means and scales over many orders of magnitude."""
    rng = np.random.default_rng(seed)
    scale = 10.0 ** rng.uniform(-3, 3, size=d)
    return tensor((rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + rng.normal(size=d)) * scale)
