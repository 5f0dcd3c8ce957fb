"""Bounds on differences of convex constraints, and IDCA on mini-batches against full batches."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fairconstrained import PartialParityClassifier
from fairconstrained.constraints import PartialDemographicParity, PartialStatisticalParity
from fairconstrained.datasets import make_biased_classification
from fairconstrained.exceptions import IncompatibleSolverError
from fairconstrained.models import Network
from fairconstrained.problems import Evaluation, FixedSoftness
from fairconstrained.solvers import SGDA, AugmentedLagrangian, StochasticIDCA, constant, run
from fairconstrained.solvers.base import violation
from fairconstrained.solvers.idca import convex_subproblem
from fairconstrained.solvers.stochastic import Estimates
from tests.helpers.erm import separated

NOTIONS = [
    PartialStatisticalParity((0.1, 0.5), n_grid=3, temperature=1.0),
    PartialDemographicParity((0.1, 0.5), surrogate="ramp", temperature=1.0),
]
MODELS = ["linear", (3,)]


def points(problem, seed):
    """Two points: some parameters, with extra variables near those that suit them."""
    rng = torch.Generator().manual_seed(seed)
    for _ in range(2):
        w = torch.randn(problem.model.n_params, generator=rng, dtype=torch.float64)
        x = problem.variables(w)
        yield x + 0.3 * torch.randn(x.shape, generator=rng, dtype=torch.float64)


@pytest.mark.parametrize("model", MODELS, ids=str)
@pytest.mark.parametrize("notion", NOTIONS, ids=["distributions", "rates"])
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
    assert (
        problem.convex_bounds(other, anchor).value >= problem.constraints(other).value - 1e-9
    ).all()


@pytest.mark.parametrize("notion", NOTIONS, ids=["distributions", "rates"])
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
        assert found.pullback(weights[1:]).numpy() == pytest.approx(
            expected(other).pullback(weights).numpy(), abs=1e-9
        )
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
    problem = separated(NOTIONS[0])
    anchor, rng = problem.start(), torch.Generator().manual_seed(0)
    whole = Subproblem(problem, anchor)
    dual = torch.zeros(problem.n_constraints).double()
    full = run(AugmentedLagrangian(), whole, anchor, dual, rng, max_iter=None, tol=1e-5).iterate
    assert violation(full.soft) < 1e-3
    solver, n_steps = StochasticIDCA(inner_steps=1000, schedule=constant), 1000
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
    solver = StochasticIDCA(n_steps=300)
    clf, again = (fitted(slack=0.15, solver=solver, **params) for _ in range(2))
    free = fitted(slack=10.0, solver=SGDA(n_steps=200, batch_size=128), **params)
    assert clf.violation_ <= 0.151 < 0.2 < free.violation_
    data = make_biased_classification(1000, random_state=0)
    assert clf.score(data.data, data.target) > 0.7
    assert (clf.decision_function(data.data) == again.decision_function(data.data)).all()


def test_what_it_cannot_bound_is_refused():
    with pytest.raises(IncompatibleSolverError, match=r"StochasticIDCA .* constraints that are"):
        fitted(constraint="group_auc", solver=StochasticIDCA())
