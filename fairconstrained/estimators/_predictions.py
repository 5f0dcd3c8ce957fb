"""Predictions in the library of X: numpy, or torch on the device of X."""

from __future__ import annotations

import copy

import torch
from scipy import sparse
from torch import Tensor

__all__ = ["labels_of", "like", "linear_scores", "network_scores"]

_CHUNK_ROWS = 65_536


def like(values, table):
    """The array or tensor `values` in the library, and on the device, of `table`."""
    if isinstance(table, Tensor):
        return torch.as_tensor(values, device=table.device)
    return values.cpu().numpy() if isinstance(values, Tensor) else values


def labels_of(classes, codes, table):
    """The labels of class indices, a Tensor (n,); text is always in numpy."""
    if classes.dtype.kind in "biuf":
        return like(classes, table)[like(codes, table)]
    return classes[codes.cpu().numpy()]


def linear_scores(table, coef, intercept):
    """Scores (n, K) of a linear model, for coefficients (K, d)."""
    return table @ like(coef.T, table) + like(intercept, table)


def network_scores(table, module):
    """Scores (n, K) of a network on the CPU; on other devices of a copy there."""
    device = getattr(table, "device", "cpu")
    if str(device) != "cpu":
        module = copy.deepcopy(module).to(device)
    chunks = []
    with torch.no_grad():
        for start in range(0, table.shape[0], _CHUNK_ROWS):
            rows = table[start : start + _CHUNK_ROWS]
            rows = rows.toarray() if sparse.issparse(rows) else rows
            scores = module(torch.asarray(rows, copy=True))
            chunks.append(scores.reshape(len(rows), -1))
    return like(torch.cat(chunks), table)
