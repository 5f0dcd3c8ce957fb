"""IDCA: nearly feasible throughout, descent, and subproblems against cvxpy."""

import cvxpy as cp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fairconstrained import PartialParityClassifier, solvers
from fairconstrained.constraints import PartialDemographicParity, PartialStatisticalParity
from fairconstrained.datasets import make_biased_classification
from fairconstrained.exceptions import InfeasibleError
from fairconstrained.models import Network
from fairconstrained.problems import Evaluation, FixedSoftness
from fairconstrained.solvers.base import violation
from fairconstrained.solvers.idca import best_of, convex_subproblem, subgradient_path
from fairconstrained.solvers.stochastic import Estimates
from tests.helpers.erm import separated
from tests.helpers.solving import solve

NOTIONS = {
    "pSP": PartialStatisticalParity((0.1, 0.5), n_grid=3, surrogate="ramp", temperature=1.0),
    "pDP logistic": PartialDemographicParity((0.1, 0.5), temperature=1.0),
}
every_notion = pytest.mark.parametrize("notion", NOTIONS.values(), ids=NOTIONS)


@pytest.mark.slow
@every_notion
def test_every_iterate_is_nearly_feasible_and_none_is_worse(notion):
    """C <= epsilon at each, up to rounding; the objective never rises, and falls in all."""
    problem, epsilon = separated(notion), 2e-3
    start = problem.linearize(problem.start()).value
    assert violation(start) <= 0
    solution = solve(solvers.IDCA(epsilon=epsilon, inner_steps=60, max_outer=12), problem)
    values = torch.stack([iterate.soft for iterate in solution.history])
    assert (values[:, 1:] <= epsilon + 1e-12).all()
    objective = np.concatenate(([start[0]], values[:, 0]))
    assert (np.diff(objective) <= 1e-12).all()
    assert objective[-1] < objective[0] - 0.05
    assert solution.iterate is solution.history[-1]


def solve_subproblem(problem, x, notion):
    """The optimum of the subproblem of partial statistical parity with ramps, by cvxpy."""
    n_params = problem.model.n_params
    X, y, group = problem.data.X, problem.data.y.numpy(), problem.data.group.numpy()
    offset = problem.model.scores(torch.zeros(n_params).double(), X)
    columns = [problem.model.scores(unit, X) - offset for unit in torch.eye(n_params).double()]
    w, theta = cp.Variable(n_params), cp.Variable(problem.constraint.n_aux)
    z = torch.cat(columns, dim=1).numpy() @ w + offset.numpy()[:, 0]
    units = torch.eye(n_params).double()
    basis = np.stack([problem.model.unpack(unit)[0][:, 0].numpy() for unit in units], 1)
    objective = cp.sum(cp.logistic(cp.multiply(1 - 2 * y, z))) / len(y)
    objective += 0.5 * problem.alpha * cp.sum_squares(basis @ w)
    member = problem.constraint.members[0]
    (low, high), m = notion.interval, len(member.slack)
    parts = problem.convex_parts(x)
    units = torch.eye(1 + 2 * m).double()[1 + m :]
    slopes = np.stack([parts.pullback(unit).numpy() for unit in units])
    linear = parts.value[1 + m :].numpy() + slopes @ (cp.hstack([w, theta]) - x.numpy())
    bounds = []
    for side, (add, ends) in enumerate(((0.5, member.most), (-0.5, member.least))):
        for g in (0, 1):
            for c in range(len(member.grid)):
                mean = cp.sum(cp.pos(z[group == g] - theta[c] + add)) / np.sum(group == g)
                sign = -1 if side == 0 else 1
                convex = 2 / (high - low) * (mean + sign * float(ends[g, c]))
                j = (2 * side + g) * len(member.grid) + c
                bounds.append(convex - linear[j] <= 0)
    found = cp.Problem(cp.Minimize(objective), bounds)
    found.solve(solver=cp.CLARABEL)
    return found.value


