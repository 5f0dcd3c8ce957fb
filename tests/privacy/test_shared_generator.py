"""A release of several workers is that of one with all rows: one batch, one draw of noise."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fairconstrained.privacy.mechanisms import (
    ADD_NOISE,
    PoissonBatches,
    SharedGenerator,
    SystemGenerator,
    with_gaussian_noise,
)
from tests.helpers.threads import run_in_threads


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def released(add_noise, parts, scale, source=seeded):
    """What each worker gets that gives its part."""

    def release(worker):
        return add_noise(parts[worker.rank], scale, SharedGenerator(source(), worker))

    return run_in_threads(release, len(parts))


@pytest.mark.parametrize("add_noise", ADD_NOISE.values(), ids=["gaussian", "laplace"])
@given(
    parts=st.lists(st.lists(st.floats(-1e3, 1e3), min_size=3, max_size=3), min_size=1, max_size=4),
    scale=st.floats(1e-3, 1e3),
)
def test_the_release_is_that_of_one_worker(add_noise, parts, scale):
    """The same noise, once; each worker rounds its part by at most half a step of the grid."""
    parts = torch.tensor(parts, dtype=torch.float64)
    alone = add_noise(parts.sum(dim=0), scale, seeded())
    first, *others = released(add_noise, parts, scale)
    assert (first - alone).abs().max() <= len(parts) * 2.0**-24 * scale + 1e-12
    assert all(torch.equal(first, other) for other in others)


@pytest.mark.parametrize("worker", [0, 1])
def test_the_sensitivity_after_rounding_is_that_of_one_worker(worker):
    """A row moves the integers that are summed by at most its norm and what rounding adds."""
    parts = torch.full((2, 5), 0.3, dtype=torch.float64)
    other = parts.clone()
    other[worker] += torch.full((5,), 5**-0.5)  # of norm 1
    (before, _), (after, _) = (released(with_gaussian_noise, own, 1.0) for own in (parts, other))
    assert (after - before).norm() <= 1.0 + 2.0**-24


@pytest.mark.parametrize("source", [seeded, SystemGenerator], ids=["seeded", "system"])
def test_the_batches_of_workers_are_one_poisson_batch(source):
    """Rows of two workers with one seed are chosen independently of each other."""
    n_batches, rate = 4000, 0.3

    def chosen(worker):
        batches, rng = PoissonBatches(1, rate), SharedGenerator(source(), worker)
        return np.array([len(batches.draw(rng)) for _ in range(n_batches)])

    first, second = run_in_threads(chosen, 2)
    cells = np.bincount(2 * first + second, minlength=4)
    law = np.outer([1 - rate, rate], [1 - rate, rate]).ravel()
    assert stats.chisquare(cells, n_batches * law).pvalue > 1e-6
