"""Joint training: two processes give what one gives, and a lost one is named."""

import os
import subprocess
import sys
from datetime import timedelta
from functools import cache

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from fairconstrained import distributed
from fairconstrained.constraints import DemographicParity, LossParity
from fairconstrained.exceptions import WorkerError
from fairconstrained.solvers import ALM, StochasticGhost, SwitchingSubgradient
from fairconstrained.training import train
from tests.helpers.modules import gap_at_most, log_loss, weights
from tests.helpers.processes import needs_gloo, run_on_workers
from tests.helpers.repository import ROOT


@cache
def made(n=301):
    rng = torch.Generator().manual_seed(0)
    group = torch.randint(2, (n,), generator=rng)
    X = torch.randn(n, 3, generator=rng, dtype=torch.float64)
    y = (X[:, 0] + 0.5 * group + 0.5 * torch.randn(n, generator=rng) > 0).long()
    return X, y, group


def network(rank=0):
    torch.manual_seed(rank)  # workers start from the first one's
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()


CASES = {
    "function": (gap_at_most(0.05), SwitchingSubgradient(n_steps=30, batch_size=24)),
    "notions": (
        [LossParity(0.02, within="labels"), DemographicParity(0.05)],
        ALM(n_steps=30, batch_size=24),
    ),
    "ghost": (
        LossParity(0.02),
        StochasticGhost(n_steps=3, batch_size=4, max_level=2, step_size=0.01),
    ),
    "odd batches": ([], ALM(n_steps=30, batch_size=25)),
}


def run(case, data=None, rank=0, **options):
    """Train as in this case."""
    constraints, solver = CASES[case]
    data, options = made() if data is None else data, {"groups": made()[2], **options}
    return train(
        network(rank), log_loss, constraints, data, solver=solver, random_state=0, **options
    )


def trained(case, rank=0):
    result = run(case, rank=rank)
    return weights(result), torch.as_tensor(result.values), torch.as_tensor(result.multipliers)


def streamed(rank):
    data = made()
    rows = [tuple(column[i] for column in data) for i in range(rank, 300, 2)]
    loader = DataLoader(rows, batch_size=50)
    solver = ALM(n_steps=30, step_size=0.3, optimizer=torch.optim.Adam)
    return train(network(rank), log_loss, [], loader, solver=solver, random_state=0).history


def work(rank):
    """Results of all cases, and of rows of the workers' own."""
    return {case: trained(case, rank) for case in CASES}, streamed(rank)


def lost(rank):
    """The message that the first worker gets as the second one dies in its training."""
    distributed._PATIENCE = timedelta(seconds=1)

    def dies(iterate):
        if rank == 1:
            os._exit(3)

    with pytest.raises(WorkerError) as caught:
        train(network(), log_loss, [], made(), solver=ALM(n_steps=300), callbacks=[dies])
    return str(caught.value)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Results of both of two workers."""
    return run_on_workers(work, tmp_path_factory.mktemp("workers"), 2)


@pytest.mark.slow
@needs_gloo
@pytest.mark.parametrize("case", CASES)
def test_two_workers_give_what_one_gives(found, case):
    """Weights, constraint values and multipliers, to the last bit on both."""
    (first, _), (second, _) = found
    for one, a, b in zip(trained(case), first[case], second[case], strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)
        torch.testing.assert_close(a, one, rtol=0, atol=1e-9)


@pytest.mark.slow
@needs_gloo
def test_each_worker_reads_its_own_loader(found):
    (_, first), (_, second) = found
    assert (first["objective"] == second["objective"]).all()
    assert first["objective"][-1] < first["objective"][0]


@pytest.mark.slow
@needs_gloo
def test_a_worker_that_dies_stops_the_others_with_its_name(tmp_path):
    message, _ = run_on_workers(lost, tmp_path, 2)
    assert "worker 0 of 2 cannot go on: worker 1 gave no heartbeat within 1 s" in message


PROGRAM = """
import os, torch, torch.distributed as dist
from fairconstrained.constraints import DemographicParity
from fairconstrained.solvers import ALM
from fairconstrained.training import train
from tests.helpers.modules import log_loss

size = int(os.environ.get("WORLD_SIZE", 1))
if size > 1:
    dist.init_process_group("gloo")
torch.manual_seed(0)
X, group = torch.randn(300, 3, dtype=torch.float64), torch.randint(2, (300,))
y = (X[:, 0] + 0.5 * group > 0).long()
solver, rows = ALM(n_steps=30, batch_size=24), (X, y, group)
found = train(torch.nn.Linear(3, 1).double(), log_loss, DemographicParity(0.05), rows,
              groups=group, solver=solver, random_state=0)
if size == 1 or dist.get_rank() == 0:
    print(size, *found.values)
if size > 1:
    dist.destroy_process_group()  # else its threads may outlive the program and abort it
"""


@pytest.mark.slow
@needs_gloo
def test_torchrun_gives_what_one_process_gives(tmp_path):
    """A program as in the guide, in one process and in two."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    together = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    values = []
    for options in ([], together):
        command = [sys.executable, *options, str(program)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        size, *of_workers = map(float, done.stdout.split())
        values.append(of_workers)
        assert size == len(values)
    assert values[0] == pytest.approx(values[1], abs=1e-9)
    assert len(values[0]) == 2
