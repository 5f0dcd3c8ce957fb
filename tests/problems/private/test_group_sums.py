"""Noisy sums over secret groups: as much noise as moving a row between groups asks for, no more."""

import pytest
import torch

from fairconstrained.models.features import DenseFeatures
from fairconstrained.privacy import Budget, Gaussian, Phase, privacy_spent
from fairconstrained.privacy.mechanisms import Releases
from fairconstrained.privacy.plans import plan_releases
from fairconstrained.problems import Rows
from fairconstrained.problems.private.secret_groups import noisy_sums, principal_components
from tests.helpers.releases import answered_by, without_noise


@pytest.mark.parametrize("k", [2, 3, 20])
def test_the_noise_is_that_of_the_distance_between_two_groups(k, monkeypatch):
    """Sensitivity sqrt(2) over the deviation costs what the plan says: neither more nor less."""
    plan = plan_releases({"group counts": 0.99}, Budget(1.0, 1e-5, "sensitive_features"))
    asked, one = answered_by(monkeypatch, without_noise), torch.ones(1, dtype=torch.float64)
    y = torch.zeros(1, dtype=torch.long)
    for group in (0, 1):
        data = Rows((DenseFeatures(one[:, None]),), y, torch.tensor([group]), one)
        noisy_sums("group counts", one[:, None], data, (2, k), Releases(plan), None)
    (_, deviation, first), (_, _, second) = asked
    moved = float((first - second).norm())
    assert moved == pytest.approx(2**0.5)
    once = Phase([Gaussian(deviation / moved)])  # a distance of 1 in these units
    assert privacy_spent([once], delta=1e-5) == pytest.approx(plan.epsilon, rel=3e-3)


def test_constant_features_have_one_component():
    """Without any a fit on them failed after its releases."""
    rows = DenseFeatures(torch.full((10, 2), 3.0).double())
    none = torch.zeros(10, dtype=torch.long)
    components = principal_components(Rows((rows,), none, none, torch.ones(10).double()), 5)
    torch.testing.assert_close(components, torch.ones(10, 1).double())
