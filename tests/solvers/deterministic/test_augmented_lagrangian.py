"""When the augmented Lagrangian gives targets up: they cost more than equal scores."""

from dataclasses import replace

import pytest
import torch

from fairconstrained import RateConstrainedClassifier
from fairconstrained.datasets import make_biased_classification
from fairconstrained.solvers import AugmentedLagrangian, Iterate
from fairconstrained.solvers.augmented_lagrangian import (
    _lower_bound,
    _of_equal_scores,
)
from fairconstrained.solvers.repair import Seen
from tests.helpers.quadratic import QuadraticProblem, solve_quadratic


@pytest.mark.parametrize("seed", range(5))
def test_the_dual_function_is_below_the_objective_of_every_feasible_point(seed):
    """Weak duality at the minimiser of the Lagrangian, and equality at the solution."""
    problem = QuadraticProblem.random(seed)
    solution, dual = solve_quadratic(problem, shift=0.05)
    optimum = float(problem.objective(solution).value)
    for factor in (0.0, 0.5, 1.0, 3.0):
        weights = factor * dual
        x = -torch.linalg.solve(problem.P, problem.q + problem.A.T @ weights)
        soft, hard = problem.evaluate(x)
        bound = _lower_bound(Iterate(x, soft, hard, weights, 0.0), torch.full_like(dual, 0.05))
        assert bound <= optimum + 1e-9
        if factor == 1.0:
            assert bound == pytest.approx(optimum, abs=1e-7)


def test_equal_scores_are_a_reference_only_if_they_meet_the_constraints():
    problem = QuadraticProblem.random(0)
    x = torch.ones_like(problem.q)
    assert _of_equal_scores(problem, x) == torch.inf  # few rows
    problem = replace(problem, n_rows=1001)
    assert _of_equal_scores(problem, x) == 0.0
    assert _of_equal_scores(replace(problem, b=problem.b - 10.0), x) == torch.inf


def test_targets_that_no_point_meets_end_the_rounds():
    """With shifts of 2 the constraints are a'x <= -1 and -a'x <= -1; without them x = 0 is met."""
    problem = replace(QuadraticProblem.random(0, n_constraints=2), n_rows=1001)
    problem.A[1], problem.b[:] = -problem.A[0], 1.0
    x, dual = problem.start()
    shift = torch.full_like(dual, 2.0)
    rounds = list(AugmentedLagrangian()._rounds(problem, x, dual, shift, 1e-4))
    assert len(rounds) < 5
    assert _lower_bound(rounds[-1], shift) > 0.0


def test_many_small_groups_do_not_take_many_rounds():
    """Rates of 40 rows differ by .3 by chance, and slack .01 leaves equal predictions only."""
    data = make_biased_classification(2000, n_groups=50, random_state=0)
    clf = RateConstrainedClassifier(slack=0.01, min_group_size=1)
    groups = [f"group {g}" for g in data.sensitive_features]
    clf.fit(data.data, data.target, sensitive_features=groups)
    assert clf.feasible_
    assert clf.n_iter_ < 25  # 46 without the rule


@pytest.mark.slow
def test_small_cells_do_not_end_near_a_constant():
    """Cells of 54 to 96 rows: one row moves a rate by .01 to .02, and gradients see few rows.

    Constants have an error of .5. With soft rates at up to four times the first temperature no
    point was feasible, and a threshold had an error of .495.
    """
    data = make_biased_classification(1200, 10, n_groups=8, random_state=0)
    clf = RateConstrainedClassifier("equalized_odds", slack=0.02, min_group_size=1)
    clf.fit(data.data, data.target, sensitive_features=data.sensitive_features)
    assert clf.feasible_
    assert 1.0 - clf.score(data.data, data.target) < 0.4


def round_of(hard, soft=(0.0, 0.0), dual=(1.0, 0.0), error=0.3):
    x, dual = torch.zeros(1), torch.tensor(dual, dtype=torch.float64)
    soft, hard = (torch.tensor([error, *values], dtype=torch.float64) for values in (soft, hard))
    return Iterate(x, soft, hard, dual, 0.0)


def test_repairs_remember_the_nearest_iterates():
    seen = Seen()
    for error, excess in enumerate([0.04, 0.01, 0.03, 0.02, 0.05]):
        seen.add(round_of(hard=(excess, -1.0), error=0.1 * error))
    assert [float(i.hard[1]) for i in seen.nearest] == [0.01, 0.02, 0.03]
    assert float(seen.best.hard[1]) == 0.01
