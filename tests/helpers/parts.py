"""Rows in memory and the same rows in parts, and a model of them."""

import numpy as np
import torch
from torch.testing import assert_close

from fairconstrained.models import LinearModel
from fairconstrained.models.features import DenseFeatures
from fairconstrained.problems import Rows

N_ROWS, N_GROUPS = 120, 3


def rows(n_classes=2, wrap=DenseFeatures):
    """A batch, and the same rows in parts: uneven blocks, in small integers."""
    rng = np.random.default_rng(0)
    y, group = rng.integers(n_classes, size=N_ROWS), rng.integers(N_GROUPS, size=N_ROWS)
    X = rng.normal(size=(N_ROWS, 4)) + y[:, None] + 0.3 * group[:, None]
    X[:, 3] = rng.random(N_ROWS) < 0.2
    weight = torch.as_tensor(rng.uniform(0.5, 2.0, size=N_ROWS))
    blocks = [wrap(torch.as_tensor(block)) for block in np.split(X, [7, 8, 70])]
    codes = [torch.as_tensor(column) for column in (y, group)]
    small = [column.to(torch.int8) for column in codes]
    whole = Rows((wrap(torch.as_tensor(X)),), *codes, weight)
    return whole, Rows(blocks, *small, weight)


def model(whole, n_classes):
    n_outputs = 1 if n_classes == 2 else n_classes
    return LinearModel.preconditioned(whole.X, whole.weight, n_outputs, 1e-3, True)


def assert_same_problem(exact, in_parts, x):
    """Values, gradients, standard errors and known points agree."""
    assert (in_parts.n_rows, in_parts.n_constraints) == (exact.n_rows, exact.n_constraints)
    own, other = exact.linearize(x), in_parts.linearize(x)
    assert_close(other.value, own.value)
    weights = torch.randn((3, len(own.value)), dtype=torch.float64)
    assert_close(other.pullbacks(weights), own.pullbacks(weights))
    assert_close(other.pullback(weights[0]), own.pullback(weights[0]))
    for mine, theirs in zip(in_parts.evaluate(x), exact.evaluate(x), strict=True):
        assert_close(mine, theirs)
    assert_close(in_parts.standard_errors(x), exact.standard_errors(x))
    for mine, theirs in zip(in_parts.known(), exact.known(), strict=True):
        assert_close(mine.x, theirs.x)
        assert mine.by == theirs.by
