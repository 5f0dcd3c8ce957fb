"""Joint training: two processes give what one gives, and are told alike what is wrong."""

from functools import cache

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from fairconstrained.constraints import DemographicParity, LossParity
from fairconstrained.exceptions import WorkerError
from fairconstrained.solvers import ALM, StochasticGhost, SwitchingSubgradient
from fairconstrained.training import train
from tests.helpers.modules import gap_at_most, log_loss, weights
from tests.helpers.processes import needs_gloo, run_on_workers


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


NOTIONS = [LossParity(0.02, within="labels"), DemographicParity(0.05)]
GHOST = StochasticGhost(n_steps=3, batch_size=4, max_level=2, step_size=0.01)
CASES = {
    "function": (gap_at_most(0.05), SwitchingSubgradient(n_steps=30, batch_size=24)),
    "notions": (NOTIONS, ALM(n_steps=30, batch_size=24)),
    "ghost": (LossParity(0.02), GHOST),
    "odd batches": ([], ALM(n_steps=30, batch_size=25)),
}


def run(case, data=None, rank=0, **options):
    constraints, solver = CASES[case]
    data = made() if data is None else data
    options = {"groups": made()[2], "solver": solver, "random_state": 0, **options}
    return train(network(rank), log_loss, constraints, data, **options)


def trained(case, rank=0):
    result = run(case, rank=rank)
    return weights(result), torch.as_tensor(result.values), torch.as_tensor(result.multipliers)


def streamed(rank):
    data = made()
    rows = [tuple(column[i] for column in data) for i in range(rank, 300, 2)]
    loader = DataLoader(rows, batch_size=50)
    solver = ALM(n_steps=30, step_size=0.3, optimizer=torch.optim.Adam)
    return train(network(rank), log_loss, [], loader, solver=solver, random_state=0).history


class Acts:
    """A callback that does something at the second iterate, on the second worker."""

    def __init__(self, rank, act):
        self.rank, self.act, self.seen = rank, act, 0

    def __call__(self, iterate):
        self.seen += 1
        return self.rank == 1 and self.seen == 2 and self.act()


def fails():
    raise ValueError("on purpose")


def told(rank):
    def status(n=301, **options):
        data, options = tuple(x[:n] for x in made()), {"groups": made()[2][:n], **options}
        try:
            return run("notions", data, rank, **options).status
        except (ValueError, WorkerError) as error:
            return f"{type(error).__name__}: {error}"

    return {
        "rows": status(n=300 - 10 * rank),
        "device": status(device=["cpu", "meta"][rank]),
        "a callback fails": status(callbacks=[Acts(rank, fails)]),
        "a callback stops": status(callbacks=[Acts(rank, lambda: True)]),
    }


def work(rank):
    return {case: trained(case, rank) for case in CASES}, streamed(rank), told(rank)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return run_on_workers(work, tmp_path_factory.mktemp("workers"), 2)


@pytest.mark.slow
@needs_gloo
@pytest.mark.parametrize("case", CASES)
def test_two_workers_give_what_one_gives(found, case):
    """Weights, constraint values and multipliers, to the last bit on both."""
    (first, *_), (second, *_) = found
    for one, a, b in zip(trained(case), first[case], second[case], strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)
        torch.testing.assert_close(a, one, rtol=0, atol=1e-9)


@pytest.mark.slow
@needs_gloo
def test_each_worker_reads_its_own_loader(found):
    (_, first, _), (_, second, _) = found
    assert (first["objective"] == second["objective"]).all()
    assert first["objective"][-1] < first["objective"][0]


@pytest.mark.slow
@needs_gloo
def test_trainings_that_differ_end_on_all_workers(found):
    first, second = (each for *_, each in found)
    for case, words in {
        "rows": "workers must agree in their numbers of rows and of those in each group",
        "device": "ValueError: device must be a torch device that this machine has",
        "a callback stops": "a callback asked to stop",
    }.items():
        assert words in first[case]
        assert words in second[case]
    assert second["a callback fails"] == "ValueError: on purpose"
    assert first["a callback fails"] == "WorkerError: worker 1 of 2 raised ValueError: on purpose"
