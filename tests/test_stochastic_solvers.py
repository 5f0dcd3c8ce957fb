"""Stochastic algorithms: steps written out from the rows drawn, optima, what must not matter."""

import math
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import pytest
import torch
from helpers import QuadraticProblem, solve_quadratic
from sklearn.base import clone

from fairconstrained.problem import Evaluation, Linearization, separate_estimates
from fairconstrained.solvers import (
    ALM,
    SGD,
    SSLALM,
    PenaltySGD,
    StochasticGhost,
    SwitchingSubgradient,
    constant,
    cosine,
    run,
)
from fairconstrained.solvers.stochastic import Estimates

SOLVERS = [ALM, SSLALM, SwitchingSubgradient, StochasticGhost, PenaltySGD, SGD]
every_solver = pytest.mark.parametrize("solver", SOLVERS)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def tensor(array):
    return torch.as_tensor(array, dtype=torch.float64)


@dataclass
class Rows:
    """Row i: f_i = x'x / 2 + q_i'x, c_i = A_i x - b_i; constraints are means of strata's means."""

    n_rows: int = 12
    n_constraints: int = 2
    seed: int = 0
    noise: float = 1.0
    calls: list = field(default_factory=list)
    offsets: torch.Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.long))

    def __post_init__(self):
        rng = np.random.default_rng(self.seed)
        n, m, d = self.n_rows, self.n_constraints, 3
        self.q = tensor(rng.normal(size=d) * 2 + self.noise * rng.normal(size=(n, d)))
        self.A = tensor(rng.normal(size=(m, d)) + self.noise * rng.normal(size=(n, m, d)))
        self.b = tensor(rng.uniform(0.1, 0.5, size=m) + 0.3 * self.noise * rng.normal(size=(n, m)))
        self.strata = torch.as_tensor(np.arange(n) % 3 == 0).long()  # a third and two thirds
        self.x = tensor(rng.normal(size=d))

    def weights(self, rows, scale):
        scale = torch.full((len(rows),), self.n_rows / len(rows)) if scale is None else scale
        return scale.double() / self.n_rows

    def f(self, x, rows, scale=None):
        """Value and gradient by hand."""
        q = self.weights(rows, scale) @ self.q[rows]
        return 0.5 * x @ x + q @ x, x + q

    def c(self, x, rows, scale=None):
        """Values and Jacobian by hand."""
        w = self.weights(rows, scale)
        A = torch.einsum("i,imd->md", w, self.A[rows])
        return A @ x - w @ self.b[rows], A

    def objective(self, x, rows=None):
        """The first term."""
        self.calls.append(("f", rows, None))
        value, gradient = self.f(x, self.all() if rows is None else rows)
        return Linearization(value[None], lambda v: v * gradient)

    def constraints(self, x, rows=None, scale=None):
        """The others."""
        self.calls.append(("c", rows, scale))
        value, jacobian = self.c(x, self.all() if rows is None else rows, scale)
        return Linearization(value, lambda v: v @ jacobian)

    def linearize(self, x, rows=None, scale=None):
        """Both."""
        self.calls.append(("fc", rows, scale))
        f, c = self.objective(x, rows), self.constraints(x, rows, scale)
        del self.calls[-2:]
        return Linearization(
            torch.cat((f.value, c.value)), lambda v: f.pullback(v[:1]) + c.pullback(v[1:])
        )

    def estimates(self, x, rows, *draws):
        """One call for each draw."""
        return separate_estimates(self, x, rows, *draws)

    def all(self):
        return torch.arange(self.n_rows)

    def evaluate(self, x):
        """Soft is hard."""
        value = torch.cat((self.f(x, self.all())[0][None], self.c(x, self.all())[0]))
        return Evaluation(value, value)

    def sharpened(self):
        """Itself."""
        return self

    def loosened(self, x, by):
        """Itself."""
        return self, x

    def project(self, x):
        """The whole space."""
        return x

    def quadratic(self):
        """The expectation as a quadratic programme."""
        q, (c0, A) = self.q.mean(0), self.c(torch.zeros(3).double(), self.all())
        return QuadraticProblem(torch.eye(3).double(), q, A, -c0)


def steps_of(solver, problem, x, dual, n_steps, seed=0):
    """Points and multipliers after each step, and the draws of each."""
    rng = generator(seed)
    second_size = getattr(solver, "constraint_batch_size", None)
    estimates = Estimates(problem, solver.batch_size, rng, second_size)
    found = []
    problem.calls.clear()
    for point, multipliers in islice(solver.steps(estimates, x, dual, n_steps, rng), n_steps):
        found.append((point, multipliers, list(problem.calls)))
        problem.calls.clear()
    return found


