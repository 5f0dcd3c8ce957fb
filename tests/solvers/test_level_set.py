"""The level-set method: its min-max form, every closed form against cvxpy."""

from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
import torch
from torch import nn

from fairconstrained.constraints import Quadratic
from fairconstrained.exact_auc import COMPARISONS
from fairconstrained.models import NetworkModel
from fairconstrained.models.features import as_features
from fairconstrained.problems import FairERM
from fairconstrained.problems.saddle import Saddle
from fairconstrained.solvers import QCQP, AugmentedLagrangian, LevelSet, ProximalLevelSet, Status
from fairconstrained.solvers.level_set import Dual, dual_step, upper_bound
from tests.helpers.ranking import problem as moment_problem
from tests.helpers.ranking import rows
from tests.helpers.solving import generator, solve

every_notion = pytest.mark.parametrize("notion", COMPARISONS)


def on_rows(seed=0, notion="inter_group", slack=0.05, surrogate="quadratic", n=200):
    data = rows(seed, n=n)
    X = data.X.to_dense()
    data = replace(data, blocks=(as_features((X - X.mean(dim=0)).numpy()),))
    moments = moment_problem(data, notion, surrogate, slack)
    objective = moments.risk
    if not isinstance(surrogate, str):
        objective = type(objective)(surrogate, objective.fractions)
    return FairERM(moments.model, data, objective, moments.constraint, moments.alpha), moments


@every_notion
def test_the_saddle_value_is_the_surrogate(notion):
    """At a, b = means and alpha = G / 2, sum of F + alpha G - alpha^2 gives (f_0, ..., f_M)."""
    p, _ = on_rows(1, notion, surrogate=Quadratic(c1=0.3, c2=0.7))
    saddle = Saddle(p)
    w = p.start() + 0.4
    scores = p.model.scores(w, p.data.X)
    cell = p.data.y * 2 + p.data.group
    weight = p.data.weight / p.data.weight.mean()
    means = ((weight * scores[:, 0])[:, None] * saddle.sides[:, cell]).mean(dim=1)
    x = torch.cat((w, means.reshape(-1)))
    value = saddle.linearize(x, p.data).value
    F, G = value[: saddle.n_values], value[saddle.n_values :]
    f = F.index_add(0, saddle.owner, G**2 / 4)
    np.testing.assert_allclose(f, p.linearize(w).value, atol=1e-12)
    moved = x.clone()
    moved[len(w) :] += 0.1  # a and b minimise
    assert (saddle.linearize(moved, p.data).value[: saddle.n_values] > F).all()


def test_projection_is_the_nearest_point_of_ball_times_box():
    p, _ = on_rows(5)
    saddle, solver = Saddle(p), LevelSet(radius=0.5)
    x = torch.linspace(-3, 3, 4 + 2 * saddle.n_pairs, dtype=torch.float64)
    centre = saddle.extended(p.start())
    projected = solver.project(saddle, x, centre)
    z = cp.Variable(len(x))
    domain = [cp.norm(z[:4] - p.start().numpy()) <= 0.5, cp.abs(z[4:]) <= 2.0]
    cp.Problem(cp.Minimize(cp.sum_squares(z - x.numpy())), domain).solve()
    np.testing.assert_allclose(projected, z.value, atol=1e-5)


SHORT = LevelSet(n_steps=400, batch_size=50, step_size=0.1, dual_step_size=60.0, max_levels=10)


@pytest.mark.slow
def test_levels_are_feasible_and_fall_to_the_optimum():
    """Proposition 1: every level's point is feasible; the objective nears QCQP's optimum."""
    p, moments = on_rows(7, slack=0.1)
    optimum = float(solve(QCQP(), moments, tol=1e-6).iterate.soft[0])
    solution = solve(SHORT, p, 0 * p.start(), tol=1e-9)
    objectives = [float(iterate.soft[0]) for iterate in solution.history]
    assert all(float(iterate.soft[1:].max()) <= 1e-3 for iterate in solution.history)
    start = float(p.evaluate(p.start() * 0).soft[0])
    assert optimum - 1e-6 <= objectives[-1] <= optimum + 0.15 * (start - optimum)
    assert objectives[-1] < objectives[0] < start


def test_the_first_level_is_above_the_optimum_from_any_start():
    """Where the start breaks a constraint, f_0 there says nothing of the optimum."""
    p, moments = on_rows(7, slack=0.02)
    optimum = float(solve(QCQP(), moments, tol=1e-6).iterate.soft[0])
    free, _ = on_rows(7, slack=1e3)
    start = solve(AugmentedLagrangian(), free, p.start(), tol=1e-6)
    saddle, w = Saddle(p), start.iterate.x
    assert float(p.evaluate(w).soft[0]) < optimum < SHORT.first_level(saddle, w)
    assert SHORT.first_level(saddle, w * 0) == pytest.approx(0.5)
    one = next(SHORT.iterate(p, w, torch.zeros(p.n_constraints).double(), 1e-9, generator()))
    assert float(one.soft[1:].max()) <= 1e-3


