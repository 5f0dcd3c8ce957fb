"""Bets are fair if the rule is just kept: then no evidence is expected, whatever came before."""

import copy
import functools
from itertools import product

import numpy as np
import pytest

from fairconstrained.monitoring.betting import (
    BETS,
    TOGETHER,
    WINDOW,
    Bets,
    Comparison,
    cap_payoffs,
    gap_payoffs,
    interval,
    rate_bounds,
    ratio_payoffs,
)


def after(comparison, cells):
    after = copy.deepcopy(comparison)
    after.bet(np.asarray(cells))
    return after.wealth


# Rates of the second group at which each claim is just kept, by rates of the first.
AT_THE_LIMIT = {
    (gap_payoffs, 0): lambda p: p - 0.1,
    (gap_payoffs, 1): lambda p: p + 0.1,
    (ratio_payoffs, 0): lambda p: 0.9 * p,
    (ratio_payoffs, 1): lambda p: p / 0.9,
}
MOVING = np.array([0.2, 0.8, 0.3, 0.7, 0.5, 0.15, 0.4, 0.85])


@functools.cache
def windows(size):
    """All groups of the rows of a window, and the cells of all outcomes of each, in their order."""
    comparison, every = Comparison(Bets.on(gap_payoffs(0.1))), all_of(size)
    return [
        (groups, [comparison.windows(hits, groups, range(size)) for hits in every])
        for groups in every > 0
    ]


def all_of(size):
    return np.array(list(product((0, 1), repeat=size)), dtype=np.int8)


def mean_growth(payoffs, claim, share, first, second, size=WINDOW):
    """Expected growth of each bet in a window whose row t is of the first group with share_t."""
    share, first, second = (np.resize(values, size) for values in (share, first, second))
    bets, hits, total = Bets.on(payoffs(0.1)), all_of(size), 0.0
    growth = np.exp(bets.growth).reshape(len(bets.growth), 2, -1)[:, claim]
    for groups, cells in windows(size):
        rates = np.where(groups, first, second)
        chance = np.prod(np.where(groups, share, 1 - share))
        likely = np.prod(np.where(hits, rates, 1 - rates), axis=1)
        won = [growth[one].prod(axis=0) for one in cells]
        total += chance * (likely @ np.array(won))
    return total


@pytest.mark.parametrize(("payoffs", "claim"), AT_THE_LIMIT)
@pytest.mark.parametrize(
    ("share", "rate", "size"),
    [(0.3, MOVING, WINDOW), (MOVING, 0.6, WINDOW), (0.02, 0.5, WINDOW), (0.3, MOVING, TOGETHER)],
)
def test_no_growth_is_expected_if_rates_or_shares_stand_still(payoffs, claim, share, rate, size):
    """At the limit in every row, of every bet, over all groups and outcomes of a window."""
    other = AT_THE_LIMIT[payoffs, claim](rate)
    growth = mean_growth(payoffs, claim, share, rate, other, size)
    assert growth == pytest.approx(1.0, abs=1e-12)


def test_rows_of_large_calls_are_compared_with_each_other_only():
    """Rows that wait are a window of their own then; those of small calls wait for a whole one."""
    outcomes, first = np.random.default_rng(0).integers(2, size=(2, 50))
    bets, places = Bets.on(gap_payoffs(0.05)), np.arange(50)
    comparison, apart, one_by_one = (Comparison(bets) for _ in range(3))
    for start, stop in ((0, 3), (3, 5), (5, 18), (18, 42)):
        rows = slice(start, stop)
        comparison.bet(comparison.windows(outcomes[rows], first[rows], places[rows]))
    for start, stop in ((0, 5), (5, 13), (13, 18), (18, 26), (26, 34), (34, 42)):
        rows = slice(start, stop)
        apart.bet(apart.windows(outcomes[rows], first[rows], places[rows]))
    np.testing.assert_array_equal(comparison.counts, apart.counts)
    for row in range(50):
        one = slice(row, row + 1)
        one_by_one.bet(one_by_one.windows(outcomes[one], first[one], places[one]))
    assert one_by_one.waiting.shape == (3, 50 % WINDOW)


