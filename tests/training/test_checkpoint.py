"""Interrupted training ends as uninterrupted training does; data larger than memory."""

import weakref

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import Dataset

from fairconstrained.constraints import LossParity
from fairconstrained.solvers import (
    ALM,
    SGDA,
    SSLALM,
    StochasticGhost,
    SwitchingSubgradient,
    cosine,
)
from fairconstrained.training import train

RNG = torch.Generator().manual_seed(0)
GROUP = torch.randint(2, (200,), generator=RNG)
X = torch.randn(200, 3, generator=RNG)
Y = (X[:, 0] + 0.5 * GROUP + 0.5 * torch.randn(200, generator=RNG) > 0).long()
SOLVERS = [
    ALM(n_steps=90, batch_size=16, optimizer=torch.optim.Adam, schedule=cosine),
    SSLALM(n_steps=90, batch_size=16),
    pytest.param(
        SwitchingSubgradient(n_steps=90, batch_size=16, record_from=0.2), marks=pytest.mark.slow
    ),
    pytest.param(StochasticGhost(n_steps=60, batch_size=2, max_level=2), marks=pytest.mark.slow),
]


def log_loss(outputs, batch):
    return F.binary_cross_entropy_with_logits(outputs[:, 0], batch[1].to(outputs))


def trained(solver, *, data=(X, Y, GROUP), **params):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Dropout(0.2), nn.Linear(4, 1))
    constraint = LossParity(0.02)
    params = {"groups": GROUP, "solver": solver, "random_state": 0, **params}
    return train(network, log_loss, constraint, data, **params)


class Interruption(Exception):
    pass


def interrupts_at(n):
    seen = []

    def callback(iterate):
        seen.append(iterate)
        if len(seen) == n:
            raise Interruption

    return callback


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda solver: type(solver).__name__)
def test_a_resumed_run_ends_as_one_without_interruption(solver, tmp_path):
    """Weights, multipliers and history to the last bit, after two interruptions."""
    path = tmp_path / "state.pt"
    for n in (7, 18):
        with pytest.raises(Interruption):
            trained(solver, checkpoint=path, callbacks=[interrupts_at(n)])
    resumed, whole = trained(solver, checkpoint=path), trained(solver)
    again = trained(solver, checkpoint=path)  # nothing is left to do
    for result in (resumed, again):
        for a, b in zip(result.module.parameters(), whole.module.parameters(), strict=True):
            assert torch.equal(a, b)
        np.testing.assert_array_equal(result.multipliers, whole.multipliers)
        for name in ("objective", "values", "multipliers"):
            np.testing.assert_array_equal(result.history[name], whole.history[name])


@pytest.mark.slow
def test_an_interrupted_write_leaves_the_last_checkpoint(tmp_path, monkeypatch):
    path, solver = tmp_path / "state.pt", SOLVERS[0]
    with pytest.raises(Interruption):
        trained(solver, checkpoint=path, callbacks=[interrupts_at(5)])
    before = path.read_bytes()

    def full(stored, target):
        target.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", full)
        with pytest.raises(OSError, match="No space left"):
            trained(solver, checkpoint=path)
    assert path.read_bytes() == before
    assert len(trained(solver, checkpoint=path).history["time"]) == 30


def test_checkpoints_that_cannot_be(tmp_path):
    path = tmp_path / "state.pt"
    with pytest.raises(ValueError, match="checkpoint needs a stochastic solver; got SGDA"):
        trained(SGDA(n_steps=30), checkpoint=path)
    trained(SOLVERS[1], checkpoint=path)
    with pytest.raises(ValueError, match="is of another run"):
        trained(SOLVERS[0], checkpoint=path)


# --- data larger than memory ---------------------------------------------------------------------


@pytest.mark.slow
def test_arrays_on_disk_are_as_good_as_those_in_memory(tmp_path):
    columns = []
    for name, column in (("X", X), ("Y", Y), ("G", GROUP)):
        np.save(tmp_path / f"{name}.npy", column.numpy())
        mapped = np.load(tmp_path / f"{name}.npy", mmap_mode="r+")
        assert isinstance(mapped, np.memmap)
        columns.append(torch.from_numpy(mapped))
    mapped, given = trained(SOLVERS[0], data=tuple(columns)), trained(SOLVERS[0])
    for a, b in zip(mapped.module.parameters(), given.module.parameters(), strict=True):
        assert torch.equal(a, b)


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


@pytest.mark.parametrize("n_rows", [1500, 2000])
def test_memory_is_bounded_by_the_batch_and_not_by_the_data(n_rows):
    """No more rows pass the module, or have left the data set, at a time than a chunk: 1024."""
    passed, data = [], OnDisk(n_rows)

    class Watching(nn.Linear):
        def forward(self, X):
            passed.append(len(X))
            return super().forward(X)

    solver = ALM(n_steps=4, batch_size=64)
    groups = GROUP.repeat(-(-n_rows // len(GROUP)))[:n_rows]
    train(Watching(3, 1), log_loss, LossParity(0.1), data, groups=groups, solver=solver)
    assert max(passed) <= 1024
    assert 500 < data.largest <= 1024
    assert data.alive == 0
    assert sum(passed) > 4 * n_rows
