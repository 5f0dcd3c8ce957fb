"""The ghost method: its programmes against cvxpy, its direction without bias, its steps by hand."""

import cvxpy as cp
import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fairconstrained.solvers import StochasticGhost
from fairconstrained.solvers.stochastic import Estimates
from fairconstrained.solvers.stochastic_ghost import direction, least_level
from tests.helpers.solving import generator
from tests.helpers.stochastic import Rows, steps_of

seeds = st.integers(0, 10_000)
TIGHT = {"solver": cp.CLARABEL, "tol_gap_abs": 1e-11, "tol_gap_rel": 1e-11, "tol_feas": 1e-11}


def programme(seed, m, n=6, opposed=False):
    rng = np.random.default_rng(seed)
    gradient, value, jacobian = rng.normal(size=n), rng.normal(size=m), rng.normal(size=(m, n))
    if opposed:  # as differences of two groups within a slack: a singular dual
        value = np.concatenate((value - 0.1, -value - 0.1))
        jacobian = np.concatenate((jacobian, -jacobian))
    return gradient, value, jacobian


def cvxpy_level(value, jacobian, radius):
    d, t = cp.Variable(jacobian.shape[1]), cp.Variable(nonneg=True)
    bounds = [value + jacobian @ d <= t, cp.norm_inf(d) <= radius]
    return cp.Problem(cp.Minimize(t), bounds).solve(**TIGHT)


def cvxpy_direction(gradient, value, jacobian, level, tau, beta):
    d = cp.Variable(len(gradient))
    bounds = [value + jacobian @ d <= level, cp.norm_inf(d) <= beta]
    objective = gradient @ d + tau / 2 * cp.sum_squares(d)
    cp.Problem(cp.Minimize(objective), bounds).solve(**TIGHT)
    return d.value, bounds[0].dual_value


@pytest.mark.slow
@settings(max_examples=30)
@given(seeds, st.integers(1, 4), st.booleans(), st.sampled_from([0.01, 0.1, 0.8]))
def test_the_least_level_is_that_of_the_linear_programme(seed, m, opposed, radius):
    _, value, jacobian = programme(seed, m, opposed=opposed)
    expected = cvxpy_level(value, jacobian, radius)
    assert least_level(value, jacobian, radius) == pytest.approx(expected, abs=1e-7)


def test_levels_within_reach_out_of_reach_and_nothing_to_reach():
    jacobian = np.array([[2.0, 0.0]])
    assert least_level(np.array([-0.1]), jacobian, 0.5) == 0
    assert least_level(np.array([0.9]), jacobian, 0.5) == 0
    assert least_level(np.array([1.2]), jacobian, 0.5) == pytest.approx(0.2)
    assert least_level(np.array([0.3]), 0 * jacobian, 0.5) == pytest.approx(0.3)
    assert least_level(np.zeros(0), np.zeros((0, 2)), 0.5) == 0


@settings(max_examples=30)
@example(3506, 3, False, 0.3)  # a line search ends early
@given(seeds, st.integers(1, 4), st.booleans(), st.sampled_from([0.3, 1.0, 10.0]))
def test_directions_and_multipliers_are_those_of_the_quadratic_programme(seed, m, opposed, beta):
    """With bounds that are active and with bounds that are not."""
    gradient, value, jacobian = programme(seed, m, opposed=opposed)
    level = least_level(value, jacobian, 0.5 * beta) + 0.05
    step = direction(gradient, value, jacobian, level, 1.7, beta)
    expected, _ = cvxpy_direction(gradient, value, jacobian, level, 1.7, beta)
    np.testing.assert_allclose(step.d, expected, atol=1e-5)
    # Multipliers need not be unique; they are right if they make the direction stationary.
    assert (step.dual >= 0).all()
    free = np.clip(-(gradient + step.dual @ jacobian) / 1.7, -beta, beta)
    np.testing.assert_allclose(step.d, free, atol=1e-9)
    excess = value - level + jacobian @ step.d
    assert excess.max() <= 1e-6
    assert step.dual @ np.abs(excess) <= 1e-5


