"""Rows held out of the training of a module: which they are, and what is measured on them."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from fairconstrained.constraints import DemographicParity, EqualizedOdds
from fairconstrained.distributed import Workers
from fairconstrained.models import NetworkModel
from fairconstrained.solvers import EarlyStoppedSGDA
from fairconstrained.training import train
from fairconstrained.training.data import as_source
from fairconstrained.training.problem import (
    FunctionConstraint,
    ModuleProblem,
    NotionConstraint,
    risk,
)
from tests.helpers.modules import log_loss

N = 120
RNG = np.random.default_rng(0)
GROUP = torch.tensor(RNG.permutation(np.repeat([0, 1], [80, 40])))
Y = torch.tensor(RNG.integers(2, size=N))
X = torch.tensor(RNG.normal(size=(N, 3)) + Y.numpy()[:, None])
ALL = torch.arange(N)


def gap(outputs, batch):
    p = torch.sigmoid(outputs[:, 0])
    return p[batch[2] == 1].mean() - p[batch[2] == 0].mean() - 0.1


def problem(constraint, rows=ALL):
    """The problem of some rows, without any others."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.3), nn.Linear(4, 1))
    data = (X[rows], Y[rows], GROUP[rows])
    term = (
        FunctionConstraint(constraint)
        if callable(constraint)
        else NotionConstraint([constraint], Y[rows], GROUP[rows], 0.1)
    )
    return ModuleProblem(
        NetworkModel(network.double()),
        as_source(data, torch.float64),
        risk(log_loss),
        [term],
        GROUP[rows],
        torch.device("cpu"),
        0.1,
        Workers.initialised(),
    )


def generator():
    return torch.Generator().manual_seed(0)


def test_one_row_in_so_many_of_each_group_is_held_out_and_of_each_label_of_a_notion():
    _, held = problem(gap).divided(5, generator())
    assert torch.bincount(GROUP[held]).tolist() == [16, 8]
    _, held = problem(EqualizedOdds()).divided(5, generator())
    for label in (0, 1):
        for group in (0, 1):
            cell = (label == Y) & (group == GROUP)
            assert int(cell[held].sum()) == int(cell.sum()) // 5


@pytest.mark.parametrize("constraint", [gap, DemographicParity(), EqualizedOdds()])
def test_what_is_left_is_the_problem_of_these_rows_alone(constraint):
    part, held = problem(constraint).divided(5, generator())
    rest = torch.tensor(np.setdiff1d(ALL, held))
    alone = problem(constraint, rest)
    x = alone.start() + 0.2
    assert part.n_rows == alone.n_rows == len(rest)
    assert torch.equal(part.strata, alone.strata)
    for a, b in zip(part.evaluate(x), alone.evaluate(x), strict=True):
        torch.testing.assert_close(a, b)
    draws = torch.arange(30), (torch.arange(40, 80), torch.full((40,), 2.4))
    for own in (part, alone):
        own.model.network[2].p = 0.0  # without dropout both see the same
    a, b = (own.estimates(x, *draws) for own in (part, alone))
    torch.testing.assert_close(a.value, b.value)
    weights = torch.ones_like(a.value)
    torch.testing.assert_close(a.pullback(weights), b.pullback(weights))


def test_the_risk_of_rows_is_their_loss_in_prediction():
    whole, rows = problem(gap), torch.tensor([3, 50, 7, 119])
    x = whole.start() + 0.2
    whole.update_batch_norm(x)
    module = whole.model.attributes(x)["module_"]
    expected = log_loss(module(X[rows]), (X[rows], Y[rows]))
    torch.testing.assert_close(whole.risks(x, rows), expected.detach().expand(2))


def test_with_too_few_rows_all_of_them_train_and_judge():
    whole = problem(gap, torch.arange(6))
    part, held = whole.divided(7, generator())
    assert part is whole
    assert held.tolist() == list(range(6))


def first_iterates(data, **params):
    """Of a network whose training a callback ends."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
    seen = []
    callback = lambda iterate: seen.append(iterate) or len(seen) == 3  # noqa: E731
    result = train(network, log_loss, gap, data, callbacks=[callback], random_state=0, **params)
    return seen, result


def test_the_recipe_of_networks_is_the_default_of_train():
    data = TensorDataset(X.float(), Y, GROUP)
    default, given = (
        first_iterates(data, groups=GROUP, **params)[0]
        for params in ({}, {"solver": EarlyStoppedSGDA()})
    )
    for a, b in zip(default, given, strict=True):
        assert torch.equal(a.x, b.x)
        assert torch.equal(a.soft, b.soft)


def test_loaders_hold_no_row_out():
    tensors = TensorDataset(X.float(), Y, GROUP)
    seen, result = first_iterates(DataLoader(tensors, batch_size=40))
    chosen = EarlyStoppedSGDA().select(seen)
    expected = float(log_loss(result.module(X.float()), (X, Y)).detach())
    assert float(chosen.soft[0]) == pytest.approx(expected, rel=1e-5)
