"""Stochastic algorithms: steps written out from the rows drawn, by the formulas of the papers."""

from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import cvxpy as cp
import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import nn

from fairconstrained import RateConstrainedClassifier
from fairconstrained.constraints import DemographicParity, EqualizedOdds, LossParity
from fairconstrained.datasets import make_biased_classification
from fairconstrained.models import Network, NetworkModel
from fairconstrained.problems import Evaluation
from fairconstrained.solvers import (
    ALM,
    DPSGDA,
    SGDA,
    SSLALM,
    EarlyStoppedSGDA,
    Status,
    StochasticGhost,
    SwitchingSubgradient,
    constant,
    cosine,
)
from fairconstrained.solvers.stochastic import Balanced, Estimates
from fairconstrained.solvers.stochastic_ghost import direction, least_level
from tests.helpers.erm import erm
from tests.helpers.numeric import tensor
from tests.helpers.quadratic import QuadraticProblem, solve_quadratic
from tests.helpers.solving import generator, solve
from tests.helpers.stochastic import Rows, steps_of


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
    sizes = {"step_size": 0.5, "constraint_step_size": 0.2, "tolerance": 0.05}
    sizes |= {"batch_size": 3, "constraint_batch_size": 10}
    solver = SwitchingSubgradient(schedule=cosine, **sizes)
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


SOLVERS = [ALM, SSLALM, SwitchingSubgradient, StochasticGhost, SGDA]
every_solver = pytest.mark.parametrize("solver", SOLVERS)
STEADY = {"step_size": 0.05, "dual_step_size": 0.3, "n_steps": 1500}


@pytest.mark.parametrize(("solver", "seed"), [(ALM, 0), (SSLALM, 1)])
def test_augmented_lagrangians_meet_cvxpy_in_variables_and_multipliers(solver, seed):
    """With exact gradients to many digits; from rows, within the noise of constant steps."""
    problem = QuadraticProblem.random(seed)
    exact_x, exact_dual = solve_quadratic(problem)
    assert (exact_dual > 0.01).any()
    exact = solver(**STEADY, max_dual=100.0)
    last = solve(exact, problem, *problem.start(), tol=1e-8).history[-1]
    torch.testing.assert_close(last.x, exact_x, rtol=0, atol=1e-3)
    torch.testing.assert_close(last.dual, exact_dual, rtol=0, atol=1e-3)
    rows = Rows(n_rows=300, seed=seed, noise=0.5)
    exact_x, exact_dual = solve_quadratic(rows.quadratic())
    noisy = solver(step_size=0.05, dual_step_size=0.1, batch_size=32, n_steps=1500, schedule=cosine)
    last = solve(noisy, rows, tol=1e-8).history[-1]
    torch.testing.assert_close(last.x, exact_x, rtol=0, atol=0.05)
    torch.testing.assert_close(last.dual, exact_dual, rtol=0, atol=0.2)


@pytest.mark.parametrize(
    "solver",
    [
        ALM(**STEADY),
        SSLALM(**STEADY),
        SwitchingSubgradient(step_size=0.1, n_steps=500),
        pytest.param(StochasticGhost(step_size=0.2, n_steps=500), marks=pytest.mark.slow),
    ],
)
def test_inactive_constraints_exert_no_force(solver):
    """The end is the unconstrained minimum, strictly inside; multipliers are zero."""
    given = QuadraticProblem.random(2)
    free = -torch.linalg.solve(given.P, given.q)
    problem = QuadraticProblem(given.P, given.q, given.A, given.A @ free + 0.3)
    last = solve(solver, problem, *problem.start(), tol=1e-8).history[-1]
    torch.testing.assert_close(last.x, free, rtol=0, atol=2e-3)
    assert last.dual.max() < 2e-3


@every_solver
def test_without_constraints_it_is_descent(solver):
    problem = QuadraticProblem.random(5, 4, 0)
    made = solver(n_steps=500, step_size=0.05)
    last = solve(made, problem, *problem.start(), tol=1e-8).iterate
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
        ALM(**STEADY, max_dual=100),
        SSLALM(**STEADY, max_dual=100),
        StochasticGhost(step_size=0.5, step_decay=0, tau=2.0, n_steps=300),
        SGDA(**STEADY, optimizer=torch.optim.SGD),
    ],
)
def test_constraints_answer_to_the_measured_values(solver):
    """As if they were tighter by what the labels exceed the soft values."""
    given = QuadraticProblem.random(3)
    problem = HardAbove(given.P, given.q, given.A, given.b)
    x, dual = solve_quadratic(given, 0.2)
    last = solve(solver, problem, *problem.start(), tol=1e-8).history[-1]
    torch.testing.assert_close(last.x, x, rtol=0, atol=5e-3)
    torch.testing.assert_close(last.dual, dual, rtol=0, atol=2e-2)


