"""Predictions in the library of X: numpy, or torch on the device of X."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor, nn

from fairconstrained.arrays import Array, Floats

BLOCK_ROWS = 65_536


def like(values: Any, table: Any) -> Any:
    """The array or tensor `values` in the library, and on the device, of `table`."""
    if isinstance(table, Tensor):
        return torch.as_tensor(values, device=table.device)
    return values.cpu().numpy() if isinstance(values, Tensor) else values


def labels_of(classes: Array, codes: Tensor, table: Any) -> Any:
    """The labels of class indices, a Tensor (n,); text is always in numpy."""
    if classes.dtype.kind in "biuf":
        return like(classes, table)[like(codes, table)]
    return classes[codes.cpu().numpy()]


def linear_scores(table: Any, coef: Floats, intercept: Floats) -> Any:
    """Scores (n, K) of a linear model, for coefficients (K, d)."""
    return table @ like(coef.T, table) + like(intercept, table)


def network_scores(table: Any, module: nn.Module) -> Any:
    """Scores (n, K) of a network on the CPU; on other devices of a copy there."""
    device = getattr(table, "device", "cpu")
    if str(device) != "cpu":
        module = copy.deepcopy(module).to(device)
    rows = table.toarray() if sparse.issparse(table) else table
    with torch.no_grad():
        scores = module(torch.asarray(rows, dtype=torch.float64, copy=True))
    return like(scores.reshape(len(rows), -1), table)


def by_blocks(function: Callable[[Any], Any], table: Any) -> Any:
    """A function of the rows of a table, for some rows at a time to save memory."""
    result: Any = None
    for start in range(0, table.shape[0], BLOCK_ROWS):
        rows = slice(start, start + BLOCK_ROWS)
        block = function(table[rows])
        if result is None:
            shape = (table.shape[0], *block.shape[1:])
            kept = isinstance(block, Tensor)
            result = block.new_empty(shape) if kept else np.empty(shape, block.dtype)
        result[rows] = block
    return result
