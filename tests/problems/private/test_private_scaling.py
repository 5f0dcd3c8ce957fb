"""Coordinates of private training: releases of bounded sensitivity, and what they become."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from fairconstrained.models.features import DenseFeatures, as_features
from fairconstrained.privacy import Gaussian, Phase
from fairconstrained.privacy.mechanisms import Releases
from fairconstrained.problems.private.coordinates import (
    SCALING,
    Coordinates,
    release_coordinates,
    release_scales,
)
from tests.helpers.releases import answered_by, plan_of, without_noise


def public(d, low=0.0, width=1.0):
    like = torch.ones(d, dtype=torch.float64)
    return Coordinates(low * like, width * like)


def of_noise(noise):
    return Releases(plan_of(*(Phase([Gaussian(noise, of=name)]) for name in SCALING)))


def rng():
    return torch.Generator().manual_seed(0)


def released(X, coordinates):
    """The exact sums that are released, and the deviations of the noise on them, for noise 1."""
    with pytest.MonkeyPatch.context() as patch:
        asked = answered_by(patch, without_noise)
        release_coordinates(as_features(X), len(X), coordinates, of_noise(1.0), rng())
    return [(total.reshape(-1), deviation) for _, deviation, total in asked]


@settings(max_examples=60)
@given(st.integers(1, 12), st.floats(0.01, 100.0), st.floats(0.01, 1e6), st.integers(0, 2**31))
def test_one_row_moves_each_release_by_at_most_its_noise_multiplier_of_one(d, size, row, seed):
    """However long a row is: the l2 sensitivity is what the noise is a multiple of.

    The reach of the moments is itself released, so it is the same on both data sets.
    """
    random = np.random.default_rng(seed)
    X = random.normal(size=(20, d)) * size
    extra = np.vstack((X, random.normal(size=(1, d)) * row))
    coordinates = public(d, -1.0, 2.0)
    (squares, of_squares), (moments, of_moments) = released(X, coordinates)
    (squares_too, of_squares_too), (moments_too, of_moments_too) = released(extra, coordinates)
    assert of_squares == of_squares_too == d
    assert (squares_too - squares).norm() <= of_squares * (1 + 1e-9)
    if of_moments == pytest.approx(of_moments_too, rel=1e-12):
        assert (moments_too - moments).norm() <= of_moments * (1 + 1e-9)


ALMOST_NONE = 1e-6  # noise that changes nothing


def coordinates_of(X, given, noise=ALMOST_NONE):
    centre, scale, *_ = release_coordinates(as_features(X), len(X), given, of_noise(noise), rng())
    return centre.numpy(), scale.numpy()


def mean_square_norm(X, centre, scale):
    return (((X - centre) / scale) ** 2).sum(axis=1).mean()


def test_without_noise_rows_are_centred_and_brought_to_a_norm_of_four():
    random = np.random.default_rng(0)
    X = 3.0 + random.normal(size=(500, 400)) * 0.5
    centre, scale = coordinates_of(X, public(400, 0.0, 4.0))
    assert centre == pytest.approx(X.mean(axis=0))
    assert mean_square_norm(X, centre, scale) == pytest.approx(400 / 8**2, rel=1e-2)  # as before
    assert scale == pytest.approx(np.full(400, 4.0), rel=0.1)
    wide = 3.0 + random.normal(size=(500, 400)) * 2.0
    centre, scale = coordinates_of(wide, public(400, 0.0, 4.0))
    assert mean_square_norm(wide, centre, scale) == pytest.approx(16.0, rel=1e-2)


def one_of(probabilities, n=4000):
    """One-hot rows of one category each."""
    counts = np.round(np.asarray(probabilities) * n).astype(int)
    return np.repeat(np.eye(len(counts)), counts, axis=0)


def test_scales_are_fourth_roots_of_variances():
    X = one_of([0.5, 0.4, 0.08, 0.02])
    centre, scale = coordinates_of(X, public(4))
    assert scale / scale[0] == pytest.approx((X.var(axis=0) / X[:, 0].var()) ** 0.25)
    assert mean_square_norm(X, centre, scale) == pytest.approx(X.var(axis=0).sum(), rel=1e-3)


@pytest.mark.parametrize("noise", [ALMOST_NONE, 1.0, 1e4])
def test_rows_that_are_all_equal_get_finite_coordinates(noise):
    centre, scale = coordinates_of(np.full((50, 3), 0.25), public(3), noise)
    assert np.isfinite([centre, scale]).all()
    assert (scale > 0).all()


def test_a_mean_that_is_mostly_noise_is_not_believed():
    X = torch.full((20, 300), 0.01, dtype=torch.float64)
    coordinates = public(300)
    center, *_ = release_coordinates(DenseFeatures(X), len(X), coordinates, of_noise(50.0), rng())
    unshrunk = 50.0 * 2.0 * 300**0.5 / 20 * 300**0.5  # norm of its noise, at the largest reach
    assert center.norm() < 0.2 * unshrunk


def sizes(X, noise=1e-6):
    """The exact table that is released, the deviation of its noise, and the scales."""
    with pytest.MonkeyPatch.context() as patch:
        asked = answered_by(patch, without_noise)
        given = public(X.shape[1])
        found = release_scales(as_features(X), X.shape[0], given, of_noise(noise), rng())
    ((_, deviation, table),) = asked
    return table, deviation, found.scale.numpy()


@settings(max_examples=60)
@given(st.integers(1, 40), st.floats(0.01, 1e9), st.integers(0, 2**31))
def test_one_row_moves_the_sizes_of_entries_by_at_most_their_norm(d, row, seed):
    random = np.random.default_rng(seed)
    X = random.normal(size=(20, d)) * 30
    extra = np.vstack((X, random.normal(size=(1, d)) * row))
    (one, norm, _), (other, same, _) = sizes(X, 1.0), sizes(extra, 1.0)
    assert norm == same == min(d, 16) ** 0.5
    assert (other - one).norm() <= norm * (1 + 1e-9)


def test_the_bound_on_the_sizes_is_met():
    """By a row with as many large entries as count in full, or with more."""
    for d in (3, 16, 50):
        table, norm, _ = sizes(np.full((1, d), 100.0), 1.0)
        assert float(table.norm()) == pytest.approx(norm)


@pytest.mark.parametrize("convert", [np.asarray, sparse.csr_array])
def test_scales_are_powers_of_four_above_nearly_all_entries(convert):
    random = np.random.default_rng(0)
    n = 4000
    X = np.column_stack(
        [
            random.integers(0, 2, n),  # one-hot columns and standardised ones stay as they are
            random.normal(size=n),
            random.uniform(17, 90, n),
            -random.uniform(1e4, 1e6, n),
            np.where(np.arange(n) < 5, 1e6, 0.5),  # a few rows decide nothing
            np.where(np.arange(n) < 400, 1000.0, 0.0),
        ]
    )
    assert sizes(convert(X))[2].tolist() == [1.0, 1.0, 4.0**4, 4.0**10, 1.0, 4.0**5]


def test_noise_alone_makes_no_scale():
    """Ten thousand counts of nothing: none passes for a large column."""
    found = release_scales(
        as_features(np.zeros((500, 1000))), 500, public(1000), of_noise(40.0), rng()
    )
    assert (found.scale == 1.0).all()