@pytest.mark.slow
def test_the_proximal_loop_trains_a_network():
    p, _ = on_rows(10, slack=0.1)
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(4, 10), nn.Sigmoid(), nn.Linear(10, 1)).double()
    q = FairERM(NetworkModel(network), p.data, p.risk, p.constraint, 1e-4)
    inner = LevelSet(n_steps=200, batch_size=50, step_size=0.1, max_levels=2)
    solver = ProximalLevelSet(level_set=inner, n_rounds=4)
    before = q.evaluate(q.start())
    solution = solve(solver, q, tol=1e-6)
    assert 4 <= len(solution.history) <= 8
    last = solution.history[-1]
    assert float(last.soft[0]) < float(before.soft[0]) - 0.02
    assert float(last.soft[1:].max()) < 0.02
    assert float(solution.iterate.hard[0]) < 0.4


def test_few_steps_are_not_called_converged_and_true_gaps_do_not_select():
    """U as these steps leave it stops the level far above the optimum: nothing is certified."""
    p, moments = on_rows(7, slack=0.1)
    optimum = float(solve(QCQP(), moments, tol=1e-6).iterate.soft[0])
    solver = LevelSet(n_steps=200, batch_size=50, step_size=0.1, epsilon=0.5)
    solution = solve(solver, p, 0 * p.start(), tol=1e9)
    assert float(solution.iterate.soft[0]) > 1.01 * optimum
    assert all(iterate.residual == torch.inf for iterate in solution.history)
    assert solution.status is Status.FINISHED
    fair = solution.history[0]._replace(hard=torch.zeros_like(solution.history[0].hard))
    assert LevelSet().select([fair, solution.iterate]) is solution.iterate


@pytest.mark.parametrize(
    ("surrogate", "slack", "feasible"),
    [
        (Quadratic(c1=0.5, c2=1.0), 0.0, False),
        (Quadratic(c1=0.5, c2=1.0), 0.01, True),
        (Quadratic(c1=0.6, c2=1.0), 0.05, False),
        (Quadratic(c1=0.6, c2=1.0), 0.21, True),
        (Quadratic(c1=2.0, c2=0.5), 0.05, True),
    ],
)
def test_constants_must_be_strictly_feasible(surrogate, slack, feasible):
    """Lemma 2: their surrogate constraints are 2 c1 c2^2 - 1 - slack."""
    p, _ = on_rows(13, surrogate=surrogate, slack=slack)
    values = p.linearize(0 * p.start()).value[1:]
    assert bool((values < -1e-9).all()) is feasible
    if feasible:
        LevelSet().check(p)
    else:
        with pytest.raises(ValueError, match=r"2 c1 c2\^2 < 1 \+ slack.*got c1=0\.\d, c2=1.0"):
            LevelSet().check(p)


OWNER = torch.tensor([0, 1, 1, 2, 2])


def random_dual(seed, tau=0.7, bound=1.3):
    rng = np.random.default_rng(seed)
    parts = rng.dirichlet(np.ones(3)), rng.uniform(-bound, bound, size=5)
    y = Dual(*map(torch.as_tensor, parts))
    u, v = torch.as_tensor(rng.normal(size=3)), torch.as_tensor(4.0 * rng.normal(size=5))
    return y, u, v, tau, bound


@pytest.mark.parametrize("seed", range(3))
def test_lemma_3_is_the_mirror_step(seed):
    """Equation 31, with its domain, by cvxpy: weights and alpha times weights."""
    y, u, v, tau, bound = random_dual(seed)
    ours = dual_step(y, u, v, tau, bound, OWNER)
    weights, scaled = cp.Variable(3), cp.Variable(5)
    owner, old = OWNER.numpy(), y.alpha.numpy()
    quadratic = sum(cp.quad_over_lin(scaled[k], weights[owner[k]]) for k in range(5))
    divergence = (
        2 * (1 + 2**0.5 * bound) ** 2 * cp.sum(cp.kl_div(weights, y.weights.numpy()))
        + quadratic
        - 2 * (old @ scaled)
        + sum(weights[owner[k]] * old[k] ** 2 for k in range(5))
    )
    objective = -u.numpy() @ weights - v.numpy() @ scaled + divergence / tau + quadratic
    domain = [cp.sum(weights) == 1, cp.abs(scaled) <= bound * weights[owner]]
    tight = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-10)
    cp.Problem(cp.Minimize(objective), domain).solve(solver=cp.CLARABEL, **tight)
    np.testing.assert_allclose(ours.weights, weights.value, atol=1e-5)
    np.testing.assert_allclose(ours.weights[OWNER] * ours.alpha, scaled.value, atol=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_lemma_4_is_the_maximum(seed):
    _, u, v, _, bound = random_dual(seed)
    weights, scaled = cp.Variable(3), cp.Variable(5)
    owner = OWNER.numpy()
    quadratic = sum(cp.quad_over_lin(scaled[k], weights[owner[k]]) for k in range(5))
    domain = [cp.sum(weights) == 1, weights >= 0, cp.abs(scaled) <= bound * weights[owner]]
    program = cp.Problem(cp.Maximize(u.numpy() @ weights + v.numpy() @ scaled - quadratic), domain)
    program.solve(solver=cp.CLARABEL)
    assert upper_bound(u, v, bound, OWNER) == pytest.approx(program.value, abs=1e-6)
