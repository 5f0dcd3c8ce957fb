"""What a claimed epsilon means: no pair of data sets diverges by more than delta at it.

Divergences are integrals over the outcomes here, and the accountant is asked for their epsilon.
"""

import itertools
import math

import numpy as np
import pytest
from scipy.integrate import trapezoid
from scipy.stats import laplace, norm

from fairconstrained.privacy import Gaussian, Laplace
from tests.helpers.releases import spent

DELTA = 0.02  # integrals are good to some 1e-5


def divergence(x, z, upper, lower, epsilon):
    """Hockey-stick divergence at e^epsilon of two densities on a grid."""
    excess = np.maximum(upper - math.exp(epsilon) * lower, 0)
    return trapezoid(trapezoid(excess, z, axis=1), x)


@pytest.mark.parametrize(("a", "m", "q"), [(1.0, 0.7, 0.3), (0.4, 1.5, 0.6), (2.0, 0.5, 1.0)])
def test_a_joint_release_is_the_mixture_of_products(a, m, q):
    """(1 - q) Q + q P against Q, in the worse direction, with products P and Q."""
    x = np.arange(-12 / a, 12 / a + 1, 1 / 100)  # Laplace outcome, unit shift; kinks at 0 and 1
    x -= x[np.argmin(np.abs(x))]
    z = np.linspace(-7, 7 + m, 401)  # Gaussian outcome, unit noise
    with_row = np.outer(laplace.pdf(x, 1, 1 / a), norm.pdf(z, m))
    without = np.outer(laplace.pdf(x, 0, 1 / a), norm.pdf(z))
    mixture = (1 - q) * without + q * with_row
    epsilon = spent(Laplace(1 / a), Gaussian(1 / m), q=q, delta=DELTA)
    remove = divergence(x, z, mixture, without, epsilon)
    add = divergence(x, z, without, mixture, epsilon)
    assert max(remove, add) == pytest.approx(DELTA, rel=5e-3)


@pytest.mark.parametrize(("m", "q"), [(0.5, 0.2), (1.5, 0.05), (3.0, 0.5)])
def test_antipodal_contributions_are_the_worst_replacement(m, q):
    """Over pairs of contributions v, v' of norm at most 1, in two dimensions."""
    z = np.linspace(-6 - m, 6 + m, 801)
    epsilon = spent(Gaussian(1 / m), q=q, delta=DELTA, unit="sensitive_features")

    def law(v):
        inside = np.outer(norm.pdf(z, m * v[0]), norm.pdf(z, m * v[1]))
        return (1 - q) * np.outer(norm.pdf(z), norm.pdf(z)) + q * inside

    angles = np.pi * np.array([1.0, 0.9, 0.75, 0.5, 0.25])
    for angle, size in itertools.product(angles, (1.0, 0.5)):
        w = size * np.array([np.cos(angle), np.sin(angle)])
        got = divergence(z, z, law(np.array([1.0, 0.0])), law(w), epsilon)
        assert got <= DELTA + 1e-5
        if angle == np.pi and size == 1:
            assert got == pytest.approx(DELTA, rel=5e-3)
        elif angle <= 0.75 * np.pi and m < 3:  # beyond, nearly all of delta is of the rate
            assert got < 0.99 * DELTA


def test_weight_on_one_entry_is_the_worst_for_laplace():
    """A row with l1 norm 1 over two entries of a table: all on one entry loses most."""
    b = 0.8
    x = np.linspace(-20, 21, 2051)
    epsilon = spent(Laplace(b), delta=DELTA)
    lower = np.outer(laplace.pdf(x, 0, b), laplace.pdf(x, 0, b))
    for share in (0.5, 0.3, 0.1):
        upper = np.outer(laplace.pdf(x, share, b), laplace.pdf(x, 1 - share, b))
        assert divergence(x, x, upper, lower, epsilon) < DELTA
