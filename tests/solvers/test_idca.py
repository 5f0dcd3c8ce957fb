"""IDCA: nearly feasible throughout, descent, and subproblems against cvxpy."""

import cvxpy as cp
import numpy as np
import pytest
import torch

from fairconstrained import PartialParityClassifier, RateConstrainedClassifier
from fairconstrained.constraints import PartialDemographicParity, PartialStatisticalParity
from fairconstrained.datasets import make_biased_classification
from fairconstrained.exceptions import IncompatibleSolverError
from fairconstrained.solvers import IDCA, DirectSwitching, run
from fairconstrained.solvers.base import violation
from fairconstrained.solvers.idca import best_of, convex_subproblem, subgradient_path
from tests.helpers.erm import separated

NOTIONS = {
    "pSP": PartialStatisticalParity((0.1, 0.5), n_grid=3, surrogate="ramp", temperature=1.0),
    "pDP logistic": PartialDemographicParity((0.1, 0.5), temperature=1.0),
}
every_notion = pytest.mark.parametrize("notion", NOTIONS.values(), ids=NOTIONS)


def solved(solver, problem):
    dual = torch.zeros(problem.n_constraints).double()
    rng = torch.Generator()
    return run(solver, problem, problem.start(), dual, rng, max_iter=None, tol=1e-4)


@pytest.mark.slow
@every_notion
def test_every_iterate_is_nearly_feasible_and_none_is_worse(notion):
    """C <= epsilon at each, up to rounding; the objective never rises, and falls in all."""
    problem, epsilon = separated(notion), 2e-3
    start = problem.linearize(problem.start()).value
    assert violation(start) <= 0
    solution = solved(IDCA(epsilon=epsilon, inner_steps=60, max_outer=12), problem)
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
    basis = np.stack(
        [problem.model.unpack(unit)[0][:, 0].numpy() for unit in torch.eye(n_params).double()], 1
    )
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
    x = solved(IDCA(epsilon=2e-3, inner_steps=40, max_outer=2), problem).iterate.x
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
    solution = solved(DirectSwitching(epsilon=epsilon, n_steps=600), problem)
    values = torch.stack([iterate.soft for iterate in solution.history])
    assert len(values) == 100
    assert (values[:, 1:] <= epsilon + 1e-12).all()
    assert (values[:, 0].diff() <= 1e-12).all()
    assert values[-1, 0] < values[0, 0] - 0.02


SHIFTED = PartialStatisticalParity(
    {0: (0.0, 0.4), 1: (0.1, 0.5)}, n_grid=3, surrogate="ramp", temperature=1.0
)
both_solvers = pytest.mark.parametrize(
    "solver", [IDCA(inner_steps=50, max_outer=8), DirectSwitching(n_steps=400)], ids=repr
)


@both_solvers
def test_intervals_that_differ_begin_with_a_search_for_a_feasible_point(solver):
    """Constant scores break the constraint; the objective counts from where it is met."""
    problem = separated(SHIFTED, slack=0.1)
    assert violation(problem.linearize(problem.start()).value) == pytest.approx(0.15)
    solution = solved(solver, problem)
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
    with pytest.raises(ValueError, match=rf"{name} found no point .* > epsilon=0.001.*intervals?"):
        solved(solver, problem)


def test_other_problems_are_refused_by_name():
    data = make_biased_classification(100, 6, 2, 2, random_state=0)
    given = (data.data, data.target)
    for clf in (
        RateConstrainedClassifier(solver=IDCA()),
        PartialParityClassifier("group_auc", solver=IDCA()),
        PartialParityClassifier(solver=IDCA(), model=(4,)),
    ):
        with pytest.raises(IncompatibleSolverError, match=r"IDCA .* is for linear models"):
            clf.fit(*given, sensitive_features=data.sensitive_features)
