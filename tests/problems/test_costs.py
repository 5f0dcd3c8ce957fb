"""Costs of predictions are the Lagrangian, row by row; multipliers solve its dual problem."""

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

from fairconstrained.constraints import (
    DemographicParity,
    EqualizedOdds,
    FalseNegativeRate,
    Space,
    stacked,
)
from fairconstrained.losses import log_loss
from fairconstrained.models import LinearModel
from fairconstrained.models.features import DenseFeatures
from fairconstrained.models.single_fit import posteriors_of_parts
from fairconstrained.problems import FairERM, Rows
from fairconstrained.problems.costs import costs_of_rows, multipliers
from fairconstrained.problems.objectives import MeanLoss
from tests.helpers.notions import random_rows

LIST = [EqualizedOdds(0.1, reference="rest"), FalseNegativeRate(max=0.3), DemographicParity(0.2)]


def problem_of(notions, rows, scores):
    """The problem whose rows have these scores, (n, K)."""
    n_classes = max(2, scores.shape[1])
    space = Space(list(range(n_classes)), list(range(int(rows.group.max()) + 1)))
    ones = torch.ones(scores.shape[1]).double()
    model = LinearModel(len(ones), torch.zeros_like(ones), ones, fit_intercept=False)
    data = Rows((DenseFeatures(scores),), rows.y, rows.group, rows.weight)
    bound = stacked(space, [notion.bind(space) for notion in notions])
    return FairERM(model, data, MeanLoss(log_loss), bound, 0.0)


@pytest.mark.parametrize("notions", [LIST[:1], LIST, [DemographicParity(ratio=0.8)]])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_costs_of_all_rows_are_the_lagrangian(notions, n_classes):
    """Error plus multipliers times constraints, for any labels, up to what no label changes."""
    rows = random_rows(0, n_classes, 3, n=80)
    torch.manual_seed(0)
    n_outputs = 1 if n_classes == 2 else n_classes
    scores = torch.randn(80, n_outputs).double()
    problem = problem_of(notions, rows, scores)
    dual = torch.rand(problem.n_constraints).double()
    costs = costs_of_rows(problem, dual)
    hard = problem.evaluate(torch.eye(n_outputs).double().reshape(-1)).hard
    label = scores.argmax(dim=1) if n_classes > 2 else (scores[:, 0] > 0).long()
    lagrangian = hard[0] + dual @ (hard[1:] - problem.affine.offset)
    assert float(costs[torch.arange(80), label].sum()) == pytest.approx(float(lagrangian))


def test_multipliers_solve_the_dual_of_the_linear_program():
    """Strong duality: the least cost is the least error of random labels under the constraint."""
    rng = np.random.default_rng(0)
    n, slack = 300, 0.03
    x = rng.normal(size=n)
    group = (rng.random(n) < 1 / (1 + np.exp(-2 * x))).astype(int)
    p, of_one = 1 / (1 + np.exp(-3 * x)), 1 / (1 + np.exp(-2 * x))
    y = (rng.random(n) < p).astype(int)
    rows = Rows((), torch.as_tensor(y), torch.as_tensor(group), torch.ones(n).double())
    problem = problem_of([DemographicParity(slack)], rows, torch.as_tensor(x)[:, None])
    cells = problem.constraint.part_of_cell.numpy()
    of_parts = np.column_stack((1 - of_one, of_one))[:, np.argsort(cells[0])]
    posteriors = np.column_stack((1 - p, p, of_parts))
    table = map(torch.as_tensor, posteriors_of_parts(posteriors, cells))
    dual = multipliers(problem, *table, torch.zeros(2).double())
    shares = np.bincount(group) / n
    gap = ((1 - of_one) / shares[0] - of_one / shares[1]) / n
    program = linprog((1 - 2 * p) / n, np.stack((gap, -gap)), [slack, slack], bounds=(0, 1))
    exact = -program.ineqlin.marginals
    assert exact.max() > 0.1
    assert float(dual[0] - dual[1]) == pytest.approx(exact[0] - exact[1], abs=0.03)


@pytest.mark.parametrize(
    "cells", [[[0, 1], [0, 1]], [[0, 1], [2, 3]], [[-1, -1], [1, 0]], [[0, 0], [1, 2]]]
)
def test_posteriors_of_parts_are_products(cells):
    """P(part | x) is the sum of the posteriors of the cells that form it."""
    rng = np.random.default_rng(0)
    label, group = rng.dirichlet([1, 1], size=5), rng.dirichlet([1, 1], size=(2, 5))
    cells = np.array(cells)
    if (cells[0] == cells[1]).all():
        group[1] = group[0]
    tasks = dict.fromkeys(tuple(row) for row in cells.tolist() if len(set(row)) > 1)
    given = [group[cells.tolist().index(list(row))][:, np.argsort(row)] for row in sorted(tasks)]
    found_label, parts = posteriors_of_parts(np.hstack([label, *given]), cells)
    expected = np.zeros((5, cells.max() + 1))
    for k, g in np.ndindex(2, 2):
        if cells[k, g] >= 0:
            expected[:, cells[k, g]] += label[:, k] * group[k][:, g]
    np.testing.assert_allclose(found_label, label)
    np.testing.assert_allclose(parts, expected)
