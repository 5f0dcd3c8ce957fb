"""Averages of a noisy run: which of them is chosen, and what that reads."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fairconstrained.solvers.private.dpsgda import MOST_RELEASES, TiltedAverages
from tests.helpers.numeric import tensor


def swinging(n_steps=400, seed=0):
    """Iterates around (1, 0) that swing along the first axis, where they violate what they are."""
    rng = torch.Generator().manual_seed(seed)
    points = tensor([1.0, 0.0]) + torch.randn((n_steps, 2), generator=rng, dtype=torch.float64)
    averages = TiltedAverages(n_steps)
    for x in points:
        averages.see(x, float(x[0]))
    return points, averages


def test_without_need_the_average_of_the_second_half_is_returned():
    points, averages = swinging()
    asked = []
    x, values = averages.choose(lambda x: asked.append(x) or x[:1] - 5.0, tensor([0.0]))
    torch.testing.assert_close(x, points[200:].mean(dim=0))
    torch.testing.assert_close(values, x[:1] - 5.0)
    assert len(asked) == 1


@given(st.floats(-1.5, 0.9))
@pytest.mark.slow
def test_the_least_tilt_that_suffices(limit):
    """Bisection comes as near to it as it can, among averages of neighbours, from above."""
    _, averages = swinging()
    asked = []

    def release(x):
        asked.append(x)
        return x[:1] - limit

    x, values = averages.choose(release, tensor([0.0]))
    torch.testing.assert_close(values, x[:1] - limit)
    assert len(asked) <= MOST_RELEASES
    ends = len(averages.points) - 1
    positions = torch.linspace(0, ends, 2**5 + 1).tolist()
    enough = [p for p in positions if release(averages._between(p)) <= 0]
    torch.testing.assert_close(x, averages._between(enough[0]))


def test_where_nothing_helps_the_least_violation_is_returned():
    _, averages = swinging()
    asked = []
    x, _ = averages.choose(lambda x: asked.append(x) or x[:1] + 9.0, tensor([0.0]))
    assert float(x[0]) == min(float(a[0]) for a in asked)
    assert len(asked) == MOST_RELEASES


def test_what_noise_explains_is_no_violation():
    points, averages = swinging()
    plain = points[200:].mean(dim=0)
    x, _ = averages.choose(lambda x: x[:1] - plain[0] + 0.19, tensor([0.1]))
    torch.testing.assert_close(x, plain)


@pytest.mark.parametrize("n_steps", [1, 2, 3])
def test_short_runs_and_multipliers_of_zero(n_steps):
    averages = TiltedAverages(n_steps)
    for step in range(n_steps):
        averages.see(tensor([float(step)]), 0.0)
    expected = torch.arange(n_steps // 2, n_steps, dtype=torch.float64).mean()
    for point in averages.points:
        torch.testing.assert_close(point, expected[None])
    x, values = averages.choose(lambda x: x[:0], tensor([]))
    torch.testing.assert_close(x, expected[None])
    assert not len(values)
