"""Descent with and without a penalty: what constrained algorithms are compared with."""

import pytest
import torch

from benchmarks.baselines import SGD, PenaltySGD
from fairconstrained import LossParityClassifier
from fairconstrained.exceptions import ConstraintNotSatisfiedWarning
from fairconstrained.metrics import loss_gap
from fairconstrained.solvers import cosine
from tests.helpers.fits import FORGIVEN, table
from tests.helpers.quadratic import QuadraticProblem, solve_quadratic
from tests.helpers.stochastic import Rows, solve, steps_of


@pytest.mark.slow
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


def test_an_inactive_penalty_exerts_no_force():
    """The end is the unconstrained minimum, strictly inside; multipliers are zero."""
    given = QuadraticProblem.random(2)
    free = -torch.linalg.solve(given.P, given.q)
    problem = QuadraticProblem(given.P, given.q, given.A, given.A @ free + 0.3)
    solver = PenaltySGD(step_size=0.1, n_steps=500)
    last = solve(solver, problem, *problem.start()).history[-1]
    torch.testing.assert_close(last.x, free, rtol=0, atol=2e-3)
    assert last.dual.max() < 2e-3


def test_the_baselines_do_not_keep_a_slack():
    X, y, group = table()

    def gap(solver):
        clf = LossParityClassifier(slack=0.02, random_state=0, solver=solver)
        with pytest.warns(ConstraintNotSatisfiedWarning, match="loss_parity: group"):
            clf.fit(X, y, sensitive_features=group)
        return loss_gap(y, clf.predict_proba(X), sensitive_features=group)

    ignored = gap(SGD(step_size=0.1, n_steps=600))
    penalised = gap(PenaltySGD(step_size=0.1, penalty=0.05, n_steps=600))
    assert ignored > penalised > 0.02 + FORGIVEN


@pytest.mark.parametrize(
    ("solver", "name"), [(PenaltySGD(penalty=-1), "penalty"), (SGD(n_steps=True), "n_steps")]
)
def test_parameters_are_named_with_their_value(solver, name):
    with pytest.raises(ValueError, match=rf"\.{name} must be .*; got "):
        solve(solver, Rows())