@pytest.mark.slow
def test_the_inner_solver_reaches_the_optimum_of_the_subproblem():
    """Written out in cvxpy from the paper's ramp decomposition; (33) up to the tolerance."""
    notion = NOTIONS["pSP"]
    problem = separated(notion, n=40)
    x = solve(solvers.IDCA(epsilon=2e-3, inner_steps=40, max_outer=2), problem).iterate.x
    x = problem.variables(0.9 * x[: problem.model.n_params])
    optimum = solve_subproblem(problem, x, notion)
    terms = convex_subproblem(problem, x)
    epsilon, start = 1e-3, float(terms(x).value[0])
    path = subgradient_path(terms, x, epsilon)
    found = best_of((next(path) for _ in range(1500)), epsilon)
    value = terms(found).value
    assert violation(value) <= epsilon
    assert abs(float(value[0]) - optimum) < 2e-3 < start - optimum


def test_the_direct_method_keeps_the_best_nearly_feasible_point():
    problem, epsilon = separated(NOTIONS["pSP"]), 2e-3
    solution = solve(solvers.DirectSwitching(epsilon=epsilon, n_steps=600), problem)
    values = torch.stack([iterate.soft for iterate in solution.history])
    assert len(values) == 100
    assert (values[:, 1:] <= epsilon + 1e-12).all()
    assert (values[:, 0].diff() <= 1e-12).all()
    assert values[-1, 0] < values[0, 0] - 0.02


EACH = {0: (0.0, 0.4), 1: (0.1, 0.5)}
SHIFTED = PartialStatisticalParity(EACH, n_grid=3, surrogate="ramp", temperature=1.0)
both_solvers = pytest.mark.parametrize(
    "solver",
    [solvers.IDCA(inner_steps=50, max_outer=8), solvers.DirectSwitching(n_steps=400)],
    ids=repr,
)


@both_solvers
def test_intervals_that_differ_begin_with_a_search_for_a_feasible_point(solver):
    """Constant scores break the constraint; the objective counts from where it is met."""
    problem = separated(SHIFTED, slack=0.1)
    assert violation(problem.linearize(problem.start()).value) == pytest.approx(0.15)
    solution = solve(solver, problem)
    violations = [violation(iterate.soft) for iterate in solution.history]
    assert violations[-1] <= solver.epsilon + 1e-12
    objectives = [float(iterate.soft[0]) for iterate in solution.history]
    assert objectives[-1] < 0.67 < np.log(2)
    assert solution.iterate.x[: problem.model.n_params].abs().max() > 0.01


@both_solvers
def test_a_feasible_point_that_is_not_found_is_an_error(solver):
    """Not a model of constant scores, whose ties meet any constraint on hard values."""
    far = {0: (0.0, 0.3), 1: (0.7, 1.0)}
    problem = separated(PartialStatisticalParity(far, n_grid=3, temperature=1.0), slack=0.01)
    name = type(solver).__name__
    words = rf"{name} found no point .* > epsilon=0.001.*intervals?"
    with pytest.raises(InfeasibleError, match=words):
        solve(solver, problem)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_another_try_that_finds_no_feasible_point_loses_nothing():
    """From the solution for a larger slack, which so few steps do not lead back."""
    data = make_biased_classification(600, bias=1.5, random_state=0)
    clf = PartialParityClassifier(solver=solvers.IDCA(inner_steps=20, max_outer=3))
    clf.fit(data.data, data.target, sensitive_features=data.sensitive_features)
    assert clf.feasible_


BOUNDED = [
    PartialStatisticalParity((0.1, 0.5), n_grid=3, temperature=1.0),
    PartialDemographicParity((0.1, 0.5), surrogate="ramp", temperature=1.0),
]
MODELS = ["linear", (3,)]


def points(problem, seed):
    rng = torch.Generator().manual_seed(seed)
    for _ in range(2):
        w = torch.randn(problem.model.n_params, generator=rng, dtype=torch.float64)
        x = problem.variables(w)
        yield x + 0.3 * torch.randn(x.shape, generator=rng, dtype=torch.float64)


