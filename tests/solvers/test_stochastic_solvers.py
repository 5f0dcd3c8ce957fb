"""Stochastic algorithms: steps written out from the rows drawn, optima, what must not matter."""

import pytest
import torch

from fairconstrained.problems import Evaluation
from fairconstrained.solvers import ALM, SGDA, SSLALM, StochasticGhost, SwitchingSubgradient, cosine
from tests.helpers.quadratic import QuadraticProblem, solve_quadratic
from tests.helpers.stochastic import Rows, solve

SOLVERS = [ALM, SSLALM, SwitchingSubgradient, StochasticGhost, SGDA]
every_solver = pytest.mark.parametrize("solver", SOLVERS)


@pytest.mark.parametrize(("solver", "seed"), [(ALM, 0), (SSLALM, 1)])
def test_augmented_lagrangians_meet_cvxpy_in_variables_and_multipliers(solver, seed):
    """With exact gradients to many digits; from rows, within the noise of constant steps."""
    problem = QuadraticProblem.random(seed)
    exact_x, exact_dual = solve_quadratic(problem)
    assert (exact_dual > 0.01).any()
    exact = solver(step_size=0.05, dual_step_size=0.3, max_dual=100.0, n_steps=1500)
    last = solve(exact, problem, *problem.start()).history[-1]
    torch.testing.assert_close(last.x, exact_x, rtol=0, atol=1e-3)
    torch.testing.assert_close(last.dual, exact_dual, rtol=0, atol=1e-3)
    rows = Rows(n_rows=300, seed=seed, noise=0.5)
    exact_x, exact_dual = solve_quadratic(rows.quadratic())
    noisy = solver(step_size=0.05, dual_step_size=0.1, batch_size=32, n_steps=1500, schedule=cosine)
    last = solve(noisy, rows).history[-1]
    torch.testing.assert_close(last.x, exact_x, rtol=0, atol=0.05)
    torch.testing.assert_close(last.dual, exact_dual, rtol=0, atol=0.2)


@pytest.mark.slow
def test_the_ghost_method_meets_cvxpy_in_variables_and_multipliers():
    problem = QuadraticProblem.random(0)
    exact_x, exact_dual = solve_quadratic(problem)
    solver = StochasticGhost(step_size=0.5, step_decay=0.0, tau=2.0, n_steps=200)
    last = solve(solver, problem, *problem.start()).history[-1]
    torch.testing.assert_close(last.x, exact_x, rtol=0, atol=1e-5)
    torch.testing.assert_close(last.dual, exact_dual, rtol=0, atol=1e-4)
    rows = Rows(n_rows=300, seed=0, noise=0.3)
    exact_x, _ = solve_quadratic(rows.quadratic())
    noisy = StochasticGhost(step_size=0.1, step_decay=0.3, batch_size=16, max_level=5, n_steps=400)
    tail = [iterate.x for iterate in solve(noisy, rows).history[-10:]]
    torch.testing.assert_close(torch.stack(tail).mean(0), exact_x, rtol=0, atol=0.08)


@pytest.mark.slow
def test_the_switching_subgradient_is_nearly_feasible_and_nearly_optimal():
    """What the method promises: violation and objective gap of the order of the step sizes."""
    problem = QuadraticProblem.random(0)
    exact_x, _ = solve_quadratic(problem)
    least = problem.linearize(exact_x).value[0]
    for size in (0.05, 0.005):
        solver = SwitchingSubgradient(step_size=size, constraint_step_size=size, n_steps=1500)
        value = solve(solver, problem, *problem.start()).iterate.soft
        assert value[1:].max() <= 10 * size
        assert abs(value[0] - least) <= 20 * size


@pytest.mark.parametrize(
    "solver",
    [
        ALM(step_size=0.05, dual_step_size=0.3, n_steps=1500),
        SSLALM(step_size=0.05, dual_step_size=0.3, n_steps=1500),
        SwitchingSubgradient(step_size=0.1, n_steps=500),
        pytest.param(StochasticGhost(step_size=0.2, n_steps=500), marks=pytest.mark.slow),
    ],
)
def test_inactive_constraints_exert_no_force(solver):
    """The end is the unconstrained minimum, strictly inside; multipliers are zero.

    Taken for an equality the constraint would end at its boundary, 0.3 away in its value.
    """
    given = QuadraticProblem.random(2)
    free = -torch.linalg.solve(given.P, given.q)
    problem = QuadraticProblem(given.P, given.q, given.A, given.A @ free + 0.3)
    last = solve(solver, problem, *problem.start()).history[-1]
    torch.testing.assert_close(last.x, free, rtol=0, atol=2e-3)
    assert last.dual.max() < 2e-3


@every_solver
def test_without_constraints_it_is_descent(solver):
    problem = QuadraticProblem.random(5, 4, 0)
    made = solver(n_steps=500, step_size=0.05)
    last = solve(made, problem, *problem.start()).iterate
    expected = -torch.linalg.solve(problem.P, problem.q)
    torch.testing.assert_close(last.x, expected, rtol=0, atol=0.02)
    assert last.dual.shape == (0,)


class HardAbove(QuadraticProblem):
    """Measured values are worse than the soft ones by 0.2 in each constraint."""

    def evaluate(self, x):
        soft = self.linearize(x).value
        hard = soft + 0.2
        hard[0] = soft[0]
        return Evaluation(soft, hard)


@pytest.mark.slow
@pytest.mark.parametrize(
    "solver",
    [
        ALM(step_size=0.05, dual_step_size=0.3, max_dual=100, n_steps=1500),
        SSLALM(step_size=0.05, dual_step_size=0.3, max_dual=100, n_steps=1500),
        StochasticGhost(step_size=0.5, step_decay=0, tau=2.0, n_steps=300),
        SGDA(step_size=0.05, dual_step_size=0.3, n_steps=1500, optimizer=torch.optim.SGD),
    ],
)
def test_constraints_answer_to_the_measured_values(solver):
    """As if they were tighter by what the labels exceed the soft values."""
    given = QuadraticProblem.random(3)
    problem = HardAbove(given.P, given.q, given.A, given.b)
    x, dual = solve_quadratic(given, 0.2)
    last = solve(solver, problem, *problem.start()).history[-1]
    torch.testing.assert_close(last.x, x, rtol=0, atol=5e-3)
    torch.testing.assert_close(last.dual, dual, rtol=0, atol=2e-2)
