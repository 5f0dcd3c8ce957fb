"""Training on data sets that do not fit into memory."""

import weakref

import torch
from torch import nn
from torch.utils.data import Dataset

from fairconstrained.constraints import LossParity
from fairconstrained.solvers import ALM
from fairconstrained.training import train
from tests.helpers.modules import log_loss

RNG = torch.Generator().manual_seed(0)
GROUP = torch.randint(2, (200,), generator=RNG)
X = torch.randn(200, 3, generator=RNG)
Y = (X[:, 0] + 0.5 * GROUP + 0.5 * torch.randn(200, generator=RNG) > 0).long()


class OnDisk(Dataset):
    """Makes its items when asked, and counts those that are alive at once."""

    def __init__(self, n_rows):
        self.n_rows = n_rows
        self.largest = self.alive = 0

    def __len__(self):
        return self.n_rows

    def __getitem__(self, i):
        row = X[i % 200].clone()
        weakref.finalize(row, self.gone)
        self.alive += 1
        self.largest = max(self.largest, self.alive)
        return row, Y[i % 200], GROUP[i % 200]

    def gone(self):
        self.alive -= 1


def test_memory_is_bounded_by_the_batch_and_not_by_the_data():
    """No more rows pass the module, or have left the data set, at a time than a chunk: 1024."""
    passed, n_rows = [], 2000
    data = OnDisk(n_rows)

    class Watching(nn.Linear):
        def forward(self, X):
            passed.append(len(X))
            return super().forward(X)

    solver = ALM(n_steps=4, batch_size=64)
    train(Watching(3, 1), log_loss, LossParity(0.1), data, groups=GROUP.repeat(10), solver=solver)
    assert max(passed) <= 1024
    assert 500 < data.largest <= 1024
    assert data.alive == 0
    assert sum(passed) > 4 * n_rows
