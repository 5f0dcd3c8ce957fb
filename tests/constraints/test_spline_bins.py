"""Smooth bins: cubic B-splines of squashed scores, in tables that touch four columns a row."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.interpolate import BSpline

from fairconstrained import AUCFairClassifier
from fairconstrained.constraints import AUCParity, EqualizedOdds, SoftBins, Stack
from fairconstrained.constraints.spline_bins import SplineBins
from fairconstrained.constraints.statistics import Columns, Losses, sum_by
from fairconstrained.datasets import make_biased_classification
from fairconstrained.losses import log_loss
from fairconstrained.models import LinearModel
from fairconstrained.models.features import as_features
from tests.helpers.notions import bound, random_rows
from tests.helpers.numeric import numerical_jacobian

NO_AUX = torch.zeros(0)
reals = st.floats(-1e6, 1e6, allow_nan=False)


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


@settings(max_examples=50, deadline=None)
@given(scores=st.lists(reals, min_size=1, max_size=20), n_columns=st.integers(4, 100))
def test_a_row_is_shared_out_whole(scores, n_columns):
    z = column(*scores)
    bins = SplineBins(n_columns)
    soft, hard = bins.soft(z, NO_AUX), bins.hard(z, NO_AUX)
    np.testing.assert_allclose(soft.sum(dim=1), 1.0, atol=1e-12)
    assert soft.min() >= -1e-15
    assert ((soft > 1e-15).sum(dim=1) <= 4).all()
    np.testing.assert_array_equal(hard.sum(dim=1), 1.0)
    assert (soft[hard > 0] >= 1 / 6 - 1e-12).all()


def test_no_score_is_too_far_out_for_a_slope():
    """Heavy tails: a kink at the last knot, or a flat end, would hold a solver up there."""
    z = column(-40.0, -8.0, 0.0, 8.0, 40.0).requires_grad_()
    mean = SplineBins(64).soft(z, NO_AUX) @ torch.arange(64.0, dtype=torch.float64)
    (slope,) = torch.autograd.grad(mean.sum(), z)
    assert (slope > 0).all()
    np.testing.assert_allclose(slope, slope.flip(0), rtol=1e-12)


@pytest.mark.parametrize(
    "statistic",
    [SplineBins(11), Columns((SplineBins(7), Losses(log_loss))), Columns(())],
    ids=["bins", "side by side", "none"],
)
def test_tables_are_weighted_sums_of_rows(statistic):
    rows = random_rows(0)
    index = (rows.group * 2 + rows.y).remainder(5)
    leaf = rows.scores.clone().requires_grad_()
    table = statistic.sums(leaf, rows.y, rows.weight, index, 5)
    by_rows = sum_by(statistic.soft(leaf, rows.y) * rows.weight[:, None], index, 5)
    torch.testing.assert_close(table, by_rows, rtol=1e-12, atol=1e-12)
    weights = torch.randn(table.shape, generator=torch.Generator().manual_seed(1)).to(table)
    gradients = [
        torch.autograd.grad((weights * values).sum() + 0.0 * leaf.sum(), leaf)[0]
        for values in (table, by_rows)
    ]
    torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-12)


def test_second_derivatives_are_continuous_across_knots():
    bins = SplineBins(8, 1.0)

    def slope(z):
        leaf = column(z).requires_grad_()
        value = (bins.soft(leaf, NO_AUX) * torch.sin(2.0 * torch.arange(8.0))).sum()
        return torch.autograd.grad(value, leaf)[0].item()

    knot = 0.2 / np.sqrt(1 - 0.2**2)  # squashed: 0.2, a fifth of the way from 0 to the end
    h = 1e-4
    left, right = (slope(knot) - slope(knot - h)) / h, (slope(knot + h) - slope(knot)) / h
    assert left == pytest.approx(right, rel=1e-2)
    assert abs(left) > 1.0


def test_a_stack_keeps_its_members_values_when_sharpened():
    """Sharper bins are more columns: the stack's table has to follow."""
    rows = random_rows(1)
    notions = EqualizedOdds(), AUCParity("intra_group", surrogate=SoftBins(12))
    members = [bound(notion, (2, 3)) for notion in notions]
    stack = Stack(members[0].space, members)
    sharp = stack.sharpened()
    assert sharp.statistic.n_columns > stack.statistic.n_columns
    for whole, parts in ((stack, members), (sharp, [m.sharpened() for m in members])):
        own = [p.values(rows.scores, rows.on(p), NO_AUX) for p in parts]
        values = whole.values(rows.scores, rows.on(whole), NO_AUX)
        torch.testing.assert_close(values, torch.cat(own), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("params", [{"n_bins": 3}, {"reach": 0.0}, {"reach": np.inf}])
def test_too_few_bins_are_refused(params):
    with pytest.raises(ValueError, match="SoftBins needs four bins or more and a finite reach > 0"):
        SoftBins(**params)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1000), n_columns=st.integers(1, 5))
def test_without_an_intercept_scores_keep_their_mean_at_zero(seed, n_columns):
    """AUCs and bins then do not depend on what is added to a column."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(40, n_columns)) + 5.0
    weight = torch.as_tensor(rng.exponential(size=40))
    model = LinearModel.preconditioned(
        as_features(X), weight, 1, 1e-3, fit_intercept=True
    ).for_ranking()
    w = torch.as_tensor(rng.normal(size=n_columns))
    assert model.n_params == n_columns
    scores, pullback = model.linearize(w, as_features(X))
    assert float(weight @ scores[:, 0]) == pytest.approx(0.0, abs=1e-10)
    expected = numerical_jacobian(lambda v: model.scores(v, as_features(X))[:, 0], w)
    cotangent = torch.as_tensor(rng.normal(size=(40, 1)))
    np.testing.assert_allclose(pullback(cotangent), cotangent[:, 0] @ expected, atol=1e-6)
    coef, intercept = model.attributes(w).values()
    np.testing.assert_allclose(X @ coef[0] + intercept[0], scores[:, 0], atol=1e-10)
    np.testing.assert_allclose(model.restore({"coef_": coef, "intercept_": intercept}), w)


@pytest.mark.parametrize("fairness", ["group_auc", "inter_group"])
def test_what_is_added_to_a_column_changes_the_intercept_only(fairness):
    data = make_biased_classification(400, random_state=0)
    shift = np.linspace(-3.0, 5.0, data.data.shape[1])
    fits = [
        AUCFairClassifier(fairness, slack=0.05).fit(
            X, data.target, sensitive_features=data.sensitive_features
        )
        for X in (data.data, data.data + shift)
    ]
    np.testing.assert_allclose(fits[0].coef_, fits[1].coef_, atol=5e-3)
    scores = [
        clf.decision_function(X)
        for clf, X in zip(fits, (data.data, data.data + shift), strict=True)
    ]
    np.testing.assert_allclose(*scores, atol=0.05)
