"""Bets are fair if the rule is just kept: then no evidence is expected, whatever came before."""

from itertools import product

import numpy as np
import pytest

from fairconstrained.monitoring.betting import (
    Bets,
    Comparison,
    interval,
    of_cap,
    of_gap,
    of_ratio,
    rate_bounds,
)

NONE = np.zeros(0, dtype=np.int8)


def outcomes(*values):
    return np.array(values, dtype=np.int8)


def after(comparison, cells):
    """Wealth after these blocks too; the comparison stays as it is."""
    copy = Comparison(comparison.bets)
    copy.counts, copy.late = comparison.counts.copy(), comparison.late.copy()
    copy.unspent = comparison.unspent
    copy.bet(cells)
    return copy.wealth


@pytest.mark.parametrize(
    ("payoffs", "rates", "claim"),
    [
        (of_gap(0.1), (0.4, 0.3), 0),
        (of_gap(0.1), (0.2, 0.3), 1),
        (of_ratio(0.2), (0.5, 0.4), 0),
        (of_ratio(0.2), (0.4, 0.5), 1),
    ],
)
@pytest.mark.parametrize("n_other", [1, 2, 4])
def test_at_the_limit_the_expected_wealth_stays(payoffs, rates, claim, n_other):
    """Over all outcomes of a block of one row of either group and several of the other.

    Of 32 more rows that wait none is taken.
    """
    comparison = Comparison(Bets.on(payoffs[claim : claim + 1]))
    comparison.bet(np.random.default_rng(0).integers(169, size=20))  # some history
    for few in (0, 1):
        expected = 0.0
        for one, *others in product((0, 1), repeat=1 + n_other):
            chance = [rates[few] if one else 1 - rates[few]]
            chance += [rates[1 - few] if x else 1 - rates[1 - few] for x in others]
            rows = [outcomes(one), outcomes(*others, *([0] * (32 if n_other > 1 else 0)))]
            cells = Comparison(comparison.bets).pair(rows[few], rows[1 - few])
            assert len(cells) == 1
            expected += np.prod(chance) * after(comparison, cells)
        assert expected == pytest.approx(comparison.wealth, rel=1e-12)


def test_caps_bet_on_single_rows():
    cap = 0.3
    comparison = Comparison(Bets.on(of_cap(cap)))
    comparison.bet(comparison.single(outcomes(1, 0, 0, 1)))
    no, yes = (after(comparison, comparison.single(outcomes(x))) for x in (0, 1))
    assert (1 - cap) * no + cap * yes == pytest.approx(comparison.wealth, rel=1e-12)


@pytest.mark.parametrize("share", [0.5, 0.3, 0.05])
def test_rows_are_used_and_no_row_is_used_twice(share):
    """Of the smaller group all, of the larger one up to four for each; some wait."""
    rng = np.random.default_rng(0)
    comparison, second = Comparison(Bets.on(of_gap(0.05))), rng.random(5000) >= share
    n_blocks, used = 0, 0
    for is_second in second:
        new = outcomes(1)
        before = sum(map(len, comparison.waiting)) + 1
        cells = comparison.pair(*((NONE, new) if is_second else (new, NONE)))
        assert cells.tolist() in ([], [168])  # the means of ones are one
        n_blocks += len(cells)
        used += (before - sum(map(len, comparison.waiting))) * len(cells)
    small, large = sorted([int((~second).sum()), int(second.sum())])
    assert 0.95 * small - 40 <= n_blocks <= small
    most = small + min(4 * small, large)
    assert 0.95 * most - 40 <= used <= most


def test_intervals_move_with_the_counts_and_hold_the_observed_value():
    rng = np.random.default_rng(0)
    comparison, widths = Comparison(Bets.on(of_gap(0.05))), []
    for _ in range(3):
        x, y = (rng.random((2, 2000)) < np.array([[0.5], [0.3]])).astype(np.int8)
        comparison.bet(comparison.pair(x, y))
        low, high = interval(comparison.counts[None], np.ones(1), of_gap, 0.05)
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
    assert interval(np.zeros((1, 169)), np.ones(1), of_gap, 0.05) == (0.0, 1.0)
