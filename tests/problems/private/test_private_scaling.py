"""Coordinates of private training: releases of bounded sensitivity, and what they become."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from fairconstrained.models.features import DenseFeatures, SparseFeatures, as_features
from fairconstrained.problems.private import coordinates as private_scaling
from fairconstrained.problems.private.coordinates import (
    Coordinates,
    release_coordinates,
    release_scales,
)


def public(d, low=0.0, width=1.0):
    like = torch.ones(d, dtype=torch.float64)
    return Coordinates(low * like, width * like)


def rng():
    return torch.Generator().manual_seed(0)


def released(X, coordinates):
    """The exact sums that are released, and the deviations of the noise on them, for noise 1."""
    sums = []

    def record(value, deviation, rng):
        sums.append((value.clone().reshape(-1), deviation))
        return value

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(private_scaling, "with_gaussian_noise", record)
        release_coordinates(as_features(X), coordinates, 1.0, rng())
    return sums


@settings(max_examples=60)
@given(
    st.integers(1, 12),
    st.floats(0.01, 100.0),
    st.floats(0.01, 1e6),
    st.integers(0, 2**31),
)
def test_one_row_moves_each_release_by_at_most_its_noise_multiplier_of_one(d, size, row, seed):
    """However long a row is: the l2 sensitivity is what the noise is a multiple of.

    The reach of the mean is itself released, so it is the same on both data sets.
    """
    random = np.random.default_rng(seed)
    X = random.normal(size=(20, d)) * size
    extra = np.vstack((X, random.normal(size=(1, d)) * row))
    coordinates = public(d, -1.0, 2.0)
    (squares, of_squares), (mean, of_mean) = released(X, coordinates)
    (squares_too, of_squares_too), (mean_too, of_mean_too) = released(extra, coordinates)
    assert of_squares == of_squares_too == d
    assert (squares_too - squares).norm() <= of_squares * (1 + 1e-9)
    if of_mean == pytest.approx(of_mean_too, rel=1e-12):
        assert (mean_too - mean).norm() <= of_mean * (1 + 1e-9)


def test_the_mean_moves_by_at_most_the_reach_at_one_reach():
    """As above, where both data sets have the same reach: rows of norm 1 at most."""
    random = np.random.default_rng(0)
    X = random.uniform(0, 0.1, size=(30, 5))
    long = np.vstack((X, np.full((1, 5), 1e3)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(private_scaling, "_REACH", 0.5)
        (_, (mean, reach)), (_, (mean_too, reach_too)) = (
            released(rows, public(5)) for rows in (X, long)
        )
    assert reach == reach_too == 0.5
    assert (mean_too - mean).norm() == pytest.approx(0.5)


def test_without_noise_rows_are_centred_and_brought_to_a_norm_of_four():
    random = np.random.default_rng(0)
    X = 3.0 + random.normal(size=(500, 400)) * 0.5
    center, scale, _ = release_coordinates(
        DenseFeatures(torch.tensor(X)), public(400, 0.0, 4.0), 0.0, rng()
    )
    assert center.numpy() == pytest.approx(X.mean(axis=0))
    assert scale.numpy() == pytest.approx(np.full(400, 4.0))  # norms of 2.5 are left alone
    wide = 3.0 + random.normal(size=(500, 400)) * 2.0
    center, scale, _ = release_coordinates(
        DenseFeatures(torch.tensor(wide)), public(400, 0.0, 4.0), 0.0, rng()
    )
    norms = np.linalg.norm((wide - center.numpy()) / scale.numpy(), axis=1)
    assert np.sqrt((norms**2).mean()) == pytest.approx(4.0, rel=1e-2)


def test_sparse_rows_give_what_dense_rows_give():
    values = np.random.default_rng(0).normal(size=(50, 8))
    X = sparse.csr_array(np.where(np.abs(values) > 1.0, values, 0.0))
    coordinates = public(8, -0.5, 2.0)
    of_sparse = release_coordinates(SparseFeatures(X), coordinates, 1.0, rng())
    of_dense = release_coordinates(
        DenseFeatures(torch.tensor(X.toarray())), coordinates, 1.0, rng()
    )
    for one, other in zip(of_sparse[:2], of_dense[:2], strict=True):
        assert one.numpy() == pytest.approx(other.numpy())


def test_a_mean_that_is_mostly_noise_is_not_believed():
    X = torch.full((20, 300), 0.01, dtype=torch.float64)
    coordinates = public(300)
    center, *_ = release_coordinates(DenseFeatures(X), coordinates, 50.0, rng())
    unshrunk = 50.0 * 2.0 / 20 * 300**0.5  # about the norm of its noise
    assert center.norm() < 0.2 * unshrunk


# --- scales of columns without a public range -----------------------------------------------------


def sizes(X, noise=1e-6):
    """The exact table that is released, the deviation of its noise, and the scales."""
    tables = []

    def record(value, deviation, rng):
        tables.append((value.clone(), deviation))
        return value

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(private_scaling, "with_gaussian_noise", record)
        found = release_scales(as_features(X), public(X.shape[1]), noise, rng())
    return *tables[0], found.scale.numpy()


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
    found = release_scales(as_features(np.zeros((500, 1000))), public(1000), 40.0, rng())
    assert (found.scale == 1.0).all()
