"""L-BFGS: the secant equation, dense BFGS, known minima, what is kept from one run to the next."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import rosen, rosen_der

from fairconstrained.solvers.lbfgs import Curvature, lbfgs, lbfgs_then_newton

SEEDS = st.integers(0, 10_000)


def quadratic(seed, n=8):
    """A function x -> (value, gradient) with its Hessian and minimum, and a list of its calls."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(n, n))
    hessian, centre, calls = root @ root.T + 0.1 * np.eye(n), rng.normal(size=n), []

    def function(x):
        calls.append(x)
        gradient = hessian @ (x - centre)
        return 0.5 * (x - centre) @ gradient, gradient

    return function, hessian, centre, calls


def dense_bfgs(pairs, n):
    """The inverse Hessian of the same pairs, from the last one's scale (Algorithm 7.4)."""
    step, change = pairs[-1]
    inverse = (step @ change) / (change @ change) * np.eye(n)
    for step, change in pairs:
        left = np.eye(n) - np.outer(step, change) / (step @ change)
        inverse = left @ inverse @ left.T + np.outer(step, step) / (step @ change)
    return inverse


@settings(max_examples=50)
@given(SEEDS, st.integers(1, 7))
def test_directions_are_those_of_dense_bfgs_and_meet_the_secant_equation(seed, n_pairs):
    """H y = s for the last pair; of more pairs than fit, the first are gone."""
    rng = np.random.default_rng(seed)
    _, hessian, _, _ = quadratic(seed, n=6)
    steps = rng.normal(size=(n_pairs, 6))
    curvature = Curvature(memory=4)
    for step in steps:
        curvature.learn(step, hessian @ step)
    gradient = rng.normal(size=6)
    inverse = dense_bfgs([(step, hessian @ step) for step in steps[-4:]], 6)
    np.testing.assert_allclose(curvature.inverse(gradient), inverse @ gradient, rtol=1e-6)
    np.testing.assert_allclose(curvature.inverse(hessian @ steps[-1]), steps[-1], rtol=1e-6)


@pytest.mark.parametrize("minimise", [lbfgs, lbfgs_then_newton])
def test_the_minimum_of_rosenbrock(minimise):
    start = np.array([-1.2, 1.0, -0.5, 2.0])
    effort = {"accuracy": 1e-9, "curvature": Curvature()}
    found, _ = minimise(lambda x: (rosen(x), rosen_der(x)), start, **effort)
    np.testing.assert_allclose(found, 1.0, atol=1e-8)


@settings(max_examples=50)
@given(SEEDS)
def test_gradients_go_on_falling_where_values_differ_by_rounding_only(seed):
    """Values near 1000 are good to 1e-13, so the Armijo test alone ends at gradients of 1e-6."""
    function, hessian, centre, _ = quadratic(seed)

    def high(x):
        value, gradient = function(x)
        return 1000.0 + value, gradient

    found, gradient = lbfgs(high, np.zeros(8), accuracy=1e-10, curvature=Curvature())
    np.testing.assert_array_equal(gradient, hessian @ (found - centre))
    assert np.abs(gradient).max() <= 1e-10
