"""Interrupted training ends as uninterrupted training does; data larger than memory."""

import errno
import io
import pickle
import resource
import weakref
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset

from fairconstrained.constraints import LossParity
from fairconstrained.solvers import (
    ALM,
    SSLALM,
    AugmentedLagrangian,
    EarlyStoppedSGDA,
    StochasticGhost,
    SwitchingSubgradient,
    cosine,
)
from fairconstrained.training import train
from tests.helpers.modules import log_loss, weights

RNG = torch.Generator().manual_seed(0)
GROUP = torch.randint(2, (200,), generator=RNG)
X = torch.randn(200, 3, generator=RNG)
Y = (X[:, 0] + 0.5 * GROUP + 0.5 * torch.randn(200, generator=RNG) > 0).long()
SOLVERS = [
    ALM(n_steps=90, batch_size=16, optimizer=torch.optim.Adam, schedule=cosine),
    SSLALM(n_steps=90, batch_size=16),
    EarlyStoppedSGDA(n_steps=90, batch_size=16, n_evaluations=29),
    SwitchingSubgradient(n_steps=90, batch_size=16, record_from=0.2),
    StochasticGhost(n_steps=60, batch_size=2, max_level=2),
]


def trained(solver, *, data=(X, Y, GROUP), loss=log_loss, constraint=None, **params):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Dropout(0.2), nn.Linear(4, 1))
    constraint = LossParity(0.02) if constraint is None else constraint
    params = {"groups": GROUP, "solver": solver, "random_state": 0, **params}
    return train(network, loss, constraint, data, **params)


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
@pytest.mark.slow
def test_a_resumed_run_ends_as_one_without_interruption(solver, tmp_path):
    """Weights, multipliers and history to the last bit, after two interruptions."""
    path = tmp_path / "state.pt"
    for n in (7, 18):
        with pytest.raises(Interruption):
            trained(solver, checkpoint=path, callbacks=[interrupts_at(n)])
    resumed, whole = trained(solver, checkpoint=path), trained(solver)
    assert torch.equal(weights(resumed), weights(whole))
    np.testing.assert_array_equal(resumed.multipliers, whole.multipliers)
    for name in ("objective", "values", "multipliers"):
        np.testing.assert_array_equal(resumed.history[name], whole.history[name])


@contextmanager
def full_disk(n_bytes=1000):
    """No file can grow beyond this, as on a disk without room."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_leaves_the_last_checkpoint_and_nothing_else(tmp_path):
    path, solver = tmp_path / "state.pt", SOLVERS[0]
    with pytest.raises(Interruption):
        trained(solver, checkpoint=path, callbacks=[interrupts_at(5)])
    before = path.read_bytes()
    with full_disk(), pytest.raises(OSError, match=r"could not be written.*state\.pt") as raised:
        trained(solver, checkpoint=path)
    assert raised.value.errno == errno.EFBIG
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
    assert len(trained(solver, checkpoint=path).history["time"]) == 30


def no_work(outputs, batch):
    raise AssertionError("work has begun")


def refused(message, path, solver=SOLVERS[1]):
    with pytest.raises(ValueError, match=message):
        trained(solver, checkpoint=path, loss=no_work)


def test_checkpoints_that_cannot_be_are_refused_before_any_work(tmp_path):
    path = tmp_path / "state.pt"
    refused("checkpoint needs a stochastic solver; got Aug", path, AugmentedLagrangian())
    refused("must be the path of a file; .* lies in no folder", tmp_path / "none" / "state.pt")
    refused("must be the path of a file; .* is a folder", tmp_path)
    trained(SOLVERS[1], checkpoint=path)
    stored = path.read_bytes()
    refused(r"is of another run, with the solver SSLALM\(.*\), not ALM", path, SOLVERS[0])
    with pytest.raises(ValueError, match=r"is of another run: of \(21, 2\) parameters"):
        trained(SOLVERS[1], checkpoint=path, constraint=[])
    assert path.read_bytes() == stored


def test_damaged_and_foreign_files_are_named_and_kept(tmp_path):
    path = tmp_path / "state.pt"
    whole, functions = io.BytesIO(), io.BytesIO()
    torch.save({"run": ("ALM()", 3, 2), "past": []}, whole)
    torch.save({"solver": np.linalg.norm}, functions)
    foreign = whole.getvalue(), functions.getvalue(), pickle.dumps({"a": 1})
    for content in (b"", whole.getvalue()[:-50], *foreign):
        path.write_bytes(content)
        refused("cannot be read: it is damaged, or no checkpoint of train .* move it away", path)
        assert path.read_bytes() == content


# --- data larger than memory ---------------------------------------------------------------------


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
