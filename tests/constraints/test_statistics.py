"""Statistics: pullbacks, tables, and histograms that are cubic B-splines of squashed scores."""

import numpy as np
import pytest
import torch
from scipy.interpolate import BSpline

from fairconstrained.constraints import SoftBins
from fairconstrained.constraints.steps import STEPS, Above, ScoreBins
from fairconstrained.constraints.surrogates import ScoreMoments, SplineBins
from fairconstrained.constraints.tables import ClassProbabilities, Columns, Losses
from fairconstrained.losses import LOSSES
from tests.helpers.notions import random_rows

NO_AUX = torch.zeros(0)

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


def column(*scores):
    return torch.tensor(scores, dtype=torch.float64)[:, None]


@pytest.mark.parametrize(("n_columns", "reach"), [(4, 1.0), (9, 3.0), (64, 8.0)])
def test_shares_are_cubic_b_splines_on_equal_knots(n_columns, reach):
    """Of z / sqrt(1 + (z / r)^2), against scipy's design matrix."""
    z = np.random.default_rng(0).normal(scale=2 * reach, size=200)
    squashed = z / np.sqrt(1 + (z / reach) ** 2)
    width = 2 * reach / (n_columns - 3)
    knots = -reach + width * np.arange(-3, n_columns + 1)
    expected = BSpline.design_matrix(squashed, knots, 3).toarray()
    shares = SplineBins(n_columns, reach).soft(torch.as_tensor(z)[:, None], NO_AUX)
    np.testing.assert_allclose(shares, expected, atol=1e-12)


def test_no_score_is_too_far_out_for_a_slope():
    """Heavy tails: a kink at the last knot, or a flat end, would hold a solver up there."""
    z = column(-40.0, -8.0, 0.0, 8.0, 40.0).requires_grad_()
    mean = SplineBins(64).soft(z, NO_AUX) @ torch.arange(64.0, dtype=torch.float64)
    (slope,) = torch.autograd.grad(mean.sum(), z)
    assert (slope > 0).all()
    np.testing.assert_allclose(slope, slope.flip(0), rtol=1e-12)


@pytest.mark.parametrize("params", [{"n_bins": 3}, {"reach": 0.0}, {"reach": np.inf}])
def test_too_few_bins_are_refused(params):
    with pytest.raises(ValueError, match="SoftBins needs four bins or more and a finite reach > 0"):
        SoftBins(**params)