strata_lists = st.lists(st.integers(-1, 4), min_size=1, max_size=40)


@settings(max_examples=50)
@given(strata_lists, st.integers(1, 6))
def test_every_tuple_has_one_row_of_each_stratum(strata, size):
    present, strata = torch.tensor(strata).unique(return_inverse=True)
    strata = strata - (present < 0).sum()  # 0, 1, ... without gaps, and -1
    balanced = Balanced(strata)
    index, scale = balanced.draw(size, generator())
    expected = strata[strata >= 0].unique() if (strata >= 0).any() else torch.tensor([-1])
    assert (strata[index].reshape(size, -1) == expected).all()
    counts = torch.stack([(strata == q).sum() for q in expected])
    torch.testing.assert_close(scale.reshape(size, -1)[0], counts / size, check_dtype=False)


def test_rows_of_a_stratum_are_equally_likely_and_draws_independent():
    strata = torch.tensor([0, 1, 1, 0, 1, -1])
    index, _ = Balanced(strata).draw(60_000, generator())
    first, second = index.reshape(-1, 2).T
    both = torch.bincount(6 * first + second, minlength=36).reshape(6, 6) / 60_000
    expected = torch.zeros(6, 6)
    expected[[0, 0, 0, 3, 3, 3], [1, 2, 4, 1, 2, 4]] = 1 / 6
    torch.testing.assert_close(both, expected, rtol=0, atol=5 * (5 / 36 / 60_000) ** 0.5)


WITHIN, OVERALL = LossParity(0.1, within="labels"), DemographicParity(0.1, reference="overall")
BOTH = [EqualizedOdds(0.1), LossParity(0.1)]


@pytest.mark.parametrize("notions", [[LossParity(0.1)], [WITHIN], BOTH, [OVERALL]], ids=str)
def test_the_mean_over_all_balanced_draws_is_the_value_and_gradient_on_the_data(notions):
    """Every possible tuple once: unbiased to rounding, for weighted rows in unequal groups."""
    group = torch.tensor([0, 0, 0, 0, 0, 1, 1, 1, 1])
    y = torch.tensor([0, 0, 1, 1, 1, 0, 1, 1, 1])
    rng = torch.Generator().manual_seed(0)
    X = torch.randn((9, 3), generator=rng, dtype=torch.float64)
    weight = torch.rand(9, generator=rng, dtype=torch.float64) + 0.5
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 2), nn.Tanh(), nn.Linear(2, 1)).double()
    problem = erm(X.numpy(), y.numpy(), group.numpy(), notions, weight=weight, alpha=0.0)
    problem = replace(problem, model=NetworkModel(network))
    x = problem.start() + 0.3
    strata = problem.strata
    members = [torch.nonzero(strata == q)[:, 0].tolist() for q in strata.unique().tolist()]
    scale = torch.tensor([len(rows) for rows in members], dtype=torch.float64)
    draws = [torch.tensor(rows) for rows in product(*members)]
    assert len(draws) > 10
    at = torch.randn(problem.n_constraints, generator=rng, dtype=torch.float64)
    found = [problem.constraints(x, rows, scale) for rows in draws]
    exact = problem.constraints(x)
    torch.testing.assert_close(torch.stack([t.value for t in found]).mean(0), exact.value)
    gradients = torch.stack([terms.pullback(at) for terms in found])
    torch.testing.assert_close(gradients.mean(0), exact.pullback(at))
    assert gradients.std(dim=0).max() > 1e-3  # single draws do differ


@pytest.mark.parametrize(("n_bins", "n_classes"), [(3, 2), (None, 3)])
@pytest.mark.slow
def test_a_perceptron_starts_at_the_constrained_linear_model(n_bins, n_classes):
    rng = np.random.default_rng(0)  # six rows of each label and group: too few to hold any out
    y, group = np.indices((n_classes, 2)).reshape(2, -1).repeat(6, axis=1)
    X, seen, steps = rng.normal(size=(len(y), 3)) + (y + 3.0 * group)[:, None], [], []
    params = {"slack": 0.1, "alpha": 0.1, "random_state": 0, "min_group_size": 1}
    linear = RateConstrainedClassifier(callbacks=[steps.append], **params)
    linear.fit(X, y, sensitive_features=group)
    if linear.status_.startswith(Status.KNOWN.value):
        steps.pop()  # where no network begins
    solver = EarlyStoppedSGDA(n_steps=2, n_evaluations=1)
    network = Network((2 * n_classes, 7), n_bins=n_bins)
    clf = RateConstrainedClassifier(model=network, solver=solver, callbacks=[seen.append], **params)
    clf.fit(X, y, sensitive_features=group)
    assert linear.multipliers_.max() > 0.01
    np.testing.assert_allclose(seen[0].dual, linear.multipliers_, atol=1e-12)
    assert float(seen[0].hard[0]) == pytest.approx(float(steps[-1].hard[0]), abs=1e-12)
    seen.clear()
    before = clf.set_params(warm_start=True).multipliers_
    clf.fit(X, y, sensitive_features=group)  # goes on from its own fit
    assert torch.equal(seen[0].dual, torch.tensor(before))
    assert not np.allclose(before, linear.multipliers_)