def test_windows_are_no_longer_than_64_rows_of_the_stream():
    """Alike in one call and one by one: four windows of two rows and one of a group alone."""
    places = np.array([0, 63, 64, 127, 128, 300, 363, 364, 427])
    outcomes, first = places % 2, np.arange(9) % 2
    at_once, one_by_one = (Comparison(Bets.on(gap_payoffs(0.05))) for _ in range(2))
    at_once.bet(at_once.windows(outcomes, first, places))
    for row in range(9):
        one = slice(row, row + 1)
        one_by_one.bet(one_by_one.windows(outcomes[one], first[one], places[one]))
    assert at_once.counts.sum() == 4
    assert one_by_one.counts.sum() == 3  # the last window may get more rows
    assert one_by_one.waiting[2].tolist() == [364, 427]


def test_if_both_move_small_bets_grow_by_their_covariance():
    share, second = MOVING, np.linspace(0.1, 0.8, WINDOW)
    growth = mean_growth(gap_payoffs, 0, share, second + 0.1, second)
    most = 8 * np.cov(share, second, ddof=0)[0, 1] / 1.1
    assert (growth[-1] - 1) / BETS[-1] == pytest.approx(most, rel=0.02)


def test_wealth_grows_by_what_bets_win():
    """If no bet is expected to grow, neither is wealth."""
    comparison = Comparison(Bets.on(gap_payoffs(0.1)))
    n_cells = len(comparison.counts)
    comparison.bet(np.random.default_rng(0).integers(n_cells, size=20))  # some history
    chances = np.random.default_rng(1).dirichlet(np.ones(n_cells))
    # Chances under which every bet on both claims has a mean growth of one.
    table = np.vstack((np.exp(comparison.bets.growth).T, np.ones(n_cells)))
    chances -= np.linalg.pinv(table) @ (table @ chances - 1)
    mean = sum(c * after(comparison, [cell]) for cell, c in enumerate(chances))
    assert mean == pytest.approx(comparison.wealth, rel=1e-9)


def test_caps_bet_on_single_rows():
    cap = 0.3
    comparison = Comparison(Bets.on(cap_payoffs(cap)))
    comparison.bet(np.array([1, 0, 0, 1]))
    no, yes = (after(comparison, [x]) for x in (0, 1))
    assert (1 - cap) * no + cap * yes == pytest.approx(comparison.wealth, rel=1e-12)


@pytest.mark.parametrize("payoffs", [gap_payoffs, ratio_payoffs, cap_payoffs])
def test_wealth_stays_positive_and_falls_with_the_limit(payoffs):
    """Whatever happens, so that bounds can be found by bisection."""
    growth = np.stack([Bets.on(payoffs(v)).growth for v in np.linspace(0, 1, 21)])
    assert np.isfinite(growth).all()
    assert (np.diff(growth, axis=0) <= 1e-12).all()


def test_intervals_move_with_the_counts_and_hold_the_observed_value():
    rng = np.random.default_rng(0)
    comparison, widths = Comparison(Bets.on(gap_payoffs(0.05))), []
    for _ in range(3):
        first = rng.random(4000) < 0.5
        outcomes = rng.random(4000) < np.where(first, 0.5, 0.3)
        comparison.bet(comparison.windows(outcomes, first, np.arange(4000)))
        low, high = interval(comparison.counts[None], np.ones(1), gap_payoffs, 0.05)
        assert low < 0.2 < high
        widths.append(high - low)
    assert widths[0] > widths[1] > widths[2]
    assert widths[2] < 0.12


@pytest.mark.parametrize("rate", [0.02, 0.4])
def test_bounds_of_rates_hold_at_all_times(rate):
    """Of 300 streams of 2,000 rows; that more than 30 ever leave them has a chance below 1e-3."""
    hits = (np.random.default_rng(0).random((300, 2000)) < rate).cumsum(axis=1)[:, 9::50]
    rows = np.broadcast_to(np.arange(1, 2001)[9::50], hits.shape)
    low, high = rate_bounds(hits, rows, 0.05)
    assert ((low > rate) | (high < rate)).any(axis=1).sum() <= 30
    assert np.all(low <= hits / rows)
    assert np.all(high >= hits / rows)


def test_without_rows_nothing_is_known():
    nothing = np.zeros((1, 1), dtype=int)
    low, high = rate_bounds(nothing, nothing, 0.05)
    assert (low.item(), high.item()) == pytest.approx((0.0, 1.0), abs=1e-4)
    counts = Comparison(Bets.on(gap_payoffs(0.05))).counts
    assert interval(counts[None], np.ones(1), gap_payoffs, 0.05) == (0.0, 1.0)
