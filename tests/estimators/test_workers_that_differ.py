"""Workers that differ, or do not go on alike, are told so; none waits or dies of it."""

import warnings

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from fairconstrained import LossParityClassifier, RateConstrainedClassifier
from fairconstrained.constraints import DemographicParity
from fairconstrained.distributed import sharded_rows
from fairconstrained.exceptions import WorkerError
from fairconstrained.model_selection import CertifiedClassifier
from fairconstrained.solvers import ALM
from fairconstrained.training import train
from tests.helpers.processes import needs_gloo, run_on_workers
from tests.helpers.shards import shard, table

pytestmark = [pytest.mark.slow, needs_gloo]


def said(call):
    """The error of a call in words, or what it returns."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return call()
    except (ValueError, WorkerError) as error:
        return f"{type(error).__name__}: {error}"


class Acts:
    """A callback that does something at the second iterate, on the second worker."""

    def __init__(self, rank, act):
        self.rank, self.act, self.seen = rank, act, 0

    def __call__(self, iterate):
        self.seen += 1
        return self.rank == 1 and self.seen == 2 and self.act()


def fails():
    raise ValueError("on purpose")


def fits(rank, size):
    """What each worker is told by fits on shards."""
    X, y, group, _ = shard(table(), rank, size)
    warm = LossParityClassifier(slack=0.05, warm_start=True)
    if rank == 0:
        warm.fit(X, y, sensitive_features=group)

    def fit(clf):
        return said(lambda: clf.fit(X, y, sensitive_features=group).status_)

    kinds = RateConstrainedClassifier, LossParityClassifier
    stops = Acts(rank, fails)
    with sharded_rows():
        return {
            "estimators": fit(kinds[rank]()),
            "warm start": fit(warm),
            "certificate": fit(CertifiedClassifier(LossParityClassifier())),
            "callback": fit(RateConstrainedClassifier(slack=0.001, callbacks=stops)),
        }


def trainings(rank):
    """What each worker is told by `train`."""
    rng = torch.Generator().manual_seed(0)
    X = torch.randn(300, 3, generator=rng, dtype=torch.float64)
    y, group = (X[:, 0] > 0).double(), (X[:, 1] > 0).long()

    def loss(outputs, batch):
        return F.binary_cross_entropy_with_logits(outputs[:, 0], batch[1])

    def trained(n=300, device=None, callbacks=()):
        data = X[:n], y[:n]
        options = {"groups": group[:n], "solver": ALM(n_steps=40, batch_size=24)}
        options |= {"device": device, "callbacks": callbacks}
        return train(nn.Linear(3, 1).double(), loss, DemographicParity(0.05), data, **options)

    def told(**options):
        return said(lambda: trained(**options).status)

    return {
        "rows": told(n=300 - 10 * rank),
        "device": told(device=["cpu", "meta"][rank]),
        "callback fails": told(callbacks=[Acts(rank, fails)]),
        "callback stops": told(callbacks=[Acts(rank, lambda: True)]),
    }


def everything(rank, size):
    found = {"fits": fits(rank, size), "trainings": trainings(rank)}
    only_first = dist.new_group([0])

    def without_second():
        with sharded_rows(only_first):
            return "within"

    return found | {"group": said(without_second)}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    path = tmp_path_factory.mktemp("differ")
    return run_on_workers(everything, path, 2, 2)


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("estimators", "worker 0 has RateConstrainedClassifier, worker 1 has LossParityClassifier"),
        ("warm start", "ValueError: workers must agree in their last fits"),
        ("certificate", "CertifiedClassifier.fit must be called outside of sharded_rows"),
    ],
)
def test_fits_that_differ_end_on_all_workers_before_any_work(found, case, words):
    first, second = (own["fits"][case] for own in found)
    assert words in first
    assert second == first


@pytest.mark.parametrize(("room", "case"), [("fits", "callback"), ("trainings", "callback fails")])
def test_a_callback_that_fails_on_one_worker_ends_training_on_all(found, room, case):
    first, second = (own[room][case] for own in found)
    assert second == "ValueError: on purpose"
    assert first == f"WorkerError: worker 1 of 2 raised {second}"


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("rows", "workers must agree in their numbers of rows and of those in each group"),
        ("device", "ValueError: device must be a torch device that this machine has"),
        ("callback stops", "a callback asked to stop"),
    ],
)
def test_trainings_that_differ_end_on_all_workers(found, case, words):
    for own in found:
        assert words in own["trainings"][case]


def test_a_process_that_is_not_in_the_group_is_told_so(found):
    first, second = (own["group"] for own in found)
    assert first == "within"
    assert "this process is not in it" in second
