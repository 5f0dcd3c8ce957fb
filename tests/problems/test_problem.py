"""Problems: values, gradients and estimates agree with each other, the rows, moments and cvxpy."""

from dataclasses import replace
from functools import partial
from itertools import cycle

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fairconstrained import constraints
from fairconstrained.constraints.moments import MomentConstraint, stacked
from fairconstrained.constraints.steps import STEPS
from fairconstrained.constraints.tables import ClassProbabilities
from fairconstrained.exact_auc import COMPARISONS
from fairconstrained.losses import LOSSES, log_loss
from fairconstrained.models import LinearModel, NetworkModel
from fairconstrained.models.features import DenseFeatures, SparseFeatures, as_features
from fairconstrained.problems import FairERM, Rows, separate_estimates
from fairconstrained.problems.objectives import MeanLoss
from fairconstrained.solvers import QCQP, Status
from fairconstrained.solvers.qcqp import Quadratics
from fairconstrained.solvers.stochastic import Balanced
from tests.helpers.notions import at_temperature, random_rows
from tests.helpers.numeric import numerical_jacobian
from tests.helpers.ranking import ALPHA, moments_of, problem, rows
from tests.helpers.solving import solve

N_ROWS, N_FEATURES, N_GROUPS = 60, 4, 3
NOT_LINEAR = {"predictive_parity", "false_omission_rate_parity"}
NOTIONS = [
    constraints.DemographicParity(0.1),
    constraints.EqualizedOdds(0.1, reference="rest"),
    constraints.LossParity(0.2),
]


def dense(X):
    return DenseFeatures(torch.as_tensor(X))


def csr(X):
    return SparseFeatures(sp.csr_array(X))


def linear(n_outputs):
    rng = np.random.default_rng(0)
    centre, transform = rng.normal(size=N_FEATURES), rng.uniform(0.5, 2, size=N_FEATURES)
    return LinearModel(n_outputs, torch.as_tensor(centre), torch.as_tensor(transform), True)


def perceptron(n_outputs):
    torch.manual_seed(0)
    layers = nn.Linear(N_FEATURES, 3), nn.Tanh(), nn.Linear(3, n_outputs)
    return NetworkModel(nn.Sequential(*layers).double())


def batch(n_classes=2, wrap=dense, n_rows=N_ROWS, weighted=True):
    rows = random_rows(0, n_classes, N_GROUPS, n=n_rows)
    X = np.random.default_rng(1).normal(size=(len(rows.y), N_FEATURES)) + rows.y.numpy()[:, None]
    weight = rows.weight if weighted else torch.ones_like(rows.weight)
    return Rows((wrap(X),), rows.y, rows.group, weight)


def erm(model=linear, data=None, notions=NOTIONS, n_classes=2, temperature=2.0, loss=log_loss):
    data = data or batch(n_classes)
    space = constraints.Space(list(range(n_classes)), list(range(N_GROUPS)))
    bound = [at_temperature(notion, temperature).bind(space, 0.05) for notion in notions]
    scores = model(1 if n_classes == 2 else n_classes)
    return FairERM(scores, data, MeanLoss(loss), stacked(space, bound), alpha=0.1)


def some_point(problem):
    start = problem.start()
    return start + 0.5 * torch.as_tensor(np.random.default_rng(2).normal(size=len(start)))


class CommonRate(MomentConstraint):
    """Every group's rate of positives lies within 0.1 of one number, an extra variable."""

    def __init__(self):
        parts = torch.arange(N_GROUPS).expand(2, N_GROUPS)
        slack = torch.full((2 * N_GROUPS,), 0.1)
        space = constraints.Space([0, 1], list(range(N_GROUPS)))
        super().__init__(space, parts, ClassProbabilities(2), slack, "common_rate", n_aux=1)

    def init_aux(self, scores, rows):
        return scores.new_full((1,), 0.4)

    def evaluate(self, sums, counts, aux):
        gap = sums[:, 1] / counts - aux
        return torch.cat((gap - 0.1, -gap - 0.1))


