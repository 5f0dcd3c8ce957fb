"""The black-box audit of test_privacy_audit.py, of releases that two workers make together."""

import numpy as np
import pytest
import torch

from fairconstrained.privacy import mechanisms
from fairconstrained.privacy.audit import epsilon_lower_bound
from fairconstrained.privacy.mechanisms import SharedGenerator
from fairconstrained.problems.private import erm
from tests.privacy import test_privacy_audit as audit

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def at_half_the_rate(monkeypatch):
    """So that a rate twice as large exists; and samples enough to see it."""
    monkeypatch.setattr(audit, "RATE", 0.5)
    monkeypatch.setattr(audit, "N_SAMPLES", 6000)


class Scripted:
    """One of two workers, which is told what the other has given; at first that is nothing."""

    size = 2

    def __init__(self, rank, of_other=()):
        self.rank = rank
        self.given = []
        self._of_other = iter(of_other)

    def sum(self, tensor):
        self.given.append(tensor)
        return tensor + next(self._of_other, 0)


def outputs(with_canary):
    """What the second worker sees, which has the canary.

    What the first gives does not depend on what it sees, as all weights on tables are zero.
    """
    data = audit.batch(audit.N_ROWS + with_canary, 0.0)
    parts = torch.tensor_split(torch.arange(len(data.y)), 2)

    def seen_by(worker):
        rng = SharedGenerator(torch.Generator().manual_seed(int(with_canary)), worker)
        return audit.outputs_of(data.rows(parts[worker.rank]), len(data.y), "gaussian", rng)

    first = Scripted(0)
    seen_by(first)
    return seen_by(Scripted(1, first.given))


def bound():
    """(lower bound of the audit, claim of the accountant)."""
    without, with_canary = (audit.loss_of(outputs(c), "gaussian") for c in (False, True))
    audited = epsilon_lower_bound(without, with_canary, delta=audit.DELTA)
    return audited, audit.plan("gaussian").privacy.epsilon


def test_two_workers_stay_below_the_claim_of_one():
    audited, claimed = bound()
    assert 0.5 * claimed < audited <= claimed


def half_the_variance(patch):
    """Two workers add noise of a quarter of the variance each."""

    def broken(rng, part, noise):
        return rng.workers.sum(torch.from_numpy(part + noise // 2)).numpy()

    patch.setattr(mechanisms, "_released", broken)


def noise_for_the_first_only(patch):
    """The others get the sum without noise."""

    def broken(rng, part, noise):
        total = rng.workers.sum(torch.from_numpy(part)).numpy()
        return total + noise if rng.workers.rank == 0 else total

    patch.setattr(mechanisms, "_released", broken)


def batches_counted_by_worker(patch):
    """Each draws as many rows as an expected batch of all has: the rate is twice what is priced."""
    honest = erm.PoissonBatches
    patch.setattr(erm, "PoissonBatches", lambda n_rows, rate: honest(n_rows, 2 * rate))


@pytest.mark.parametrize(
    "broken", [half_the_variance, noise_for_the_first_only, batches_counted_by_worker]
)
def test_the_audit_sees_what_is_broken_between_workers(broken, monkeypatch):
    broken(monkeypatch)
    audited, claimed = bound()
    assert audited > claimed


def test_workers_release_what_one_worker_releases(monkeypatch):
    """To 1e-10, where all rows are in every batch and the grid is fine, for one seed."""
    monkeypatch.setattr(audit, "RATE", 1.0)
    monkeypatch.setattr(audit, "N_SAMPLES", 20)
    monkeypatch.setattr(audit, "TABLE_NOISE", 1e-4)
    monkeypatch.setattr(audit, "GRADIENT_NOISE", 1e-4)
    np.testing.assert_allclose(
        outputs(True), audit.outputs(True, "gaussian", 1), rtol=0, atol=1e-10
    )
