"""Closed forms of the level-set method: the paper's lemmas and projections, against cvxpy."""

import cvxpy as cp
import numpy as np
import pytest
import torch

from fairconstrained.solvers.level_set import (
    Dual,
    distance_scale,
    dual_step,
    primal_step,
    upper_bound,
)

OWNER = torch.tensor([0, 1, 1, 2, 2])


def random_dual(seed, tau=0.7, bound=1.3):
    rng = np.random.default_rng(seed)
    y = Dual(
        torch.as_tensor(rng.dirichlet(np.ones(3))),
        torch.as_tensor(rng.uniform(-bound, bound, size=5)),
    )
    u, v = torch.as_tensor(rng.normal(size=3)), torch.as_tensor(4.0 * rng.normal(size=5))
    return y, u, v, tau, bound


@pytest.mark.parametrize("seed", range(6))
def test_lemma_3_is_the_mirror_step(seed):
    """Equation 31, with its domain, by cvxpy: weights and alpha times weights."""
    y, u, v, tau, bound = random_dual(seed)
    ours = dual_step(y, u, v, tau, bound, OWNER)
    weights, scaled = cp.Variable(3), cp.Variable(5)
    owner, old = OWNER.numpy(), y.alpha.numpy()
    quadratic = sum(cp.quad_over_lin(scaled[k], weights[owner[k]]) for k in range(5))
    divergence = (
        distance_scale(bound) * cp.sum(cp.kl_div(weights, y.weights.numpy()))
        + quadratic
        - 2 * (old @ scaled)
        + sum(weights[owner[k]] * old[k] ** 2 for k in range(5))
    )
    objective = -u.numpy() @ weights - v.numpy() @ scaled + divergence / tau + quadratic
    domain = [cp.sum(weights) == 1, cp.abs(scaled) <= bound * weights[owner]]
    cp.Problem(cp.Minimize(objective), domain).solve(
        solver=cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10
    )
    np.testing.assert_allclose(ours.weights, weights.value, atol=1e-5)
    np.testing.assert_allclose(ours.weights[OWNER] * ours.alpha, scaled.value, atol=1e-5)


@pytest.mark.parametrize("seed", range(6))
def test_lemma_4_is_the_maximum(seed):
    _, u, v, _, bound = random_dual(seed)
    weights, scaled = cp.Variable(3), cp.Variable(5)
    owner = OWNER.numpy()
    quadratic = sum(cp.quad_over_lin(scaled[k], weights[owner[k]]) for k in range(5))
    domain = [cp.sum(weights) == 1, weights >= 0, cp.abs(scaled) <= bound * weights[owner]]
    program = cp.Problem(cp.Maximize(u.numpy() @ weights + v.numpy() @ scaled - quadratic), domain)
    program.solve(solver=cp.CLARABEL)
    assert upper_bound(u, v, bound, OWNER) == pytest.approx(program.value, abs=1e-6)


def test_the_bound_binds_somewhere_in_these_tests():
    clipped = [(dual_step(*random_dual(seed), OWNER).alpha.abs() == 1.3).any() for seed in range(6)]
    assert any(clipped)
    assert not all(clipped)


@pytest.mark.parametrize("rho", [0.0, 0.8])
def test_the_primal_step_is_the_proximal_minimiser(rho):
    rng = np.random.default_rng(0)
    x, gradient, centre = (torch.as_tensor(rng.normal(size=6)) for _ in range(3))
    new = primal_step(x, gradient, 0.3, rho, centre)
    z = cp.Variable(6)
    objective = gradient.numpy() @ z + cp.sum_squares(z - x.numpy()) / 0.6
    program = cp.Problem(cp.Minimize(objective + rho / 2 * cp.sum_squares(z - centre.numpy())))
    program.solve(solver=cp.CLARABEL)
    np.testing.assert_allclose(new, z.value, atol=1e-6)
