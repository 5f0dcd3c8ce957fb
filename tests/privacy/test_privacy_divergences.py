"""The divergences behind the accountant: integrals, convexity, and which pair is the worst."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad, trapezoid
from scipy.stats import laplace, norm

from fairconstrained.privacy._loss_distributions import (
    Batch,
    directions,
    gaussian_divergence,
    unsampled,
)


def by_quadrature(a, m, q, epsilon, *, direction):
    """Hockey-stick divergence of the sampled product of Laplace and Gaussian, in two dimensions."""
    x = np.arange(-12 / a, 12 / a + 1, 1 / 100)  # Laplace outcome, unit shift; kinks at 0 and 1
    x -= x[np.argmin(np.abs(x))]
    z = np.linspace(-7, 7 + m, 401)  # Gaussian outcome, unit noise
    with_row = np.outer(laplace.pdf(x, 1, 1 / a), norm.pdf(z, m))
    without = np.outer(laplace.pdf(x, 0, 1 / a), norm.pdf(z))
    mixture = (1 - q) * without + q * with_row
    pair = {"remove": (mixture, without), "add": (without, mixture)}[direction]
    excess = np.maximum(pair[0] - math.exp(epsilon) * pair[1], 0)
    return trapezoid(trapezoid(excess, z, axis=1), x)


@pytest.mark.parametrize("epsilon", [-0.1, 0.0, 0.4])
@pytest.mark.parametrize(("a", "m", "q"), [(1.0, 0.7, 0.3), (0.4, 1.5, 0.6), (2.0, 0.5, 1.0)])
def test_joint_divergence_is_the_double_integral(a, m, q, epsilon):
    """Of the mixture of products (1 - q) Q + q P, in both directions."""
    pairs = directions(Batch(q, 1, m, a), 1e-12, replace=False)
    for direction, pair in itertools.zip_longest(["remove", "add"], pairs, fillvalue=pairs[0]):
        got = pair.divergence(np.array([epsilon]))[0]
        assert got == pytest.approx(by_quadrature(a, m, q, epsilon, direction=direction), abs=1e-4)


def test_the_loss_transform_is_the_divergence_transform():
    """log(1 - q + q e^l) of the unsampled loss l has the divergences used for "remove"."""
    q, batch = 0.1, Batch(0.1, 1, 0.8, 0.5)
    rng = np.random.default_rng(0)
    n = 400_000
    x, z = rng.laplace(1, 1 / batch.laplace, n), rng.normal(batch.gaussian, 1, n)
    member = rng.random(n) < q
    x, z = np.where(member, x, x - 1), np.where(member, z, z - batch.gaussian)
    inner = batch.laplace * (np.abs(x) - np.abs(x - 1)) + batch.gaussian * (z - batch.gaussian / 2)
    loss = np.log1p(q * np.expm1(inner))
    (remove, _) = directions(batch, 1e-12, replace=False)
    for epsilon in (-0.05, 0.0, 0.05, 0.2):
        sample = -np.expm1(epsilon - loss) * (loss > epsilon)
        error = 5 * sample.std() / math.sqrt(n)
        assert abs(remove.divergence(np.array([epsilon]))[0] - sample.mean()) < error


@given(m=st.floats(0.01, 10), a=st.floats(0.01, 5), q=st.floats(1e-4, 1.0), replace=st.booleans())
@settings(max_examples=50)
def test_divergences_decrease_are_convex_and_negligible_outside_their_range(m, a, q, replace):
    """What makes them divergences of some pair, and the discretisation of them pessimistic."""
    batch = Batch(q, 1, m, 0.0 if replace else a)
    for pair in directions(batch, 1e-12, replace=replace):
        epsilon = np.linspace(pair.low, pair.high, 4001)
        delta = pair.divergence(epsilon)
        assert np.all(np.isfinite(delta))
        assert -1e-15 <= delta[-1] <= 1e-11
        assert delta[0] == pytest.approx(-math.expm1(pair.low), abs=1e-9)
        slope = np.diff(delta) / np.diff(np.exp(epsilon))
        assert np.all(np.diff(delta) <= 1e-14)
        noise = 1e-14 / np.minimum(np.diff(np.exp(epsilon))[1:], np.diff(np.exp(epsilon))[:-1])
        assert np.all(np.diff(slope) >= -noise)


@pytest.mark.parametrize(("m", "q"), [(0.5, 0.2), (1.5, 0.05), (3.0, 0.5)])
def test_antipodal_contributions_are_the_worst_replacement(m, q):
    """Over pairs of contributions v, v' of norm at most 1, in two dimensions, at many epsilons."""
    z = np.linspace(-6 - m, 6 + m, 801)
    (worst,) = directions(Batch(q, 1, m, 0.0), 1e-12, replace=True)
    epsilons = np.array([-0.5, 0.0, 0.1, 0.5, 1.5])
    bound = worst.divergence(epsilons)

    def law(v):
        inside = np.outer(norm.pdf(z, m * v[0]), norm.pdf(z, m * v[1]))
        return (1 - q) * np.outer(norm.pdf(z), norm.pdf(z)) + q * inside

    def divergence(v, w, epsilon):
        excess = np.maximum(law(v) - math.exp(epsilon) * law(w), 0)
        return trapezoid(trapezoid(excess, z, axis=1), z)

    angles = np.pi * np.array([1.0, 0.9, 0.75, 0.5, 0.25])
    for angle, size in itertools.product(angles, (1.0, 0.5)):
        w = size * np.array([np.cos(angle), np.sin(angle)])
        got = [divergence(np.array([1.0, 0.0]), w, epsilon) for epsilon in epsilons]
        assert np.all(got <= bound + 1e-5)
        if angle == np.pi and size == 1:
            assert got == pytest.approx(bound, abs=1e-5)
        elif angle <= 0.75 * np.pi:
            assert got[1] < bound[1] - 1e-4  # the test can tell pairs apart


def test_weight_on_one_entry_is_the_worst_for_laplace():
    """A row with l1 norm 1 over two entries of a table: all on one entry loses most."""
    b = 0.8
    for share, epsilon in itertools.product((0.5, 0.3, 0.1), (0.0, 0.3, 0.9)):
        x = np.linspace(-20, 21, 2051)
        upper = np.outer(laplace.pdf(x, share, b), laplace.pdf(x, 1 - share, b))
        lower = np.outer(laplace.pdf(x, 0, b), laplace.pdf(x, 0, b))
        excess = np.maximum(upper - math.exp(epsilon) * lower, 0)
        split = trapezoid(trapezoid(excess, x, axis=1), x)
        assert split < unsampled(Batch(1, 1, 0.0, 1 / b), np.array([epsilon]))[0]


def test_divergence_of_a_gaussian_is_its_integral():
    """Guards the one formula that calibration of one-off releases rests on."""
    shift, epsilon = 1.3, 0.7
    excess, _ = quad(
        lambda x: max(norm.pdf(x, shift) - math.exp(epsilon) * norm.pdf(x), 0), -10, 12, limit=200
    )
    assert gaussian_divergence(np.array(epsilon), shift) == pytest.approx(excess, abs=1e-8)