@pytest.mark.parametrize("model", MODELS, ids=str)
@pytest.mark.parametrize("notion", BOUNDED, ids=["distributions", "rates"])
@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 2**16))
def test_it_touches_the_constraints_at_the_anchor_and_is_above_them_elsewhere(notion, model, seed):
    """G >= c, with equal values and gradients at the anchor: for networks too."""
    problem = separated(notion, model)
    anchor, other = points(problem, seed)
    at, exact = problem.convex_bounds(anchor, anchor), problem.constraints(anchor)
    weights = torch.linspace(0.5, 1.5, problem.n_constraints, dtype=torch.float64)
    assert at.value.numpy() == pytest.approx(exact.value.numpy(), abs=1e-9)
    assert at.pullback(weights).numpy() == pytest.approx(exact.pullback(weights).numpy(), abs=1e-9)
    above = problem.convex_bounds(other, anchor).value - problem.constraints(other).value
    assert above.min() >= -1e-9


@pytest.mark.parametrize("notion", BOUNDED, ids=["distributions", "rates"])
def test_for_linear_models_it_is_the_subproblem_of_idca(notion):
    """Scores are linear in the parameters: linearising in either is the same."""
    problem = separated(notion)
    gaps = []
    for seed in range(3):
        anchor, other = points(problem, seed)
        expected, found = convex_subproblem(problem, anchor), problem.convex_bounds(other, anchor)
        value = expected(other).value[1:]
        assert found.value.numpy() == pytest.approx(value.numpy(), abs=1e-9)
        weights = torch.linspace(0.0, 2.0, 1 + len(value), dtype=torch.float64)
        gradient = expected(other).pullback(weights).numpy()
        assert found.pullback(weights[1:]).numpy() == pytest.approx(gradient, abs=1e-9)
        gaps.append(float((value - problem.constraints(other).value).max()))
    assert max(gaps) > 0.01  # it is not the constraints themselves


class Subproblem(FixedSoftness):
    """The convex subproblem at an anchor, on all rows, for full-batch solvers."""

    def __init__(self, problem, anchor):
        self.linearize = convex_subproblem(problem, anchor)
        self.n_rows, self.n_constraints = problem.n_rows, problem.n_constraints
        self.offsets, self.start = problem.offsets, problem.start

    def evaluate(self, x):
        value = self.linearize(x).value
        return Evaluation(value, value)


@pytest.mark.slow
def test_one_subproblem_is_solved_as_by_full_batches():
    """Its optimum is unique: mini-batches come to the same objective, and nearly into the set."""
    problem = separated(BOUNDED[0])
    anchor, rng = problem.start(), torch.Generator().manual_seed(0)
    whole = Subproblem(problem, anchor)
    dual = torch.zeros(problem.n_constraints).double()
    solver, options = solvers.AugmentedLagrangian(), {"max_iter": None, "tol": 1e-5}
    full = solvers.run(solver, whole, anchor, dual, rng, **options).iterate
    assert violation(full.soft) < 1e-3
    solver, n_steps = solvers.StochasticIDCA(inner_steps=1000, schedule=solvers.constant), 1000
    estimates = Estimates(problem, 64, rng)
    now = solver.begin(estimates, anchor, dual, n_steps)
    for now.step in range(n_steps):
        solver.step(estimates, now)
    assert (now.anchor == now.x).all()  # the mean of all points
    found = whole.evaluate(now.x).soft
    start = whole.evaluate(anchor).soft
    assert violation(found) < 0.02
    assert float(found[0]) == pytest.approx(float(full.soft[0]), abs=5e-3)
    assert float(start[0]) > float(full.soft[0]) + 0.05


def fitted(**params):
    data = make_biased_classification(1000, random_state=0)
    clf = PartialParityClassifier(interval=(0.1, 0.5), random_state=0, **params)
    return clf.fit(data.data, data.target, sensitive_features=data.sensitive_features)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("constraint", "model"),
    [("demographic_parity", "linear"), ("statistical_parity", Network((8,), n_bins=None))],
)
def test_estimators_end_within_slack(constraint, model):
    """The same for the same seed; the model without constraints is far outside."""
    params = {"constraint": constraint, "model": model}
    solver = solvers.StochasticIDCA(n_steps=300)
    clf, again = (fitted(slack=0.15, solver=solver, **params) for _ in range(2))
    free = fitted(slack=10.0, solver=solvers.SGDA(n_steps=200, batch_size=128), **params)
    assert clf.violation_ <= 0.151 < 0.2 < free.violation_
    data = make_biased_classification(1000, random_state=0)
    assert clf.score(data.data, data.target) > 0.7
    assert (clf.decision_function(data.data) == again.decision_function(data.data)).all()
