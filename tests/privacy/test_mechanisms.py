"""Poisson batches and noise have the laws that the accountant is told."""

import numpy as np
import pytest
import torch
from scipy import stats

from fairconstrained.privacy import mechanisms, plan_releases
from fairconstrained.privacy.mechanisms import (
    PoissonBatches,
    seed_from_system,
    with_gaussian_noise,
    with_laplace_noise,
)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize(("n_rows", "rate"), [(7, 0.3), (40, 0.9), (300, 0.01)])
def test_rows_are_drawn_independently_with_the_same_probability(n_rows, rate):
    """Inclusions of rows i and j are Bernoulli(rate), uncorrelated, at every position."""
    batches, n_batches = PoissonBatches(n_rows, rate, generator()), 4000
    drawn = np.zeros((n_batches, n_rows))
    for batch in drawn:
        rows = next(batches)
        assert rows.unique().numel() == rows.numel()
        batch[rows.numpy()] = 1
    deviation = np.sqrt(rate * (1 - rate) / n_batches)
    assert np.abs(drawn.mean(axis=0) - rate).max() < 5 * deviation
    covariance = np.cov(drawn.T)
    expected = rate * (1 - rate) * np.eye(n_rows)
    assert np.abs(covariance - expected).max() < 6 * deviation
    sizes = np.bincount(drawn.sum(axis=1).astype(int), minlength=n_rows + 1)
    binomial = n_batches * stats.binom.pmf(np.arange(n_rows + 1), n_rows, rate)
    usual = binomial > 5
    statistic = ((sizes - binomial)[usual] ** 2 / binomial[usual]).sum()
    assert statistic < stats.chi2.ppf(1 - 1e-6, usual.sum())


def test_at_rate_one_every_row_is_drawn():
    assert next(PoissonBatches(5, 1.0, generator())).tolist() == [0, 1, 2, 3, 4]


def test_batches_may_be_empty():
    batches = PoissonBatches(3, 0.1, generator())
    assert any(len(next(batches)) == 0 for _ in range(20))


@pytest.mark.parametrize("n_rows", [1, 2, 1000, 30_000])
def test_batches_that_are_drawn_together_are_independent_of_each_other(n_rows, monkeypatch):
    """A row is in two batches in a row with probability rate squared, also at a block's edges."""
    monkeypatch.setattr(mechanisms, "_BLOCK_ROWS", 3 * 0.3 * n_rows)  # blocks of about three
    batches, n_batches = PoissonBatches(n_rows, 0.3, generator()), 600 if n_rows > 1 else 6000
    first = np.zeros(n_batches)  # how often the first and the last row are chosen
    last = np.zeros(n_batches)
    for k in range(n_batches):
        rows = next(batches)
        assert rows.tolist() == sorted(set(rows.tolist()))
        first[k], last[k] = 0 in rows, n_rows - 1 in rows
    for chosen in (first, last):
        assert abs(chosen.mean() - 0.3) < 5 * np.sqrt(0.21 / n_batches)
        both = (chosen[1:] * chosen[:-1]).mean()
        assert abs(both - 0.09) < 6 * np.sqrt(0.09 / n_batches)


@pytest.mark.parametrize(
    ("add_noise", "law"),
    [(with_gaussian_noise, stats.norm(scale=2.5)), (with_laplace_noise, stats.laplace(scale=2.5))],
)
def test_noise_has_its_law(add_noise, law):
    value = torch.arange(20_000, dtype=torch.float64).reshape(100, 200)
    noise = (add_noise(value, 2.5, generator()) - value).numpy().ravel()
    assert stats.kstest(noise, law.cdf).pvalue > 1e-4
    neighbours = np.corrcoef(noise[:-1], noise[1:])[0, 1]
    assert abs(neighbours) < 5 / np.sqrt(len(noise))


def test_the_system_fills_the_whole_state():
    """624 words of 32 bits, none of them those of a seed, and noise of the same law after."""
    first, second = torch.Generator(), torch.Generator()
    for rng in (first, second):
        seed_from_system(rng)
    words = [
        rng.get_state()[24 : 24 + 624 * 8].numpy().view(np.uint64)
        for rng in (first, second, generator(0))
    ]
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert (words[one] != words[other]).mean() > 0.99
    assert all(w.max() < 2**32 for w in words)
    noise = with_gaussian_noise(torch.zeros(20_000, dtype=torch.float64), 1.0, first).numpy()
    assert stats.kstest(noise, stats.norm.cdf).pvalue > 1e-6


def test_everything_comes_from_the_generator():
    for draw in (
        lambda rng: next(PoissonBatches(100, 0.2, rng)),
        lambda rng: with_gaussian_noise(torch.zeros(5), 1.0, rng),
        lambda rng: with_laplace_noise(torch.zeros(5), 1.0, rng),
    ):
        assert torch.equal(draw(generator(1)), draw(generator(1)))
        assert not torch.equal(draw(generator(1)), draw(generator(2)))


def test_a_generator_of_another_kind_is_refused_and_not_seeded_by_32_bits(monkeypatch):
    monkeypatch.setattr(mechanisms, "_STATE_BYTES", 16)
    with pytest.raises(RuntimeError, match="keeps the state of its generators otherwise"):
        seed_from_system(generator())


@pytest.mark.parametrize("shares", [{}, {"counts": 0.0}, {"counts": 1.0, "moments": -0.1}])
def test_shares_of_a_budget_are_positive(shares):
    with pytest.raises(ValueError, match="shares must be positive numbers, at least one"):
        plan_releases(shares, epsilon=1.0, delta=1e-5)


def test_shares_of_a_budget_are_shares_of_the_inverse_variance():
    """Four times the share is half the noise, whatever the unit of the shares."""
    one, other = (
        plan_releases({"a": 0.2 * unit, "b": 0.8 * unit}, epsilon=1.0, delta=1e-5).noise
        for unit in (1.0, 7.0)
    )
    assert one["a"] == pytest.approx(2.0 * one["b"])
    assert one == pytest.approx(other)
