"""Poisson batches and noise have the laws that the accountant is told."""

import math

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from fairconstrained.privacy import Gaussian, Laplace, mechanisms
from fairconstrained.privacy.accounting import GRID_SHIFT
from fairconstrained.privacy.mechanisms import (
    ADD_NOISE,
    PoissonBatches,
    SharedGenerator,
    SystemGenerator,
    with_gaussian_noise,
    with_laplace_noise,
)
from tests.helpers.solving import generator
from tests.helpers.threads import run_in_threads


@pytest.mark.parametrize(("n_rows", "rate"), [(40, 0.9), (300, 0.01)])
def test_rows_are_drawn_independently_with_the_same_probability(n_rows, rate):
    """Inclusions of rows i and j are Bernoulli(rate), uncorrelated, at every position."""
    batches, rng, n_batches = PoissonBatches(n_rows, rate), generator(), 4000
    drawn = np.zeros((n_batches, n_rows))
    for batch in drawn:
        rows = batches.draw(rng)
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


@pytest.mark.parametrize("n_rows", [1, 9000])
def test_batches_that_are_drawn_together_are_independent_of_each_other(n_rows):
    """A row is in two batches in a row with probability rate squared."""
    batches, rng, n_batches = PoissonBatches(n_rows, 0.3), generator(), 600 if n_rows > 1 else 6000
    first = np.zeros(n_batches)  # how often the first and the last row are chosen
    last = np.zeros(n_batches)
    for k in range(n_batches):
        rows = batches.draw(rng)
        assert rows.tolist() == sorted(set(rows.tolist()))
        first[k], last[k] = 0 in rows, n_rows - 1 in rows
    for chosen in (first, last):
        assert abs(chosen.mean() - 0.3) < 5 * np.sqrt(0.21 / n_batches)
        both = (chosen[1:] * chosen[:-1]).mean()
        assert abs(both - 0.09) < 6 * np.sqrt(0.09 / n_batches)


CONTINUOUS = {with_gaussian_noise: stats.norm, with_laplace_noise: stats.laplace}


@pytest.mark.parametrize("source", [generator, SystemGenerator], ids=["seeded", "system"])
@pytest.mark.parametrize(("add_noise", "law"), CONTINUOUS.items())
def test_noise_has_its_law(add_noise, law, source):
    value = torch.arange(20_000, dtype=torch.float64).reshape(100, 200)
    noise = (add_noise(value, 2.5, source()) - value).numpy().ravel()
    assert stats.kstest(noise, law(scale=2.5).cdf).pvalue > 1e-6
    for lag in (1, 10_000):
        neighbours = np.corrcoef(noise[:-lag], noise[lag:])[0, 1]
        assert abs(neighbours) < 5 / np.sqrt(len(noise) - lag)
        squares = np.corrcoef(noise[:-lag] ** 2, noise[lag:] ** 2)[0, 1]
        assert abs(squares) < 6 / np.sqrt(len(noise) - lag)


def test_noise_comes_from_the_system_alone(monkeypatch):
    """Equal bytes of the system give equal noise, whatever is seeded; one bit changes it."""
    zeros, source = torch.zeros(6, dtype=torch.float64), bytearray(range(1, 255)) * 100
    monkeypatch.setattr(mechanisms.os, "urandom", lambda n: bytes(source[:n]))

    def drawn(seed):
        torch.manual_seed(seed)
        rng = SystemGenerator()
        rng.manual_seed(seed)
        return torch.stack([add(zeros, 1.0, rng) for add in ADD_NOISE.values()])

    before = drawn(0)
    assert torch.equal(drawn(1), before)
    source[7] ^= 1
    assert not torch.equal(drawn(0), before)


def test_no_draw_is_used_twice():
    """Draws that are kept for later are dropped with use, whatever the sizes asked for."""
    rng = SystemGenerator()
    drawn = np.concatenate([rng.words(n) for n in (5, 3000, 700, 700, 700, 1, 5000)])
    assert len(np.unique(drawn)) == len(drawn) == 10_106


LAWS = {with_gaussian_noise: mpmath.ncdf, with_laplace_noise: lambda value: mpmath.exp(value) / 2}


def released_of(add_noise, bits, monkeypatch, size):
    """The first of many entries of noise, in steps of the grid, where the system draws 192 bits."""
    first, more = divmod(bits, 2**128)

    def urandom(n):
        rest = b"`" * (n - 8)  # words of no extreme
        return more.to_bytes(16, "big") if n == 16 else first.to_bytes(8, "little") + rest

    monkeypatch.setattr(mechanisms.os, "urandom", urandom)
    zeros = torch.zeros(size, dtype=torch.float64)
    norm = size if add_noise is with_laplace_noise else math.sqrt(size)
    per_unit = 2.0 ** -math.floor(math.log2(2.0**-24 / norm))
    return float(add_noise(zeros, 1.0, SystemGenerator())[0]) * per_unit, per_unit


@pytest.mark.parametrize("size", [1, 9000])
@pytest.mark.parametrize("add_noise", LAWS)
def test_every_outcome_has_its_probability_however_far_out(add_noise, size, monkeypatch):
    """One multiple follows another at the bits at which real numbers would round."""
    _, per_unit = released_of(add_noise, 2**191, monkeypatch, size)
    places = -per_unit * np.array([1e-6, 0.3, 4.0, 5.5, 7.0, 7.5, 8.0, 8.5, 8.9, 8.99])
    for k in map(int, places):
        with mpmath.workprec(300):
            edge = int(2**192 * LAWS[add_noise]((mpmath.mpf(k) + 0.5) / per_unit))
        for bits, released in ((edge - 2**72, k), (edge + 2**72, k + 1)):
            opposite = bits ^ (2**64 - 1) << 128  # the complement of the first word
            assert released_of(add_noise, bits, monkeypatch, size)[0] == released
            assert released_of(add_noise, opposite, monkeypatch, size)[0] == -released


