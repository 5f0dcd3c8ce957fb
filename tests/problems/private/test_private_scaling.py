"""Coordinates of private training: releases of bounded sensitivity, and what they become."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from fairconstrained.constraints import DemographicParity, FalseNegativeRate, Space
from fairconstrained.constraints.moments import Stack
from fairconstrained.constraints.tables import ClassProbabilities
from fairconstrained.exceptions import IncompatibleSolverError
from fairconstrained.models import LinearModel
from fairconstrained.models.features import DenseFeatures, as_features
from fairconstrained.privacy import Budget, Gaussian, Phase, privacy_spent
from fairconstrained.privacy.mechanisms import Releases
from fairconstrained.privacy.plans import plan_releases
from fairconstrained.problems import Rows
from fairconstrained.problems.private.coordinates import (
    SCALING,
    Coordinates,
    release_coordinates,
    release_scales,
)
from fairconstrained.problems.private.erm import PrivateERM
from fairconstrained.problems.private.secret_groups import noisy_sums, principal_components
from fairconstrained.solvers import DPSGDA
from fairconstrained.solvers.base import check_solves
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
    """However long a row is: the l2 sensitivity is what the noise is a multiple of."""
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


def test_scales_are_fourth_roots_of_variances():
    X = np.repeat(np.eye(4), [2000, 1600, 320, 80], axis=0)  # rows of one category each
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
    columns = (
        random.integers(0, 2, n),  # one-hot columns and standardised ones stay as they are
        *(random.normal(size=n), random.uniform(17, 90, n), -random.uniform(1e4, 1e6, n)),
        np.where(np.arange(n) < 5, 1e6, 0.5),  # a few rows decide nothing
        np.where(np.arange(n) < 400, 1000.0, 0.0),
    )
    X = np.column_stack(columns)
    assert sizes(convert(X))[2].tolist() == [1.0, 1.0, 4.0**4, 4.0**10, 1.0, 4.0**5]


def test_noise_alone_makes_no_scale():
    """Ten thousand counts of nothing: none passes for a large column."""
    zeros = as_features(np.zeros((500, 1000)))
    found = release_scales(zeros, 500, public(1000), of_noise(40.0), rng())
    assert (found.scale == 1.0).all()


SIZES = [10, 30, 60]
SPACE = Space([0, 1], ["a", "b", "c"])
NOTIONS = DemographicParity(), FalseNegativeRate(temperature=2.0)


def problem(kind="gaussian", n_steps=2):
    group = torch.repeat_interleave(torch.tensor(SIZES))
    X = torch.linspace(-1.0, 1.0, 100, dtype=torch.float64)[:, None]
    y = torch.arange(100) % 2
    data = Rows((DenseFeatures(X),), y, group, torch.ones(100, dtype=torch.float64))
    stack = Stack(SPACE, [notion.bind(SPACE, 0.1) for notion in NOTIONS])
    counts = stack.partition.place(y, group, data.weight).counts()
    zero, one = torch.zeros(1).double(), torch.ones(1).double()
    solver = DPSGDA(n_steps=n_steps, sampling_rate=1.0, histogram_noise=kind)
    releases = Releases(solver.plan(100, Budget(1.0, 1e-5, "record")))
    model = LinearModel(1, zero, one, True)
    return PrivateERM(model, data, stack, counts, releases, 0.0, 100)


X = torch.tensor([0.3, 2.0], dtype=torch.float64)


def table_of(erm):
    no_dual = torch.zeros(erm.n_constraints).double()
    return erm.release(X, lambda _: no_dual, 1.0, torch.Generator().manual_seed(0))[0]


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_tables_add_up_to_the_counts_and_are_exact_without_noise(kind, monkeypatch):
    """For both of the statistics, with a column for each class."""
    noisy = problem(kind)
    table = table_of(noisy)
    for columns in (slice(0, 2), slice(2, 4)):
        torch.testing.assert_close(table[:, columns].sum(dim=1), noisy.counts)
    data, stack = noisy.data, noisy.constraint
    labels = stack.statistic.hard(noisy.model.scores(X, data.X), data.y)
    expected = torch.stack([labels[data.group == q].sum(dim=0) for q in range(stack.n_parts)])
    answered_by(monkeypatch, without_noise)
    torch.testing.assert_close(table_of(noisy), expected)


@pytest.mark.slow
def test_values_have_the_noise_that_is_said():
    """Of one statistic a count has half of the noise that the whole row (1, 0) would ask for."""
    erm, rng = problem(), torch.Generator().manual_seed(0)
    erm.releases._left["final table"] = 2_000
    values = torch.stack([erm.values(erm.release_table(X, rng)) for _ in range(2_000)])
    said = erm.deviations_of_estimates()
    torch.testing.assert_close(values.std(dim=0), said, rtol=0.08, atol=0.0)
    # The root of two for two statistics that are table_of together, and for two labels a group.
    noise = erm.plan.noise("final table")
    pair = 0.5 * 2**0.5 * 2**0.5 * noise * (SIZES[0] ** -2 + SIZES[1] ** -2) ** 0.5
    assert float(said[0]) == pytest.approx(pair)


def test_a_statistic_that_does_not_say_what_a_row_adds_is_refused(monkeypatch):
    """Before anything is table_of: what is not known cannot be priced."""
    monkeypatch.setattr(ClassProbabilities, "widths", ())
    with pytest.raises(IncompatibleSolverError, match="a bound on what one row"):
        check_solves(DPSGDA(), problem())


@pytest.mark.parametrize("k", [2, 3, 20])
def test_the_noise_is_that_of_the_distance_between_two_groups(k, monkeypatch):
    """Sensitivity sqrt(2) over the deviation costs what the plan says: neither more nor less."""
    plan = plan_releases({"group counts": 0.99}, Budget(1.0, 1e-5, "sensitive_features"))
    asked, one = answered_by(monkeypatch, without_noise), torch.ones(1, dtype=torch.float64)
    y = torch.zeros(1, dtype=torch.long)
    for group in (0, 1):
        data = Rows((DenseFeatures(one[:, None]),), y, torch.tensor([group]), one)
        noisy_sums("group counts", one[:, None], data, (2, k), Releases(plan), None)
    (_, deviation, first), (_, _, second) = asked
    moved = float((first - second).norm())
    assert moved == pytest.approx(2**0.5)
    once = Phase([Gaussian(deviation / moved)])  # a distance of 1 in these units
    assert privacy_spent([once], delta=1e-5) == pytest.approx(plan.epsilon, rel=3e-3)


def test_constant_features_have_one_component():
    """Without any a fit on them failed after its releases."""
    rows = DenseFeatures(torch.full((10, 2), 3.0).double())
    none = torch.zeros(10, dtype=torch.long)
    components = principal_components(Rows((rows,), none, none, torch.ones(10).double()), 5)
    torch.testing.assert_close(components, torch.ones(10, 1).double())
