"""Noisy sums over secret groups: as much noise as moving a row between groups asks for, no more."""

import pytest
import torch

from fairconstrained.models.features import DenseFeatures
from fairconstrained.privacy import Gaussian, Phase, plan_releases, privacy_spent
from fairconstrained.problems import Batch
from fairconstrained.problems.private import fermi
from fairconstrained.problems.private.group_posterior import principal_components
from fairconstrained.workers import ALONE


@pytest.mark.parametrize("k", [2, 3, 20])
def test_the_noise_is_that_of_the_distance_between_two_groups(k, monkeypatch):
    """Sensitivity sqrt(2) over the deviation costs what the plan says: neither more nor less."""
    plan = plan_releases({"sums": 1.0}, epsilon=1.0, delta=1e-5, unit="sensitive_features")
    noisy = []

    def recorded(value, deviation, rng):
        noisy.append((value, deviation))
        return value

    monkeypatch.setattr(fermi, "with_gaussian_noise", recorded)
    query = torch.tensor([0.6, 0.8]).double()
    for group in (0, 1):
        sums = torch.zeros(1, k, 2).double()
        sums[0, group] = query
        fermi._with_noise_between_groups(sums, sums.sum(dim=1), plan.noise["sums"], None, ALONE)
    (first, deviation), (second, _) = noisy
    moved = float((first - second).norm())
    assert moved == pytest.approx(2**0.5)
    once = Phase([Gaussian(deviation / moved)])  # a distance of 1 in these units
    assert privacy_spent([once], delta=1e-5) == pytest.approx(plan.privacy.epsilon, rel=3e-3)


def test_constant_features_have_one_component():
    """Without any a fit on them failed after its releases."""
    rows = DenseFeatures(torch.full((10, 2), 3.0).double())
    none = torch.zeros(10, dtype=torch.long)
    components = principal_components(Batch(rows, none, none, torch.ones(10).double()), 5)
    torch.testing.assert_close(components, torch.ones(10, 1).double())
