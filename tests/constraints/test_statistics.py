"""The pullback of every statistic is the derivative of its weighted soft values."""

import pytest
import torch

from fairconstrained.constraints.spline_bins import SplineBins
from fairconstrained.constraints.statistics import (
    ClassProbabilities,
    Columns,
    Losses,
)
from fairconstrained.constraints.steps import STEPS, Above, ScoreBins
from fairconstrained.constraints.surrogates import ScoreMoments
from fairconstrained.losses import LOSSES
from tests.helpers.notions import random_rows

BINARY = {
    "score moments": ScoreMoments(),
    "score bins": ScoreBins(7, 2.0),
    "spline bins": SplineBins(7, 2.0),
    **{
        f"above, {name}": Above(torch.tensor([-0.3, 0.1, 0.9]), step, 3.0)
        for name, step in STEPS.items()
    },
}
STATISTICS = {
    **{("probabilities", k): ClassProbabilities(k, 1.7) for k in (2, 3, 5)},
    **{(f"{name} loss", k): Losses(loss) for name, loss in LOSSES.items() for k in (2, 3)},
    ("side by side", 2): Columns(
        (ClassProbabilities(2), Losses(LOSSES["log"]), ClassProbabilities(2, 3.0))
    ),
    **{(name, 2): statistic for name, statistic in BINARY.items()},
    ("none", 2): Columns(()),
}


@pytest.mark.parametrize(
    ("n_classes", "statistic"),
    [(k, statistic) for (_, k), statistic in STATISTICS.items()],
    ids=[f"{name}, {k} classes" for name, k in STATISTICS],
)
def test_pullbacks_equal_autograd(n_classes, statistic):
    scores, y, _, _ = random_rows(3, n_classes)
    scores = scores.requires_grad_()
    soft = statistic.soft(scores, y)
    assert soft.shape == (len(scores), statistic.n_columns)
    rng = torch.Generator().manual_seed(0)
    weights = torch.randn(soft.shape, generator=rng, dtype=soft.dtype)
    total = (weights * soft).sum() + 0.0 * scores.sum()
    (expected,) = torch.autograd.grad(total, scores)
    value, pullback = statistic.linearize(scores.detach(), y)
    torch.testing.assert_close(value, soft.detach(), rtol=0, atol=0)
    for _ in range(2):  # it may be called again
        torch.testing.assert_close(pullback(weights), expected, rtol=1e-9, atol=1e-12)
