"""Piecewise linear encodings of columns: what they keep of a column, and what changes nothing."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fairconstrained import RateConstrainedClassifier
from fairconstrained.models import Network, PiecewiseLinear
from fairconstrained.models.features import DenseFeatures, as_features
from tests.helpers.fits import table


def encoded(X, n_bins=8, weight=None, rows=None):
    """The layer chosen by X, and its outputs for other rows, by default X."""
    X = np.asarray(X, dtype=float)
    weight = np.ones(len(X)) if weight is None else np.asarray(weight, dtype=float)
    layer = PiecewiseLinear.of(DenseFeatures(torch.tensor(X)), torch.tensor(weight), n_bins)
    return layer, layer(torch.tensor(X if rows is None else np.asarray(rows, dtype=float))).numpy()


def mixed(n=300, seed=0):
    """A continuous column, one that is mostly zero, a count, a flag and a constant."""
    rng = np.random.default_rng(seed)
    rare = np.where(rng.random(n) < 0.1, rng.exponential(1000, n), 0.0)
    columns = (rng.normal(size=n), rare, rng.poisson(2, n), rng.random(n) < 0.3, np.full(n, 7.0))
    return np.column_stack(columns).astype(float)


@settings(max_examples=50, deadline=None)
@given(
    column=hnp.arrays(float, st.integers(3, 60), elements=st.integers(-50, 50).map(float)),
    n_bins=st.integers(1, 12),
    x=st.lists(st.floats(-100, 100), min_size=1, max_size=5),
)
def test_ramps_add_up_to_the_clipped_column(column, n_bins, x):
    """Half the width of each bin times its ramp: the column within its range, less the mean."""
    layer, found = encoded(column[:, None], n_bins, rows=np.array(x)[:, None])
    clipped = np.clip(x, column.min(), column.max()) - column.mean()
    constant = len(np.unique(column)) == 1
    scale = np.zeros(1) if constant else layer.scale.numpy()
    np.testing.assert_allclose(found @ scale, clipped * (not constant), atol=1e-9)


def test_outputs_are_centred_and_bounded_wherever_x_is():
    X = mixed()
    weight = np.random.default_rng(1).uniform(0.5, 2.0, len(X))
    _, found = encoded(X, weight=weight)
    np.testing.assert_allclose(weight @ found, 0, atol=1e-9)
    layer, far = encoded(X, rows=np.tile([[-1e300], [1e300]], (1, 5)))
    assert np.isfinite(far).all()
    assert np.ptp(far, axis=0).max() <= 2 + 1e-12
    np.testing.assert_allclose(far[0, :-1], layer.low[:-1])
    np.testing.assert_allclose(far[1, :-1], layer.high[:-1])


def test_units_do_not_matter_and_sparse_rows_are_like_dense_ones():
    X = mixed()
    layer, found = encoded(X)
    _, scaled = encoded(X * 3.7 + 11.0)
    np.testing.assert_allclose(scaled, found, atol=1e-9)
    sparse = PiecewiseLinear.of(as_features(sp.csr_array(X)), torch.ones(len(X)).double(), 8)
    for name, tensor in layer.state_dict().items():
        torch.testing.assert_close(sparse.state_dict()[name], tensor)


RANGES = torch.tensor([[-3.0, 0.0, 0.0], [3.0, 40.0, 1.0]]).double()  # the last: an indicator


def in_ranges(n_bins=8):
    """The layer for public ranges, with centres that lie in them."""
    centre = RANGES[0] + torch.tensor([0.4, 0.1, 0.3]).double() * (RANGES[1] - RANGES[0])
    scale = torch.tensor([2.0, 5.0, 0.5]).double()
    return PiecewiseLinear.within(*RANGES, centre, scale, n_bins), centre, scale


@pytest.mark.parametrize("n_bins", [1, 64])
def test_within_public_ranges_ramps_add_up_to_the_column(n_bins):
    """Where ramps of equal length add up to it, a network contains the linear models."""
    layer, centre, scale = in_ranges(n_bins)
    fraction = torch.rand((50, 3), generator=torch.Generator().manual_seed(0)).double()
    X = RANGES[0] + fraction * (RANGES[1] - RANGES[0])
    out = layer(X)
    assert out.shape == (50, 2 * n_bins + 1)
    for j in (0, 1):
        half = 0.5 * (RANGES[1, j] - RANGES[0, j]) / n_bins**0.5
        sums = half * out[:, layer.index == j].sum(dim=1)
        torch.testing.assert_close(sums, X[:, j] - centre[j])
    torch.testing.assert_close(out[:, -1], (X[:, 2] - centre[2]) / scale[2])
    torch.testing.assert_close(layer(centre[None]), torch.zeros_like(out[:1]))


@given(hnp.arrays(float, (4, 3), elements=st.floats(-1e300, 1e300)))
def test_within_public_ranges_outputs_are_bounded_whatever_x_is(X):
    layer, _, scale = in_ranges()
    norms = torch.linalg.vector_norm(layer(torch.tensor(X))[:, :-1], dim=1)
    assert bool((norms <= 2 * 2**0.5 + 1e-12).all())  # two columns, each of a norm of 2 at most
    assert bool((layer(torch.tensor(X))[:, -1].abs() <= 1.0 / scale[2]).all())


@pytest.mark.parametrize("n_bins", [0, True])
def test_numbers_of_bins_are_checked(n_bins):
    X, y, group = table()
    clf = RateConstrainedClassifier(model=Network((4,), n_bins=n_bins))
    with pytest.raises(ValueError, match=r"Network\.n_bins must be a positive integer or None"):
        clf.fit(X, y, sensitive_features=group)