def solve(solver, problem, x=None, dual=None, seed=0):
    x = problem.x.clone() if x is None else x
    dual = torch.zeros(problem.n_constraints).double() if dual is None else dual
    return run(solver, problem, x, dual, generator(seed), max_iter=None, tol=1e-8)


# --- one step, by the formulas of the paper -------------------------------------------------------


@pytest.mark.parametrize("schedule", [constant, cosine])
@pytest.mark.parametrize("max_dual", [10.0, 0.2])
@pytest.mark.parametrize("name", ["ALM", "SSLALM"])
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
        *_, (drawn, _) = solver.steps(Estimates(problem, 1, rng), x, dual, 10, rng)
        (k,) = [k for k in range(4, 10) if torch.allclose(points[k], drawn, atol=1e-12)]
        counts[k - 4] += 1
    p = eta / eta.sum()
    assert (np.abs(counts / n_runs - p) <= 4 * np.sqrt(p * (1 - p) / n_runs)).all()


@pytest.mark.parametrize(
    ("solver", "penalty"),
    [(SGD(step_size=0.1), 0.0), (PenaltySGD(step_size=0.1, penalty=2.0), 2.0)],
)
def test_steps_of_the_baselines(solver, penalty):
    problem = Rows()
    solver.set_params(batch_size=5)
    x = problem.x
    for point, dual, calls in steps_of(solver, problem, x, torch.zeros(2).double(), 5):
        ((_, rows, scale),) = calls
        assert scale is None
        c, A = problem.c(x, rows)
        active = (c > 0).double() * penalty
        x = x - 0.1 * (problem.f(x, rows)[1] + active @ A)
        torch.testing.assert_close(point, x)
        torch.testing.assert_close(dual, active)


def test_draws_are_independent_and_balanced_where_the_algorithm_says_so():
    problem = Rows()
    for _, _, calls in steps_of(ALM(batch_size=6), problem, problem.x, torch.zeros(2).double(), 5):
        rows = [tuple(rows.tolist()) for _, rows, _ in calls]
        assert len(set(rows)) == 3
        for kind, index, scale in calls:
            if kind == "c":
                assert problem.strata[index].double().mean() == 0.5
                torch.testing.assert_close(scale.sum().item(), float(problem.n_rows))


@pytest.mark.parametrize("solver", [ALM, SSLALM, SwitchingSubgradient, SGD, PenaltySGD])
def test_any_optimisers_rule_can_replace_the_plain_step(solver):
    """Adam's first step has the length of the step size in every coordinate."""
    problem = Rows()
    made = solver(step_size=0.01, batch_size=4, optimizer=torch.optim.Adam)
    if solver is SwitchingSubgradient:
        made.set_params(constraint_step_size=0.01, record_from=0.9)
    first, *_ = steps_of(made, problem, problem.x, torch.zeros(2).double(), 5)
    moved = (first[0] - problem.x).abs()
    torch.testing.assert_close(moved, torch.full_like(moved, 0.01), rtol=1e-4, atol=0)


# --- optima --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("solver", [ALM, SSLALM])
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


@pytest.mark.parametrize("seed", range(2))
def test_the_ghost_method_meets_cvxpy_in_variables_and_multipliers(seed):
    problem = QuadraticProblem.random(seed)
    exact_x, exact_dual = solve_quadratic(problem)
    solver = StochasticGhost(step_size=0.5, step_decay=0.0, tau=2.0, n_steps=200)
    last = solve(solver, problem, *problem.start()).history[-1]
    torch.testing.assert_close(last.x, exact_x, rtol=0, atol=1e-5)
    torch.testing.assert_close(last.dual, exact_dual, rtol=0, atol=1e-4)
    rows = Rows(n_rows=300, seed=seed, noise=0.3)
    exact_x, _ = solve_quadratic(rows.quadratic())
    noisy = StochasticGhost(step_size=0.1, step_decay=0.3, batch_size=16, max_level=5, n_steps=400)
    tail = [iterate.x for iterate in solve(noisy, rows).history[-10:]]
    torch.testing.assert_close(torch.stack(tail).mean(0), exact_x, rtol=0, atol=0.08)


@pytest.mark.parametrize("seed", range(2))
def test_the_switching_subgradient_is_nearly_feasible_and_nearly_optimal(seed):
    """What the method promises: violation and objective gap of the order of the step sizes."""
    problem = QuadraticProblem.random(seed)
    exact_x, _ = solve_quadratic(problem)
    least = problem.linearize(exact_x).value[0]
    for size in (0.05, 0.005):
        solver = SwitchingSubgradient(step_size=size, constraint_step_size=size, n_steps=1500)
        value = solve(solver, problem, *problem.start()).iterate.soft
        assert value[1:].max() <= 10 * size
        assert abs(value[0] - least) <= 20 * size


