"""Intervals of one proportion, AUCs and differences: against scipy, and by exact enumeration."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, binomtest

from fairconstrained.metrics.bounds import (
    DIFFERENCE,
    SHORTFALL,
    clopper_pearson,
    distribution_band,
    newcombe_auc,
    wilson,
)


@pytest.mark.parametrize(("hits", "rows"), [(0, 7), (3, 7), (7, 7), (40, 200)])
def test_proportions_are_scipys(hits, rows):
    test = binomtest(hits, rows)
    expected = test.proportion_ci(0.9, method="wilson")
    np.testing.assert_allclose(wilson(hits, rows, 0.9), expected, atol=1e-12)
    expected = test.proportion_ci(0.9, method="exact")
    np.testing.assert_allclose(clopper_pearson(hits, rows, 0.05), expected, atol=1e-12)


def test_without_rows_nothing_is_known():
    assert np.isnan(wilson(0, 0)).all()
    assert [float(end) for end in clopper_pearson(0, 0, 0.05)] == [0.0, 1.0]


def test_auc_interval_covers():
    """Binormal scores, AUC .76: between .93 and .97 of 600 intervals."""
    rng = np.random.default_rng(0)
    x, z = rng.normal(size=(600, 40, 1)) + 1.0, rng.normal(size=(600, 1, 60))
    low, high = newcombe_auc((x > z).mean(axis=(1, 2)), 40, 60)
    truth = 0.7602499389065233  # Phi(1 / sqrt(2))
    assert 0.93 <= ((low <= truth) & (truth <= high)).mean() <= 0.97


def test_distribution_band_holds_everywhere():
    """Uniform scores: the empirical distribution leaves the band in at most 5 % of the samples."""
    rows = np.sort(np.random.default_rng(0).random((2000, 50)), axis=1)
    steps = np.arange(51) / 50
    distance = np.maximum(steps[1:] - rows, rows - steps[:-1]).max(axis=1)
    assert (distance > distribution_band(50, 0.05)).mean() <= 0.05


SIZE = st.integers(1, 15)


def brute_force(hits, rows, delta, gamma, factor=1.0):
    """Largest chance of a difference as small as the observed one, over rates that are possible."""
    lows, highs = clopper_pearson(hits, rows, gamma / 4)
    low = max(lows[1], factor * lows[0] - delta)
    high = min(highs[1], factor * highs[0] - delta, factor - delta)
    observed = factor * hits[0] / rows[0] - hits[1] / rows[1]
    x, y = np.arange(rows[0] + 1), np.arange(rows[1] + 1)
    small = factor * x[:, None] / rows[0] - y / rows[1] <= observed + 1e-9
    chances = [
        float(binom.pmf(x, rows[0], (p + delta) / factor) @ small @ binom.pmf(y, rows[1], p))
        for p in (np.linspace(low, high, 101) if low <= high else ())
    ]
    return max(chances, default=0.0)


@pytest.mark.parametrize("comparison", [DIFFERENCE, SHORTFALL])
@settings(deadline=None, max_examples=40)
@given(SIZE, SIZE, st.floats(0, 1), st.floats(0, 1), st.floats(0.05, 0.95))
def test_p_values_are_never_too_small(comparison, n1, n2, a, b, limit):
    """At least the chance at any rates that the data do not rule out, and gamma for the others."""
    hits = round(a * n1), round(b * n2)
    delta, factor = (limit, 1.0) if comparison is DIFFERENCE else (0.0, 1.0 - limit)
    if delta > factor * hits[0] / n1 - hits[1] / n2:
        largest = brute_force(hits, (n1, n2), delta, 0.001, factor)
        assert comparison.p_value(hits, (n1, n2), limit, 0.001) >= largest - 1e-12


@pytest.mark.slow
@pytest.mark.parametrize(
    ("comparison", "n1", "n2", "p1", "p2"),
    [(DIFFERENCE, 12, 30, 0.5, 0.3), (SHORTFALL, 15, 20, 0.9, 0.85)],
)
def test_bound_of_a_comparison_errs_at_most_as_stated(comparison, n1, n2, p1, p2):
    """Exactly, over all outcomes: the bound is below the truth with a chance of at most alpha."""
    chance = np.outer(binom.pmf(np.arange(n1 + 1), n1, p1), binom.pmf(np.arange(n2 + 1), n2, p2))
    wrong = sum(
        chance[x, y]
        for x, y in np.argwhere(chance > 1e-7)
        if comparison.bound((int(x), int(y)), (n1, n2), 0.05) < comparison.of_rates(p1, p2)
    )
    assert wrong <= 0.05