def test_training_ends_where_held_out_rows_gain_nothing():
    """Random labels: whatever is learnt is noise, and the loss of rows held out grows."""
    rng = np.random.default_rng(0)
    y, group = rng.integers(2, size=(2, 200))
    X = rng.normal(size=(200, 3))
    network = erm(X, y, group, [DemographicParity(0.1)], model=Network((32,)), alpha=0.0)
    solver = EarlyStoppedSGDA(step_size=0.05, patience=3)
    torch.manual_seed(0)
    solution = solve(solver, network)
    assert solution.n_iter < solver.length
    excess = [max(i.excess, 1e-3) for i in solution.history]
    merits = [float(i.soft[0]) + e for i, e in zip(solution.history, excess, strict=True)]
    assert min(excess) <= 1e-3
    assert merits.index(min(merits)) <= solution.n_iter - 1 - solver.patience
    assert solution.iterate is EarlyStoppedSGDA().select(solution.history)


@pytest.mark.slow
def test_a_module_of_the_user_that_starts_at_random_learns_what_a_linear_model_learns():
    """With larger steps of the multipliers it went to constant predictions and back."""
    X, y, group, _ = make_biased_classification(1500, random_state=1).values()

    def module(n_inputs, n_outputs):
        return nn.Sequential(nn.Linear(n_inputs, 64), nn.ReLU(), nn.Linear(64, n_outputs))

    found = []
    for model in ("linear", module):
        clf = RateConstrainedClassifier(slack=0.05, model=model, random_state=1)
        clf.fit(X, y, sensitive_features=group)
        assert clf.feasible_
        found.append(clf.score(X, y))
    assert found[1] >= found[0] - 0.02


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
    params = {"p0": 0.3, "max_level": 3, "tau": 1.3, "lam": 0.6, "n_steps": 5}
    solver = StochasticGhost(step_size=0.5, step_decay=0.4, **params)
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


class Releases:
    """A problem of three constraints whose releases do not depend on anything."""

    def __init__(self, values, n_steps, gains=1e-9):
        self._gains = torch.as_tensor(gains).expand(3)
        self.plan = SimpleNamespace(n_steps=n_steps)
        self.model = SimpleNamespace(linear=True)
        self._values = values

    def release(self, x, choose_dual, max_norm, rng):
        return self._values, 2.0 + 3.0 * x

    def release_table(self, x, rng):
        return -self._values  # nothing is violated: the plain average is the result

    def values(self, table):
        return table

    def gains(self):
        return self._gains

    def deviations_of_estimates(self):
        return torch.full((3,), 1e-9)


def test_multipliers_are_scaled_into_their_bound_and_an_average_is_returned():
    """The orthogonal projection of 8, 1, 3 on sums of at most 10 would be 7.33, 0.33, 2.33."""
    problem = Releases(torch.tensor([8.0, 1.0, 3.0]), n_steps=4)
    solver = DPSGDA(step_size=0.1, dual_step_size=1.0, max_dual=10.0)
    zeros = torch.zeros(3)
    *iterates, result = solver.iterate(problem, torch.zeros(1), zeros, 1e-4, torch.Generator())
    expected, x, path = zeros, torch.zeros(1), []
    for iterate in iterates:
        expected = expected + torch.tensor([8.0, 1.0, 3.0])
        expected = 10.0 * expected / expected.sum()
        x = x - 0.1 * (2.0 + 3.0 * x)
        path.append(x)
        torch.testing.assert_close(iterate.dual, expected)
        torch.testing.assert_close(iterate.x, x)
    assert iterates[0].dual.tolist() == pytest.approx([20 / 3, 5 / 6, 5 / 2])
    # Not the last point: the mean of those at which the second half of the steps was taken.
    torch.testing.assert_close(result.x, (path[1] + path[2]) / 2)
