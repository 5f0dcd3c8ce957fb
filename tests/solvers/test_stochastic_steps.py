"""Stochastic algorithms: steps written out from the rows drawn, by the formulas of the papers."""

import numpy as np
import pytest
import torch

from fairconstrained.solvers import ALM, SSLALM, SwitchingSubgradient, constant, cosine
from fairconstrained.solvers.stochastic import Estimates
from tests.helpers.numeric import tensor
from tests.helpers.quadratic import QuadraticProblem
from tests.helpers.stochastic import Rows, generator, steps_of


@pytest.mark.parametrize(
    ("name", "max_dual", "schedule"),
    [("ALM", 0.2, cosine), ("SSLALM", 10.0, cosine), ("SSLALM", 0.2, constant)],
)
def test_steps_of_the_augmented_lagrangians(name, max_dual, schedule):
    """Algorithm 2, with the draws that were made: y, the reset, G of (10), the projection, z."""
    problem, tau, eta, rho = Rows(), 0.1, 0.3, 0.7
    sizes = {"step_size": tau, "dual_step_size": eta, "penalty": rho, "max_dual": max_dual}
    mu, beta = (0.9, 0.4) if name == "SSLALM" else (0.0, 0.0)
    if name == "SSLALM":
        solver = SSLALM(**sizes, smoothing=mu, averaging=beta, batch_size=4, schedule=schedule)
    else:
        solver = ALM(**sizes, batch_size=4, schedule=schedule)
    x, y = problem.x, tensor([0.2, 0.1])
    s = (-problem.c(x, problem.all())[0]).clamp_min(0)
    z_x, z_s = x, s
    resets = 0
    for k, (point, dual, calls) in enumerate(steps_of(solver, problem, x, y, 6)):
        (_, xi, _), (_, *zeta_1), (_, *zeta_2) = calls
        assert [kind for kind, *_ in calls] == ["f", "c", "c"]
        decay = schedule(k / 6)
        c_1, A_1 = problem.c(x, *zeta_1)
        c_2, _ = problem.c(x, *zeta_2)
        y = y + decay * eta * (c_1 + s)
        if y.norm() >= max_dual:
            y, resets = torch.zeros(2).double(), resets + 1
        G_x = problem.f(x, xi)[1] + A_1.T @ y + rho * A_1.T @ (c_2 + s) + mu * (x - z_x)
        G_s = y + rho * (c_2 + s) + mu * (s - z_s)
        new_x, new_s = x - decay * tau * G_x, (s - decay * tau * G_s).clamp_min(0)
        z_x, z_s = z_x + beta * (x - z_x), z_s + beta * (s - z_s)
        x, s = new_x, new_s
        torch.testing.assert_close(point, x)
        torch.testing.assert_close(dual, y.clamp_min(0))
    assert (resets > 0) == (max_dual < 1)


def test_steps_of_the_switching_subgradient():
    """Algorithm 3: which step, on which constraint, from which rows, of which size."""
    problem, kinds = Rows(n_constraints=3), set()
    solver = SwitchingSubgradient(
        step_size=0.5,
        constraint_step_size=0.2,
        tolerance=0.05,
        batch_size=3,
        schedule=cosine,
        constraint_batch_size=10,
    )
    x = problem.x
    found = steps_of(solver, problem, x, torch.zeros(3).double(), 20)
    for k, (point, dual, calls) in enumerate(found[:-1]):  # the last one is drawn
        (_, xi, _), (_, *zeta), (_, *zeta_j) = calls
        assert not torch.equal(zeta[0], zeta_j[0])
        assert len(zeta_j[0]) == 10
        value, _ = problem.c(x, *zeta_j)
        if value.max() <= 0.05:
            gradient, size = problem.f(x, xi)[1], 0.5
        else:
            gradient, size = problem.c(x, *zeta)[1][value.argmax()], 0.2
        kinds.add(size)
        x = x - cosine(k / 20) * size * gradient
        torch.testing.assert_close(point, x)
        assert not dual.any()
    assert kinds == {0.5, 0.2}


@pytest.mark.slow
def test_the_output_is_drawn_in_proportion_to_the_step_sizes():
    """P(k) = eta_k / sum of eta over the recorded steps; the point before step k is kept."""
    problem = QuadraticProblem.random(3, 3, 2)
    solver = SwitchingSubgradient(step_size=0.3, constraint_step_size=0.1, record_from=0.4)
    x, dual = problem.start()
    points, sizes = [x], []
    for _ in range(10):
        value = problem.A @ points[-1] - problem.b
        on_objective = value.max() <= 1e-4
        gradient = problem.P @ points[-1] + problem.q if on_objective else problem.A[value.argmax()]
        sizes.append(0.3 if on_objective else 0.1)
        points.append(points[-1] - sizes[-1] * gradient)
    eta = np.array(sizes[4:])
    assert len(set(eta)) == 2
    counts, n_runs = np.zeros(6), 500
    for seed in range(n_runs):
        rng = generator(seed)
        estimates = Estimates(problem, 1, rng)
        now = solver.begin(estimates, x, dual, 10)
        for now.step in range(10):
            solver.step(estimates, now)
        (k,) = [k for k in range(4, 10) if torch.allclose(points[k], now.output, atol=1e-12)]
        counts[k - 4] += 1
    p = eta / eta.sum()
    assert (np.abs(counts / n_runs - p) <= 4 * np.sqrt(p * (1 - p) / n_runs)).all()


@pytest.mark.parametrize("solver", [ALM, SSLALM, SwitchingSubgradient])
def test_any_optimisers_rule_can_replace_the_plain_step(solver):
    """Adam's first step has the length of the step size in every coordinate."""
    problem = Rows()
    made = solver(step_size=0.01, batch_size=4, optimizer=torch.optim.Adam)
    if solver is SwitchingSubgradient:
        made.set_params(constraint_step_size=0.01, record_from=0.9)
    first, *_ = steps_of(made, problem, problem.x, torch.zeros(2).double(), 5)
    moved = (first[0] - problem.x).abs()
    torch.testing.assert_close(moved, torch.full_like(moved, 0.01), rtol=1e-4, atol=0)