class Absolute(Rows):
    """Constraints |A x - b| <= 0 on means of rows: their values are no means over rows."""

    def c(self, x, rows, scale=None):
        value, jacobian = super().c(x, rows, scale)
        return value.abs(), value.sign()[:, None] * jacobian


def by_cvxpy(problem, x, solver, sample):
    """d(S) for f- and c-rows S, from the formulas of the paper."""
    xi, zeta = sample
    g, c, A = (part.numpy() for part in (problem.f(x, xi)[1], *problem.c(x, *zeta)))
    kappa = (1 - solver.lam) * max(c.max(), 0) + solver.lam * cvxpy_level(c, A, solver.rho)
    return cvxpy_direction(g, c, A, kappa, solver.tau, solver.beta)[0]


@pytest.mark.parametrize(("seed", "kind"), [(0, Rows), (1, Absolute)])
def test_steps_written_out_with_cvxpy(seed, kind):
    """(9) of the paper with the rows drawn, the renormalised P(N), and the step-size rule."""
    problem = kind(seed=seed)
    solver = StochasticGhost(
        step_size=0.5, step_decay=0.4, p0=0.3, max_level=3, tau=1.3, lam=0.6, n_steps=5
    )
    x, alpha, levels = problem.x, 0.5, []
    p = 0.3 * 0.7 ** np.arange(4)
    p /= p.sum()
    for point, _, calls in steps_of(solver, problem, x, torch.zeros(2).double(), 5, seed):
        assert [call[0] for call in calls] == ["f", "c"] * 4
        samples = [(calls[i][1], calls[i + 1][1:]) for i in (0, 2, 4, 6)]
        single, fine, even, odd = samples
        assert [len(rows) for rows, _ in (single, even, odd)] == [1, len(even[0]), len(even[0])]
        assert len(even[1][0]) == 2 * len(even[0])  # a row of each of the two strata
        assert torch.equal(fine[0], torch.cat((even[0], odd[0])))
        assert torch.equal(fine[1][0], torch.cat((even[1][0], odd[1][0])))
        assert float(fine[1][1].sum()) == pytest.approx(problem.n_rows)
        level = int(np.log2(len(even[0])))
        levels.append(level)
        first, whole, *halves = (by_cvxpy(problem, x, solver, sample) for sample in samples)
        x = x + alpha * torch.as_tensor(first + (whole - sum(halves) / 2) / p[level])
        alpha *= 1 - 0.4 * alpha
        torch.testing.assert_close(point, x, rtol=0, atol=1e-5)
        x = point
    assert len(set(levels)) > 1


@pytest.mark.slow
def test_the_direction_is_unbiased_for_that_of_the_largest_batch():
    """Means over many draws agree within sampling error; that of one row is far away."""
    problem = Rows(n_rows=30, noise=2.0, seed=4)
    solver, x, rng = StochasticGhost(max_level=3, rho=5.0), problem.x, generator()
    estimates = Estimates(problem, 1, rng)
    p = 0.4 * 0.6 ** torch.arange(4).double()
    p /= p.sum()

    def mean(draw, n):
        found = np.stack([draw() for _ in range(n)])
        return found.mean(axis=0), found.std(axis=0) / np.sqrt(n)

    def debiased():
        level = int(torch.multinomial(p, 1, generator=rng))
        return solver.debiased(estimates, x, level, float(p[level])).d

    def of_rows(size):
        return solver.solve(estimates, x, solver.draw(estimates, size)).d

    unbiased, error = mean(debiased, 1200)
    target, target_error = mean(lambda: of_rows(16), 400)
    single, single_error = mean(lambda: of_rows(1), 400)
    assert (np.abs(unbiased - target) <= 4 * np.hypot(error, target_error)).all()
    assert (np.abs(single - unbiased) > 5 * np.hypot(error, single_error)).any()
