"""The audit's bound: valid for any two numbers of outputs, and not blind."""

import numpy as np
import pytest

from fairconstrained.privacy import Gaussian, Phase, privacy_spent
from fairconstrained.privacy.audit import epsilon_lower_bound


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(20_000, 20), (20, 20_000), (500, 500)])
def test_outputs_of_one_law_have_a_positive_bound_at_most_as_often_as_said(sizes):
    """At confidence .95 in 10 of 200 trials or fewer, up to what chance adds to that (binomial)."""
    rng = np.random.default_rng(0)
    positive = 0
    for _ in range(200):
        samples = [rng.normal(size=size) for size in sizes]
        positive += epsilon_lower_bound(*samples, delta=1e-5, confidence=0.95) > 0
    assert positive <= 20


@pytest.mark.parametrize("sizes", [(20_000, 400), (400, 20_000)])
def test_unequal_numbers_still_see_a_difference(sizes):
    """Noise of multiplier 1/2 on a sum: the bound is positive and below the claim."""
    rng = np.random.default_rng(0)
    samples = [rng.normal(shift, 0.5, size) for shift, size in zip((0, 1), sizes, strict=True)]
    bound = epsilon_lower_bound(*samples, delta=1e-5)
    assert 1.0 < bound <= privacy_spent([Phase([Gaussian(0.5)])], delta=1e-5)


def test_too_few_outputs_are_refused():
    with pytest.raises(ValueError, match=r"with_row must be .* at least 20 outputs"):
        epsilon_lower_bound(np.zeros(100), np.zeros(19), delta=1e-5)
