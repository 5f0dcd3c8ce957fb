"""Group moments stand for rows: the same values, exact merging; QCQP against cvxpy."""

from dataclasses import replace
from itertools import cycle

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fairconstrained.constraints import Quadratic, Space
from fairconstrained.constraints.moments import stacked
from fairconstrained.exact_auc import COMPARISONS
from fairconstrained.models.features import as_features
from fairconstrained.problems import FairERM
from fairconstrained.solvers import QCQP, Status
from fairconstrained.solvers.qcqp import Quadratics
from tests.helpers.ranking import ALPHA, moments_of, problem, rows
from tests.helpers.solving import solve

every_notion = pytest.mark.parametrize("notion", COMPARISONS)


@given(st.integers(0, 10**6), st.integers(1, 30))
@settings(max_examples=20)
def test_moments_of_blocks_are_those_of_all_rows(seed, size):
    """Blocks of any size, with cells that some of them lack; numbers far from zero."""
    data = rows(seed, n=60)
    data = replace(data, blocks=(as_features(data.X.to_dense().numpy() + 1e5),))
    whole = moments_of(data)
    chunks = [data.X.rows(index) for index in torch.arange(len(data.y)).split(size)]
    merged = moments_of(replace(data, blocks=tuple(chunks)))
    np.testing.assert_allclose(merged.weight, whole.weight, rtol=1e-13)
    np.testing.assert_allclose(merged.mean, whole.mean, rtol=1e-13)
    np.testing.assert_allclose(merged.scatter, whole.scatter, rtol=1e-7, atol=1e-7)


@every_notion
@pytest.mark.parametrize(("surrogate", "n_groups"), [("binormal", 3), ("quadratic", 2)])
def test_values_and_gradients_are_those_of_the_rows(notion, surrogate, n_groups):
    data = rows(4, n_groups=n_groups)
    sparse = replace(data, blocks=(as_features(sp.csr_array(data.X.to_dense().numpy())),))
    p = problem(sparse if n_groups == 3 else data, notion, surrogate, n_groups=n_groups)
    on_rows = FairERM(p.model, data, p.risk, p.constraint, ALPHA)
    x = p.start() + torch.linspace(-0.3, 0.3, 4, dtype=torch.float64)
    ours, theirs = p.linearize(x), on_rows.linearize(x)
    np.testing.assert_allclose(ours.value, theirs.value, rtol=1e-7)
    weights = torch.linspace(0.5, 2.0, len(ours.value), dtype=torch.float64)
    np.testing.assert_allclose(ours.pullback(weights), theirs.pullback(weights), atol=1e-7)
    np.testing.assert_allclose(p.evaluate(x).hard, on_rows.evaluate(x).hard, atol=1e-12)
    np.testing.assert_allclose(p.evaluate(x).soft, on_rows.evaluate(x).soft, rtol=1e-7)


def test_the_start_is_the_unconstrained_optimum():
    """In whitened coordinates the quadratic objective is half a squared distance."""
    p = problem(rows(5))
    (gradient,) = p.linearize(p.start()).gradients(torch.tensor([0]))
    assert gradient.abs().max() < 1e-5
    hessians, _, _ = problem(rows(5), surrogate="quadratic").quadratic_forms()
    np.testing.assert_allclose(hessians[0], np.eye(4), atol=1e-5)


@every_notion
def test_quadratic_forms_are_the_values(notion):
    p = problem(rows(6), notion, "quadratic")
    quadratics = Quadratics(*p.quadratic_forms())
    x = torch.tensor([0.3, -0.2, 0.1, 0.7], dtype=torch.float64)
    np.testing.assert_allclose(quadratics.values(x), p.linearize(x).value, rtol=1e-10)
    each = torch.eye(1 + p.n_constraints, dtype=torch.float64)
    for P, q, weights in zip(quadratics.P, quadratics.q, each, strict=True):
        expected = p.linearize(x).pullback(weights)
        np.testing.assert_allclose(P @ x + q, expected, atol=1e-10)
        assert torch.linalg.eigvalsh(P).min() > -1e-10


def cvxpy_solution(P, q, r):
    """Primal and dual optimum of the quadratics."""
    x = cp.Variable(q.shape[1])
    values = [
        0.5 * cp.quad_form(x, cp.psd_wrap(P[j].numpy())) + q[j].numpy() @ x + float(r[j])
        for j in range(len(r))
    ]
    bounds = [value <= 0 for value in values[1:]]
    program = cp.Problem(cp.Minimize(values[0]), bounds)
    program.solve(solver=cp.CLARABEL, tol_gap_abs=1e-8, tol_gap_rel=1e-8, tol_feas=1e-8)
    return x.value, np.array([float(np.squeeze(bound.dual_value)) for bound in bounds])


@pytest.mark.parametrize(
    ("notion", "slack"), list(zip(COMPARISONS, cycle((0.02, 0.1, 0.5)), strict=False))
)
def test_qcqp_is_cvxpys_solution_primal_and_dual(notion, slack):
    p = problem(rows(7), notion, "quadratic", slack)
    solution = solve(QCQP(), p, tol=1e-9)
    assert solution.status is Status.CONVERGED
    x, dual = cvxpy_solution(*p.quadratic_forms())
    # cvxpy's accuracy; ours: the residual, and a gradient that vanishes to rounding
    np.testing.assert_allclose(solution.iterate.dual, dual, atol=1e-5 + 1e-3 * dual.max())
    np.testing.assert_allclose(solution.iterate.x, x, atol=1e-4)
    weights = torch.cat((torch.ones(1, dtype=torch.float64), solution.iterate.dual))
    assert p.linearize(solution.iterate.x).pullback(weights).abs().max() < 1e-9


def test_qcqp_ends_by_itself_at_rounding():
    """A tolerance that no number meets: no step raises the dual any more."""
    p = problem(rows(7), "inter_group", "quadratic", 0.1)
    solution = solve(QCQP(), p, tol=1e-300)
    assert solution.status is Status.FINISHED
    assert 0 < solution.iterate.residual < 1e-12
    expected = solve(QCQP(), p, tol=1e-9).iterate
    np.testing.assert_allclose(solution.iterate.x, expected.x, atol=1e-7)


def test_no_constraints_are_one_linear_system():
    p = problem(rows(9), surrogate="quadratic")
    free = replace(p, constraint=stacked(Space([0, 1], ["a", "b"]), []))
    solution = solve(QCQP(), free, tol=1e-9)
    assert solution.n_iter == 1
    np.testing.assert_allclose(solution.iterate.x, free.start(), atol=1e-5)


def test_beyond_half_nothing_is_feasible_and_the_dual_grows():
    """c1 c2^2 > 1/2 and slack 0: the program is infeasible, and QCQP ends without a solution."""
    p = problem(rows(11), "inter_group", Quadratic(c1=0.8), slack=0.0)
    solution = solve(QCQP(), p, tol=1e-9)
    assert solution.status is Status.FINISHED
    assert solution.iterate.residual > 0.1
