"""Joint training: two processes give what one gives, and a lost one is named."""

import os
import sys
from multiprocessing import get_context
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

from fairconstrained.constraints import DemographicParity, LossParity
from fairconstrained.exceptions import WorkerError
from fairconstrained.solvers import ALM, SGD, StochasticGhost, SwitchingSubgradient
from fairconstrained.training import train
from fairconstrained.training.workers import Workers


def made(n=301):
    rng = torch.Generator().manual_seed(0)
    group = torch.randint(2, (n,), generator=rng)
    X = torch.randn(n, 3, generator=rng, dtype=torch.float64)
    y = (X[:, 0] + 0.5 * group + 0.5 * torch.randn(n, generator=rng) > 0).long()
    return X, y, group


class Lazy(Dataset):
    def __len__(self):
        return len(made()[0])

    def __getitem__(self, i):
        return tuple(column[i] for column in made())


def log_loss(outputs, batch):
    return F.binary_cross_entropy_with_logits(outputs[:, 0], batch[1].to(outputs))


def gap_of_losses(outputs, batch):
    losses = F.binary_cross_entropy_with_logits(
        outputs[:, 0], batch[1].to(outputs), reduction="none"
    )
    gap = losses[batch[2] == 1].mean() - losses[batch[2] == 0].mean()
    return torch.stack((gap - 0.05, -gap - 0.05))


def network():
    torch.manual_seed(int(os.environ.get("RANK", "0")))  # workers start from the first one's
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()


CASES = {
    "function": (gap_of_losses, ALM(n_steps=30, batch_size=24)),
    "notions": (
        [LossParity(0.02, within="labels"), DemographicParity(0.05)],
        ALM(n_steps=30, batch_size=24),
    ),
    "switching": (LossParity(0.02), SwitchingSubgradient(n_steps=30, batch_size=24)),
    "ghost": (
        LossParity(0.02),
        StochasticGhost(n_steps=3, batch_size=4, max_level=2, step_size=0.01),
    ),
    "odd batches": ([], SGD(n_steps=30, batch_size=25)),
}


def trained(case):
    constraints, solver = CASES[case]
    data = made()
    result = train(
        network(), log_loss, constraints, data, groups=data[2], solver=solver, random_state=0
    )
    weights = torch.cat([p.detach().reshape(-1) for p in result.module.parameters()])
    return weights, torch.as_tensor(result.values), torch.as_tensor(result.multipliers)


def all_cases():
    found = {case: trained(case) for case in CASES}
    constraints, solver = CASES["notions"]
    lazy = train(
        network(), log_loss, constraints, Lazy(), groups=made()[2], solver=solver, random_state=0
    )
    found["data set"] = (torch.as_tensor(lazy.values),)
    return found


def streamed():
    rank = int(os.environ["RANK"])
    data = made(300)
    rows = [tuple(column[i] for column in data) for i in range(rank, 300, 2)]
    loader = DataLoader(rows, batch_size=50)
    solver = SGD(n_steps=30, step_size=0.3, optimizer=torch.optim.Adam)
    return train(network(), log_loss, [], loader, solver=solver, random_state=0).history


def stops_early(path):
    def stop(iterate):
        if os.environ["RANK"] == "1":
            os._exit(3)

    data = made()
    callbacks = [stop]
    solver = ALM(n_steps=300, batch_size=24)
    train(network(), log_loss, [], data, solver=solver, callbacks=callbacks, random_state=0)


def worker(rank, function, args, path):
    os.environ["RANK"] = str(rank)
    torch.set_num_threads(1)
    store = dist.FileStore(str(path / "store"), 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    try:
        result = function(*args)
    except WorkerError as error:
        result = str(error)
    torch.save(result, path / f"{rank}.pt")
    os._exit(0)  # without the handshake of a tidy end: the other may be gone


def together(function, *args, path, codes=(0, 0)):
    """The results of two processes."""
    context = get_context("spawn")
    processes = [
        context.Process(target=worker, args=(rank, function, args, path)) for rank in (0, 1)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert tuple(process.exitcode for process in processes) == codes
    files = [path / f"{rank}.pt" for rank in (0, 1)]
    return [torch.load(file, weights_only=False) for file in files if file.exists()]


@pytest.fixture(autouse=True)
def _importable(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), *sys.path]))


needs_gloo = pytest.mark.skipif(
    not (dist.is_available() and dist.is_gloo_available()), reason="torch without gloo"
)


@needs_gloo
def test_two_workers_give_what_one_gives(tmp_path):
    """Weights, constraint values and multipliers, for every kind of constraint and solver."""
    first, second = together(all_cases, path=tmp_path)
    for case in CASES:
        for one, a, b in zip(trained(case), first[case], second[case], strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=0)
            torch.testing.assert_close(a, one, rtol=0, atol=1e-9)
    torch.testing.assert_close(first["data set"][0], first["notions"][1], rtol=0, atol=1e-9)


@needs_gloo
def test_each_worker_reads_its_own_loader(tmp_path):
    first, second = together(streamed, path=tmp_path)
    assert (first["objective"] == second["objective"]).all()
    assert first["objective"][-1] < first["objective"][0]


@needs_gloo
def test_a_worker_that_dies_stops_the_others_with_its_name(tmp_path):
    (message,) = together(stops_early, str(tmp_path), path=tmp_path, codes=(0, 3))
    assert "worker 0 of 2 cannot go on: worker 1 gave no sign of life" in message


def test_alone_nothing_is_shared():
    workers = Workers()
    assert (workers.rank, workers.size) == (0, 1)
    tensor = torch.ones(2, requires_grad=True)
    assert workers.sum(tensor) is tensor
    assert workers.sum_with_gradient(tensor) is tensor
    assert workers.part(7, 2) == slice(0, 6)


@pytest.mark.parametrize("size", [2, 3])
def test_parts_of_a_draw_are_whole_groups_and_are_all_of_it(size):
    workers, rows = Workers(), []
    workers.size = size
    for rank in range(size):
        workers.rank = rank
        own = range(20)[workers.part(20, unit=4)]
        assert len(own) % 4 == 0
        rows += own
    assert rows == list(range(20))
    with pytest.raises(ValueError, match=r"batch of 4 rows, in units of 4 .* larger batch_size"):
        workers.part(4, unit=4)
