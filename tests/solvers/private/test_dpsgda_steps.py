"""RaCO-DP's steps, written out on releases that are made up."""

from types import SimpleNamespace

import pytest
import torch

from fairconstrained.solvers import DPSGDA


class Releases:
    """A problem of three constraints whose releases do not depend on anything."""

    def __init__(self, values, n_steps, gains=1e-9):
        self._gains = torch.as_tensor(gains).expand(3)
        self.plan = SimpleNamespace(n_steps=n_steps)
        self.model = SimpleNamespace(linear=True)
        self._values = values

    def release(self, x, choose_dual, max_norm, rng):
        return self._values, 2.0 + 3.0 * x

    def release_table(self, x, rng):
        return -self._values  # nothing is violated: the plain average is the result

    def values(self, table):
        return table

    def gains(self):
        return self._gains

    def deviations_of_estimates(self):
        return torch.full((3,), 1e-9)


def test_multipliers_are_scaled_into_their_bound_and_an_average_is_returned():
    """The orthogonal projection of 8, 1, 3 on sums of at most 10 would be 7.33, 0.33, 2.33."""
    problem = Releases(torch.tensor([8.0, 1.0, 3.0]), n_steps=4)
    solver = DPSGDA(step_size=0.1, dual_step_size=1.0, max_dual=10.0)
    zeros = torch.zeros(3)
    *iterates, result = solver.iterate(problem, torch.zeros(1), zeros, 1e-4, torch.Generator())
    expected, x, path = zeros, torch.zeros(1), []
    for iterate in iterates:
        expected = expected + torch.tensor([8.0, 1.0, 3.0])
        expected = 10.0 * expected / expected.sum()
        x = x - 0.1 * (2.0 + 3.0 * x)
        path.append(x)
        torch.testing.assert_close(iterate.dual, expected)
        torch.testing.assert_close(iterate.x, x)
    assert iterates[0].dual.tolist() == pytest.approx([20 / 3, 5 / 6, 5 / 2])
    # Not the last point: the mean of those at which the second half of the steps was taken.
    torch.testing.assert_close(result.x, (path[1] + path[2]) / 2)