def test_a_penalty_above_the_multipliers_is_exact_and_one_below_is_not():
    problem = QuadraticProblem.random(1)
    exact_x, exact_dual = solve_quadratic(problem)
    largest = exact_dual.max().item()
    assert largest > 0.1
    ends = {}
    for factor in (0.3, 1.5):
        solver = PenaltySGD(penalty=factor * largest, step_size=0.05, n_steps=1500, schedule=cosine)
        ends[factor] = solve(solver, problem, *problem.start()).iterate
    torch.testing.assert_close(ends[1.5].x, exact_x, rtol=0, atol=0.02)
    assert ends[0.3].soft[1:].max() > 0.05


# --- what must not matter ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "solver",
    [
        ALM(step_size=0.05, dual_step_size=0.3, n_steps=1500),
        SSLALM(step_size=0.05, dual_step_size=0.3, n_steps=1500),
        SwitchingSubgradient(step_size=0.1, n_steps=500),
        StochasticGhost(step_size=0.2, n_steps=500),
        PenaltySGD(step_size=0.1, n_steps=500),
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
def test_only_the_generator_decides_what_is_random(solver):
    problem, made = Rows(), solver(n_steps=30, batch_size=3, step_size=0.05)

    def ends(seed):
        torch.manual_seed(seed + 10)  # the global generator must not matter
        return solve(made, problem, seed=seed).history[-1].x

    assert torch.equal(ends(0), ends(0))
    assert not torch.equal(ends(0), ends(1))


@every_solver
def test_start_and_parameters_are_left_alone(solver):
    problem, made = Rows(), solver(n_steps=30, batch_size=3)
    before, x = clone(made).get_params(), problem.x.clone()
    dual = torch.ones(2).double()
    solution = solve(made, problem, x, dual)
    assert made.get_params() == before
    assert torch.equal(x, problem.x)
    assert torch.equal(dual, torch.ones(2).double())
    assert len({tuple(iterate.x.tolist()) for iterate in solution.history}) > 25
    assert len(solution.history) == solver.length == 30


@every_solver
def test_points_stay_in_the_set(solver):
    class InTheBox(QuadraticProblem):
        def project(self, x):
            return x.clamp(-0.1, 0.1)

    given = QuadraticProblem.random(4)
    problem = InTheBox(given.P, given.q, given.A, given.b)
    found = solve(solver(n_steps=200, step_size=0.1), problem, *problem.start()).history
    assert all(iterate.x.abs().max() <= 0.1 for iterate in found)
    assert max(iterate.x.abs().max() for iterate in found) == 0.1


@every_solver
def test_without_constraints_it_is_descent(solver):
    problem = QuadraticProblem.random(5, 4, 0)
    made = solver(n_steps=1500, step_size=0.05)
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


@pytest.mark.parametrize(
    "solver",
    [
        ALM(step_size=0.05, dual_step_size=0.3, max_dual=100, n_steps=1500),
        SSLALM(step_size=0.05, dual_step_size=0.3, max_dual=100, n_steps=1500),
        StochasticGhost(step_size=0.5, step_decay=0, tau=2.0, n_steps=300),
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


def test_schedules():
    assert [constant(t) for t in (0, 0.5, 1)] == [1, 1, 1]
    assert [cosine(t) for t in (0, 0.5, 1)] == pytest.approx([1, 0.5, 0])
    steps = [cosine(k / 10) for k in range(11)]
    assert steps == sorted(steps, reverse=True)
    assert cosine(0.25) == pytest.approx(0.5 + math.sqrt(0.125))


@pytest.mark.parametrize(
    "solver",
    [
        ALM(step_size=0),
        ALM(dual_step_size=-1.0),
        ALM(max_dual=0),
        ALM(batch_size=0.5),
        ALM(n_steps=0),
        ALM(optimizer="adam"),
        ALM(schedule=0.5),
        SSLALM(smoothing=-1.0),
        SSLALM(averaging=0),
        SwitchingSubgradient(tolerance=-1e-4),
        SwitchingSubgradient(constraint_step_size=np.nan),
        SwitchingSubgradient(constraint_batch_size=0),
        SwitchingSubgradient(record_from=1.0),
        StochasticGhost(p0=0.0),
        StochasticGhost(p0=1.0),
        StochasticGhost(p0=1.5),
        StochasticGhost(rho=10.0),
        StochasticGhost(rho=0.0),
        StochasticGhost(lam=1.1),
        StochasticGhost(max_level=2.5),
        StochasticGhost(step_decay=20.0),
        PenaltySGD(penalty=-1),
        SGD(n_steps=True),
    ],
    ids=repr,
)
def test_parameters_are_named_with_their_value(solver):
    (changed,) = [
        k for k, v in solver.get_params().items() if v is not type(solver)().get_params()[k]
    ]
    with pytest.raises(ValueError, match=rf"{type(solver).__name__}\.{changed} must be .*; got "):
        solve(solver, Rows())
