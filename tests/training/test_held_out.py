"""Rows held out of the training of a module: which they are, and what is measured on them."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from fairconstrained.constraints import EqualizedOdds
from fairconstrained.solvers import EarlyStoppedSGDA
from fairconstrained.training import train
from tests.helpers.modules import log_loss

N = 120
RNG = np.random.default_rng(0)
GROUP = torch.tensor(RNG.permutation(np.repeat([0, 1], [80, 40])))
Y = torch.tensor(RNG.integers(2, size=N))
X = torch.tensor(RNG.normal(size=(N, 3)) + Y.numpy()[:, None]).float()


def gap(outputs, batch):
    p = torch.sigmoid(outputs[:, 0])
    return p[batch[2] == 1].mean() - p[batch[2] == 0].mean() - 0.1


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))


@pytest.mark.parametrize(("constraint", "of_labels"), [(gap, False), (EqualizedOdds(), True)])
def test_one_row_in_so_many_of_each_group_is_held_out_and_of_each_label_of_a_notion(
    constraint, of_labels
):
    trained = set()

    def loss(outputs, batch):
        if torch.is_grad_enabled():
            trained.update(batch[3].tolist())
        return log_loss(outputs, batch)

    solver = EarlyStoppedSGDA(n_steps=100, n_evaluations=2, batch_size=40, held_out=5)
    data = (X, Y, GROUP, torch.arange(N))
    train(network(), loss, constraint, data, groups=GROUP, solver=solver, random_state=0)
    held = np.setdiff1d(np.arange(N), list(trained))
    cell = 2 * GROUP + Y if of_labels else GROUP
    assert torch.bincount(cell[held]).tolist() == (torch.bincount(cell) // 5).tolist()


def test_loaders_hold_no_row_out():
    seen = []
    callback = lambda iterate: seen.append(iterate) or len(seen) == 3  # noqa: E731
    loader = DataLoader(TensorDataset(X, Y, GROUP), batch_size=40)
    result = train(network(), log_loss, gap, loader, callbacks=[callback], random_state=0)
    chosen = EarlyStoppedSGDA().select(seen)
    expected = float(log_loss(result.module(X), (X, Y)).detach())
    assert float(chosen.soft[0]) == pytest.approx(expected, rel=1e-5)
