"""RaCO-DP's steps, written out on releases that are made up."""

from types import SimpleNamespace

import pytest
import torch

from fairconstrained.problems.private.erm import Release
from fairconstrained.solvers import DPSGDA


class Releases:
    """A problem of three constraints whose releases do not depend on anything."""

    def __init__(self, values, n_steps, noise=1e-9):
        self.noise = torch.as_tensor(noise).expand(3)
        self.plan = SimpleNamespace(privacy=SimpleNamespace(n_steps=n_steps))
        self.model = SimpleNamespace(linear=True)
        self.table_noise = self.final_noise = 1.0
        self._values = values

    def release(self, x, weigh, max_norm, rng):
        return Release(self._values, torch.tensor([2.0]), 1.0)

    def release_table(self, x, rng):
        return -self._values  # nothing is violated: the plain average is the result

    def values(self, table):
        return table

    def weights(self, table, dual):
        return dual

    def noise_of_values(self, noise):
        return self.noise

    def penalty_gradient(self, x):
        return 3.0 * x


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


def test_multipliers_follow_values_in_inverse_proportion_to_their_variance():
    """Beyond a standard deviation of 0.1; with steps of size a, multipliers vary by a sigma^2."""
    problem = Releases(torch.tensor([0.5, 0.5, 0.5]), n_steps=1, noise=[0.05, 0.2, 0.4])
    solver = DPSGDA(step_size=0.1, dual_step_size=1.0)
    first, *_ = solver.iterate(problem, torch.zeros(1), torch.zeros(3), 1e-4, torch.Generator())
    torch.testing.assert_close(first.dual, 0.5 * torch.tensor([1.0, 1 / 4, 1 / 16]))
