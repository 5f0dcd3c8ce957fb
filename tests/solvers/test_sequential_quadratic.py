"""Sequential quadratic programs: a convex problem's solution, the promise of hard values, units."""

import numpy as np
import pytest
import torch

from fairconstrained import PartialParityClassifier
from fairconstrained.datasets import make_biased_classification
from fairconstrained.problems import Evaluation, FixedSoftness, Linearization
from fairconstrained.solvers import AugmentedLagrangian, SequentialQuadratic, run


class Circle(FixedSoftness):
    """Minimise |x - (2, 1)|^2 / 2 in a disc of radius 1, whose hard values are off by `offset`."""

    n_rows, n_constraints = 10, 1

    def __init__(self, offset=0.0):
        self.offset = offset

    def start(self):
        return torch.zeros(2, dtype=torch.float64)

    def linearize(self, x):
        goal = x.new_tensor([2.0, 1.0])
        value = torch.stack((0.5 * ((x - goal) ** 2).sum(), 0.5 * ((x**2).sum() - 1.0)))
        return Linearization(value, lambda weights: weights[0] * (x - goal) + weights[1] * x)

    def evaluate(self, x):
        soft = self.linearize(x).value
        return Evaluation(soft, soft + soft.new_tensor([0.0, self.offset]))


def solve(problem, solver=None, start=(0.0, 0.0)):
    x = torch.tensor(start, dtype=torch.float64)
    rng = torch.Generator().manual_seed(0)
    dual = torch.zeros(1, dtype=torch.float64)
    solver = solver or SequentialQuadratic()
    return run(solver, problem, x, dual, rng, max_iter=None, tol=1e-6)


@pytest.mark.parametrize("offset", [-0.3, 0.0, 0.2])
def test_the_hard_constraint_is_met_with_equality(offset):
    """The optimum is the goal's direction at the radius that the hard value allows."""
    iterate = solve(Circle(offset)).iterate
    radius = np.sqrt(1.0 - 2.0 * offset)
    expected = radius * np.array([2.0, 1.0]) / np.sqrt(5.0)
    assert iterate.x.numpy() == pytest.approx(expected, abs=2e-3)
    assert iterate.hard[1] <= 1e-3
    assert iterate.dual[0] == pytest.approx(np.sqrt(5.0) / radius - 1.0, abs=5e-3)
    assert iterate.residual <= 1e-6


def test_a_start_far_outside_is_brought_back():
    assert solve(Circle(), start=(-30.0, 40.0)).iterate.hard[1] <= 1e-3


class Unreachable(Circle):
    """No point has a hard value below 0.1; the centre is the least violated."""

    offsets = torch.zeros(0, dtype=torch.long)

    def __init__(self):
        super().__init__(offset=0.6)


def test_where_nothing_is_feasible_the_least_violated_point_is_kept():
    solution = solve(Unreachable())
    assert solution.iterate.hard[1] == pytest.approx(0.1, abs=5e-3)
    assert solution.iterate.residual == torch.inf  # nothing is certified
    assert solution.iterate.x.norm() < 0.1
    least = min(float(iterate.hard[1]) for iterate in solution.history)
    assert float(solution.iterate.hard[1]) == least


@pytest.mark.filterwarnings("ignore::fairconstrained.exceptions.MissingSensitiveFeaturesWarning")
@pytest.mark.parametrize("grouped", [True, False])
def test_where_nothing_binds_it_is_the_other_solver(grouped):
    """A slack that asks for nothing, and no constraint at all."""
    data = make_biased_classification(300, random_state=0)
    groups = data.sensitive_features if grouped else None
    fits = [
        PartialParityClassifier(slack=5.0, solver=solver).fit(
            data.data, data.target, sensitive_features=groups
        )
        for solver in (SequentialQuadratic(), AugmentedLagrangian())
    ]
    assert fits[0].coef_ == pytest.approx(fits[1].coef_, abs=1e-6)
    assert fits[0].converged_


@pytest.mark.slow
def test_nearly_feasible_points_of_few_rows_are_repaired():
    """Weights make gaps jump; equal scores would keep the slack too, at an error of one half."""
    data = make_biased_classification(500, random_state=5)
    weight = np.random.default_rng(5).integers(1, 4, size=500).astype(float)
    clf = PartialParityClassifier(random_state=0)
    groups = data.sensitive_features
    clf.fit(data.data, data.target, sensitive_features=groups, sample_weight=weight)
    wrong = clf.predict(data.data) != data.target
    assert clf.feasible_
    assert np.average(wrong, weights=weight) < 0.3


@pytest.mark.slow
def test_a_second_sharpness_leaves_a_poor_local_optimum():
    """Of six groups, steps from the first sharpness alone end at a training error of .36."""
    data = make_biased_classification(6000, n_groups=6, random_state=2)
    clf = PartialParityClassifier(random_state=0)
    clf.fit(data.data, data.target, sensitive_features=data.sensitive_features)
    assert clf.feasible_
    assert np.mean(clf.predict(data.data) != data.target) < 0.29