@pytest.mark.parametrize("add_noise", LAWS)
def test_words_that_leave_no_doubt_are_rounded_as_real_numbers_would(add_noise, monkeypatch):
    words, size = np.random.default_rng(0).integers(2**63, size=500, dtype=np.uint64), 2**20
    words >>= np.arange(500, dtype=np.uint64) % 15  # up to the shortest
    law = mechanisms._NORMAL if add_noise is with_gaussian_noise else mechanisms._LAPLACE
    monkeypatch.setattr(SystemGenerator, "words", lambda _, n: words)
    steps = SystemGenerator().steps(law, 500, 2.0**24 * size)
    for word, step in zip(words.tolist(), steps.tolist(), strict=True):
        with mpmath.workprec(128):
            edges = (mpmath.mpf(step + half) / (2**24 * size) for half in (-0.5, 0.5))
            low, high = map(LAWS[add_noise], edges)
            assert low * 2**64 < word + 1
            assert high * 2**64 > word


def test_noise_reaches_further_than_any_delta_can_tell(monkeypatch):
    """The least bits of the system are 16 standard deviations away: a probability below 1e-57."""
    monkeypatch.setattr(mechanisms.os, "urandom", bytes)
    far = with_gaussian_noise(torch.zeros(1, dtype=torch.float64), 1.0, SystemGenerator())
    assert 0 < 2 * stats.norm.cdf(float(far)) < 1e-57
    assert float(mechanisms._exponential(SystemGenerator(), 1)[0]) == 65 * math.log(2)


def told_apart(add_noise):
    """How much oftener an output near zero is a multiple of 2^-53 with a sum of 1 than of 0."""
    rates = []
    for value in (0.0, 1.0):
        output = add_noise(torch.full((50_000,), value, dtype=torch.float64), 1.0, generator())
        near = output[output.abs() < 0.25].numpy()
        rates.append(np.mean(near * 2.0**53 == np.rint(near * 2.0**53)))
    return rates[1] - rates[0]


def plain(value, scale, rng):
    return value + scale * torch.randn(value.shape, generator=rng, dtype=torch.float64)


@pytest.mark.parametrize("add_noise", [with_gaussian_noise, with_laplace_noise])
def test_the_lowest_bits_do_not_tell_neighbours_apart(add_noise):
    """Sums of 0 and 1 reach the same numbers; the attack works where noise is simply added."""
    assert told_apart(add_noise) == 0.0
    assert told_apart(plain) > 0.5


values = st.floats(-1e6, 1e6) | st.sampled_from([1 / 3, 1e-300, 2.0**-60, 1e12 + 0.1])
vectors = arrays(float, 5, elements=values)


@pytest.mark.parametrize("add_noise", [with_gaussian_noise, with_laplace_noise])
@given(vectors, st.floats(1e-3, 1e6))
def test_outputs_are_on_a_grid_that_the_noise_alone_determines(add_noise, value, scale):
    norm = 5 if add_noise is with_laplace_noise else math.sqrt(5)
    step = 2.0 ** math.floor(math.log2(2.0**-24 * scale / norm))
    output = add_noise(torch.from_numpy(value), scale, generator()).numpy() / step
    assert (output == np.rint(output)).all()


@given(vectors, vectors, st.floats(1e-3, 1e6))
def test_the_sensitivity_after_rounding_is_what_is_charged(one, other, scale):
    """Of at most 16 tensors; with the same noise, which cancels exactly on the grid."""
    for add_noise, norm, priced in (
        (with_gaussian_noise, 2, Gaussian(1.0).shift - 1.0),
        (with_laplace_noise, 1, Laplace(1.0).shift - 1.0),
    ):
        rounded = [add_noise(torch.from_numpy(v), scale, generator()) for v in (one, other)]
        moved = float(torch.linalg.vector_norm(rounded[0] - rounded[1], norm))
        exact = np.linalg.norm(one - other, norm)
        assert moved <= (exact + 2.0**-24 * scale) * (1 + 1e-14)
        assert math.sqrt(16) * 2.0**-24 <= priced == pytest.approx(GRID_SHIFT)


@pytest.mark.parametrize("add_noise", [with_gaussian_noise, with_laplace_noise])
def test_noise_on_whole_numbers_is_not_cut_to_them(add_noise):
    """Weighted counts of no rows are whole numbers in torch, and those of one row are not."""
    counts = torch.arange(4)
    released = [add_noise(of, 1.0, generator()) for of in (counts, counts.double())]
    assert torch.equal(*released)


@pytest.mark.parametrize("add_noise", [with_gaussian_noise, with_laplace_noise])
def test_no_number_makes_a_release_that_is_not_finite(add_noise):
    value = torch.tensor([math.nan, math.inf, -math.inf, 1e308], dtype=torch.float64)
    output = add_noise(value, 1.0, generator())
    assert output.isfinite().all()
    assert abs(float(output[0])) < 20
    assert float(output[1]) > 1e10 > -1e10 > float(output[2])


def released(add_noise, parts, scale, source=generator):
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
    alone = add_noise(parts.sum(dim=0), scale, generator())
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


@pytest.mark.parametrize("source", [generator, SystemGenerator], ids=["seeded", "system"])
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