PROBLEMS = {
    "linear": lambda: erm(),
    "linear on CSR": lambda: erm(data=batch(wrap=csr)),
    "linear, 3 classes": lambda: erm(n_classes=3),
    "linear, Brier": lambda: erm(loss=LOSSES["brier"]),
    "network": lambda: erm(perceptron),
    "network on CSR, 3 classes": lambda: erm(perceptron, batch(3, csr), n_classes=3),
    "no constraint": lambda: erm(notions=[]),
    "extra variable": lambda: FairERM(linear(1), batch(), MeanLoss(log_loss), CommonRate(), 0.1),
}
every_problem = pytest.mark.parametrize("build", PROBLEMS.values(), ids=PROBLEMS)
OTHERS = {  # of which draws of rows say nothing
    "bins in an interval": [constraints.PARTIAL["group_auc"]((0.1, 0.6))],
    "rates in an interval": [constraints.PARTIAL["equalized_odds"]((0.1, 0.6))],
    **{
        f"{name}, {step}": [constraints.PARTIAL[name]((0.1, 0.6), surrogate=step)]
        for name in ("statistical_parity", "rank_parity")
        for step in STEPS
    },
}
RATES = [
    kind(**{params: 0.8})
    for kind in constraints.CONSTRAINTS.values()
    for params in ("slack", "max", "ratio")
    if params in kind().get_params()
]
OTHERS |= {str(notion): [notion] for notion in RATES}
SURROGATES = cycle(
    [constraints.Quadratic(0.7, 0.4), constraints.Binormal(), constraints.SoftBins()]
)
OTHERS |= {
    f"AUC, {name}": [constraints.AUCParity(name, surrogate=surrogate)]
    for name, surrogate in zip(COMPARISONS, SURROGATES, strict=False)
}
OTHERS["Brier"] = [constraints.LossParity(0.2, within="labels", loss="brier")]
WHOLE = PROBLEMS | {name: partial(erm, notions=notions) for name, notions in OTHERS.items()}
WHOLE |= {
    f"{notion}, 3 classes": partial(erm, notions=[notion], n_classes=3)
    for notion in (*RATES, *OTHERS["Brier"])
}


@pytest.mark.parametrize("build", WHOLE.values(), ids=WHOLE)
def test_terms_are_those_of_objective_and_constraint_with_their_jacobian(build):
    """Closed forms against the values from scores, and against differences."""
    problem = build()
    x, data = some_point(problem), problem.data
    w, aux = x.tensor_split([problem.model.n_params])
    scores, rows = problem.model.scores(w, data.X), (data.y, data.group, data.weight)
    risk = problem.risk.soft(scores, data.y, data.weight)
    objective = risk + problem.alpha * problem.model.penalty(w).value
    values = problem.constraint.values(scores, problem.constraint.partition.place(*rows), aux)
    terms = problem.linearize(x)
    torch.testing.assert_close(terms.value, torch.cat((objective[None], values)))
    expected = numerical_jacobian(lambda v: problem.linearize(v).value, x)
    torch.testing.assert_close(terms.jacobian(), expected, rtol=1e-6, atol=1e-7)
    weights = torch.as_tensor(np.random.default_rng(3).normal(size=(4, len(expected))))
    torch.testing.assert_close(terms.pullbacks(weights), weights @ terms.jacobian())
    if problem.difference_of_convex:
        parts = problem.convex_parts(x)
        expected = numerical_jacobian(lambda v: problem.convex_parts(v).value, x)
        torch.testing.assert_close(parts.jacobian(), expected, rtol=1e-6, atol=1e-7)


@every_problem
def test_pullback_is_the_gradient_of_the_weighted_sum(build):
    """Of half of the rows."""
    problem, rows = build(), torch.arange(0, N_ROWS, 2)
    x = some_point(problem)
    terms = problem.linearize(x, rows)
    assert len(terms.value) == 1 + problem.n_constraints
    rng = np.random.default_rng(3)
    for _ in range(2):  # may be called again, with other weights
        weights = torch.as_tensor(rng.normal(size=len(terms.value)))
        expected = numerical_jacobian(lambda v, w=weights: w @ problem.linearize(v, rows).value, x)
        torch.testing.assert_close(terms.pullback(weights), expected[0], rtol=1e-6, atol=1e-7)


@every_problem
def test_estimates_from_several_draws_are_those_of_each(build):
    """Values and gradients of one joint pass, for uniform and for balanced draws."""
    problem, rng = build(), torch.Generator().manual_seed(0)
    x, rows = some_point(problem), torch.tensor([3, 1, 4, 15, 9, 26])
    balanced = Balanced(problem.strata)
    draws = [balanced.draw(size, rng) for size in (1, 3)]
    joint, apart = problem.estimates(x, rows, *draws), separate_estimates(problem, x, rows, *draws)
    assert len(joint.value) == 1 + 2 * problem.n_constraints
    torch.testing.assert_close(joint.value, apart.value)
    weights = torch.as_tensor(np.random.default_rng(5).normal(size=len(joint.value)))
    torch.testing.assert_close(joint.pullback(weights), apart.pullback(weights))


@pytest.mark.parametrize(
    ("name", "model", "size"),
    [
        *((name, linear, 1) for name in constraints.CONSTRAINTS if name not in NOT_LINEAR),
        ("equalized_odds", perceptron, 10),
        ("loss_parity", perceptron, 1),
    ],
)
def test_batches_of_equal_size_estimate_without_bias(name, model, size):
    """Of values linear in the table the mean over a partition's batches is the full value."""
    problem = erm(model, batch(), [constraints.CONSTRAINTS[name](0.1)])
    x = some_point(problem)
    order = torch.randperm(N_ROWS, generator=torch.Generator().manual_seed(1))
    full = problem.linearize(x)
    weights = torch.as_tensor(np.random.default_rng(5).normal(size=len(full.value)))
    each = torch.full((size,), N_ROWS / size)
    ways = [
        lambda rows: problem.linearize(x, rows),
        lambda rows: problem.estimates(x, rows, (rows, each)),
        lambda rows: separate_estimates(problem, x, rows, (rows, each)),
    ]
    for way in ways:
        parts = [way(rows) for rows in order.split(size)]
        values = torch.stack([part.value for part in parts])
        torch.testing.assert_close(values.mean(dim=0), full.value)
        gradients = torch.stack([part.pullback(weights) for part in parts])
        torch.testing.assert_close(gradients.mean(dim=0), full.pullback(weights))
        assert (values[0] - full.value).abs().max() > 1e-3  # a batch alone is not the whole


@every_problem
def test_a_batch_without_some_group_or_label_is_finite(build):
    problem = build()
    x, data = some_point(problem), problem.data
    for lacking in (data.group != 0, data.y != 1, (data.group == 0) & (data.y == 0)):
        terms = problem.linearize(x, lacking.nonzero()[:, 0])
        assert terms.value.isfinite().all()
        assert terms.pullback(torch.ones_like(terms.value)).isfinite().all()
    assert problem.linearize(x, torch.tensor([0])).value.isfinite().all()


def test_batch_statistics_settle_on_all_rows_before_each_evaluation():
    """Two evaluations are equal whatever batches were seen between them."""
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(N_FEATURES, 3), nn.BatchNorm1d(3), nn.Linear(3, 1)).double()
    problem = erm(lambda n_outputs: NetworkModel(layers))
    x = some_point(problem)
    before = problem.evaluate(x)
    problem.linearize(x, torch.arange(5))
    after = problem.evaluate(x)
    torch.testing.assert_close(after.soft, before.soft)
    torch.testing.assert_close(after.hard, before.hard)


@pytest.mark.parametrize("period", [2, 16])
def test_thinned_rows_do_not_depend_on_a_period_of_the_rows(period):
    """Of 400,000 rows one in 16 is left, and 1,000 of each cell."""
    data = batch(n_rows=400_000, weighted=False)
    data = replace(data, group=(torch.arange(len(data.y)) % period == 1).long())
    thin = erm(data=data).subsample().data
    assert len(thin.y) == pytest.approx(400_000 / 16, rel=0.03)
    for group in (0, 1):
        weight = float(thin.weight[thin.group == group].sum())
        assert weight == pytest.approx(int((data.group == group).sum()), rel=0.01)


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
    x = cp.Variable(q.shape[1])
    values = [
        0.5 * cp.quad_form(x, cp.psd_wrap(P[j].numpy())) + q[j].numpy() @ x + float(r[j])
        for j in range(len(r))
    ]
    bounds = [value <= 0 for value in values[1:]]
    program = cp.Problem(cp.Minimize(values[0]), bounds)
    program.solve(solver=cp.CLARABEL, tol_gap_abs=1e-8, tol_gap_rel=1e-8, tol_feas=1e-8)
    return x.value, np.array([float(np.squeeze(bound.dual_value)) for bound in bounds])


@every_notion
def test_qcqp_is_cvxpys_solution_primal_and_dual(notion):
    slack = (0.02, 0.1, 0.5)[list(COMPARISONS).index(notion) % 3]
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
    free = replace(p, constraint=stacked(constraints.Space([0, 1], ["a", "b"]), []))
    solution = solve(QCQP(), free, tol=1e-9)
    assert solution.n_iter == 1
    np.testing.assert_allclose(solution.iterate.x, free.start(), atol=1e-5)


def test_beyond_half_nothing_is_feasible_and_the_dual_grows():
    """c1 c2^2 > 1/2 and slack 0: the program is infeasible, and QCQP ends without a solution."""
    p = problem(rows(11), "inter_group", constraints.Quadratic(c1=0.8), slack=0.0)
    solution = solve(QCQP(), p, tol=1e-9)
    assert solution.status is Status.FINISHED
    assert solution.iterate.residual > 0.1
