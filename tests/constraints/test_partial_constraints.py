"""Partial parity: hard values, full parity, convex parts, starts, small sets, bad input."""

import numpy as np
import pytest
import torch

from fairconstrained import constraints, metrics
from fairconstrained.constraints.partial_notions import _EDGES
from fairconstrained.percentiles import auc_inside, rank_of_scores, read_intervals
from tests.helpers.metrics import PARTIAL_METRICS
from tests.helpers.notions import bound as bound_to
from tests.helpers.notions import hard_values, random_rows, soft_values

INTERVALS = [(0.05, 0.4), (0.0, 1.0), [(0.0, 0.2), (0.3, 0.8)]]
RATES = {
    "demographic_parity": (constraints.PartialDemographicParity, constraints.DemographicParity),
    "equal_opportunity": (constraints.PartialEqualOpportunity, constraints.EqualOpportunity),
    "equalized_odds": (constraints.PartialEqualizedOdds, constraints.EqualizedOdds),
}
CONVEX = [name for name in constraints.PARTIAL if name != "group_auc"]


def bound(notion, n_groups=3, temperature=1.5, slack=0.05):
    return bound_to(notion, (2, n_groups), temperature, slack)


def variables(constraint, rows):
    """Extra variables near those of the start, in no order."""
    noise = torch.as_tensor(np.random.default_rng(0).normal(size=constraint.n_aux))
    return constraint.init_aux(rows.scores, rows.on(constraint)) + noise


def rates_of(rows, values):
    masks = (rows.group == 0, rows.group == 1)
    return [np.average(values[mask], axis=0, weights=rows.weight[mask]) for mask in masks]


EACH = dict(zip("abcd", [(0.0, 0.3), [(0.1, 0.2), (0.6, 0.9)], *INTERVALS], strict=False))


@pytest.mark.parametrize(
    ("interval", "n_groups"), [(INTERVALS[0], 2), (INTERVALS[2], 4), (EACH, 4)]
)
@pytest.mark.parametrize("name", constraints.PARTIAL)
def test_hard_values_are_the_metric_minus_slack(name, n_groups, interval):
    """Whatever the extra variables; with ties, thresholds, and an interval for each group."""
    rows = random_rows(1, n_groups=n_groups, n=120)
    rows = rows._replace(scores=(4 * rows.scores + 3 * rows.group[:, None] - 2).round() / 4)
    if interval is EACH:
        interval = {group: EACH[group] for group in "abcd"[:n_groups]}
    own = {"threshold": 0.1 * n_groups} if name in RATES else {}
    constraint = bound(constraints.PARTIAL[name](interval, **own), n_groups)
    hard = hard_values(constraint, rows, variables(constraint, rows))
    given = rows.beside_labels | {"sensitive_features": np.array(list("abcd"))[rows.group]}
    labels = rows.y.numpy(), rows.scores.numpy()
    expected = PARTIAL_METRICS[name](*labels, interval=interval, **given, **own)
    assert expected > 0.05
    assert constraint.measure(hard) == pytest.approx(expected, abs=1e-12)
    assert hard.max().item() == pytest.approx(expected - 0.05, abs=1e-12)


@pytest.mark.parametrize("name", RATES)
def test_the_whole_interval_is_full_parity(name):
    partial, full = RATES[name]
    rows = random_rows(4, n=100)
    one, other = bound(partial((0.0, 1.0))), bound(full())
    none = torch.zeros(0)
    for values in (soft_values, hard_values):
        mine, theirs = (values(c, rows, none).sort().values.numpy() for c in (one, other))
        assert mine == pytest.approx(theirs, abs=1e-12)


@pytest.mark.parametrize("leak", [0.0, 0.05])
def test_the_paper_s_form_of_partial_demographic_parity(leak):
    """Problem (21), divided by the length; the leak adds its slope outside of the interval."""
    rows = random_rows(5, n_groups=2, n=100)
    a, b = 0.1, 0.55
    constraint = bound(constraints.PartialDemographicParity((a, b), leak=leak), 2)
    p = torch.sigmoid(1.5 * rows.scores[:, 0])
    rates = rates_of(rows, p)
    inside = [min(r, b) - min(r, a) for r in rates]
    values = [(1 - leak) * i + leak * r for i, r in zip(inside, rates, strict=True)]
    gap = (values[0] - values[1]) / (b - a)
    values = soft_values(constraint, rows, torch.zeros(0)).numpy()
    assert values == pytest.approx([gap - 0.05, -gap - 0.05])


def test_the_paper_s_form_of_partial_statistical_parity():
    """Problem (15): values times (beta - alpha) / 2 are its constraints, p on a grid."""
    rows = random_rows(6, n_groups=2, n=80)
    (a, b), slack, n_grid = (0.1, 0.6), 0.2, 4
    constraint = bound(constraints.PartialStatisticalParity((a, b), slack, n_grid=n_grid), 2)
    theta = torch.linspace(1.0, -1.0, n_grid, dtype=torch.float64)
    p = np.linspace(a, b - slack * (b - a), n_grid)
    steps = torch.sigmoid(1.5 * (rows.scores - theta))
    rates = np.stack(rates_of(rows, steps))
    expected = np.concatenate((rates - p - slack * (b - a), p - rates)).reshape(-1)
    values = soft_values(constraint, rows, theta).numpy() * (b - a) / 2
    assert values == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("interval", [(0.0, 0.3), [(0.1, 0.2), (0.6, 0.8)]], ids=str)
@pytest.mark.parametrize("ratio", [0.8, 1.25])
def test_the_gap_of_ranks_is_kept_where_every_middle_has_its_threshold(interval, ratio):
    """Middles on a fine grid, exact rates: slack above the gap if and only if all are met."""
    rng = np.random.default_rng(0)
    n = 4000
    scores = np.concatenate((rng.normal(size=n), 0.3 + 1.2 * rng.normal(size=n)))
    group = np.repeat([0, 1], n)
    slack = ratio * metrics.ccdf_gap(None, scores, sensitive_features=group, interval=interval)
    constraint = bound(constraints.PartialRankParity(interval, n_grid=300), 2, slack=slack)
    rank = rank_of_scores(scores, group, np.ones(2 * n), 2).rank
    off = np.abs(rank[:, None, :] - constraint.grid[None, :, None]).max(axis=0).min(axis=1)
    met = 2.0 * off.max() <= slack + 4.0 / n
    assert met == (ratio > 1.0)


def notions(surrogate):
    return [
        notion(interval, surrogate=surrogate)
        for interval in INTERVALS
        for notion in (constraints.PARTIAL[name] for name in CONVEX)
    ]


every_surrogate = pytest.mark.parametrize("surrogate", ["logistic", "ramp"])


@every_surrogate
def test_convex_minus_concave_is_the_value(surrogate):
    for seed, notion in enumerate(notions(surrogate)):
        rows = random_rows(seed, n=90)
        constraint = bound(notion)
        assert constraint.difference_of_convex
        aux = variables(constraint, rows)
        for scale in (0.1, 1.0, 20.0):
            scaled = rows._replace(scores=scale * rows.scores)
            first, second = constraint.convex_parts(scaled.scores, scaled.on(constraint), aux)
            expected = soft_values(constraint, scaled, aux).numpy()
            assert (first - second).numpy() == pytest.approx(expected, abs=1e-9)


@every_surrogate
def test_both_parts_are_convex_along_segments(surrogate):
    """For scores linear in parameters: midpoints lie below chords, strictly for some."""
    rng = np.random.default_rng(0)
    for seed, notion in enumerate(notions(surrogate)):
        rows = random_rows(seed, n=60)
        X = torch.as_tensor(rng.normal(size=(len(rows.y), 3)))
        constraint = bound(notion)
        bends = np.zeros(2)
        for _ in range(5):
            sizes = (3, 1), constraint.n_aux  # parameters of three columns, and extra variables
            ends = ([2.0 * rng.normal(size=size) for size in sizes] for _ in range(2))
            segment = [list(map(torch.as_tensor, end)) for end in ends]
            ends = [constraint.convex_parts(X @ w, rows.on(constraint), aux) for w, aux in segment]
            w, aux = (0.5 * (one + other) for one, other in zip(*segment, strict=True))
            middle = constraint.convex_parts(X @ w, rows.on(constraint), aux)
            bend = 0.5 * (ends[0] + ends[1]) - middle
            assert (bend > -1e-12).all()
            bends = np.maximum(bends, bend.max(dim=1).values.numpy())
        assert (bends > 0.01).all()


@every_surrogate
@pytest.mark.parametrize("name", constraints.PARTIAL)
def test_tied_scores_are_feasible_at_the_start(name, surrogate):
    """Strictly, by the whole slack; whatever the tied score, the intervals and the groups."""
    for interval, value in zip(INTERVALS, (0.0, -2.5, 1.0), strict=True):
        rows = random_rows(9)
        rows = rows._replace(scores=torch.full_like(rows.scores, value))
        constraint = bound(constraints.PARTIAL[name](interval, surrogate=surrogate))
        aux = constraint.init_aux(rows.scores, rows.on(constraint))
        slack = pytest.approx(np.full(len(constraint.slack), -0.05), abs=1e-9)
        assert hard_values(constraint, rows, aux).numpy() == slack
        assert soft_values(constraint, rows, aux).max().item() <= 1e-9


def test_small_sets_are_left_out_and_counted():
    counts = np.array([[20, 20, 3], [20, 3, 20]])
    notion = constraints.PartialStatisticalParity((0.0, 0.04))
    constraint, dropped = bound(notion).without_small(counts, 1)
    words = "(23 rows, 0.92 of them in the interval)"
    alone = "group a (40 rows, nothing to compare it with)"
    assert dropped == [f"group b {words}", f"group c {words}", alone]
    assert len(constraint.slack) == 0
    odds = bound(constraints.PartialEqualizedOdds((0.0, 0.5)))
    kept, dropped = odds.without_small(counts, 5)
    assert [word.split(" (")[0] for word in dropped] == ["group c, label 0", "group b, label 1"]
    assert [kept.describe(j) for j in range(len(kept.slack))] == [
        f"partial_equalized_odds: group {g}, label {y} against group {h}, label {y}"
        for g, h, y in ("ab0", "ba0", "ac1", "ca1")
    ]
    assert odds.without_small(counts, 1) == (odds, [])


def test_a_dropped_set_leaves_the_others_values():
    rows = random_rows(11, n_groups=3)
    counts = np.array([[20, 20, 1], [20, 20, 1]])
    for notion in constraints.PARTIAL.values():
        kept, dropped = bound(notion((0.1, 0.6))).without_small(counts, 3)
        assert dropped
        two = bound(notion((0.1, 0.6)), 2)
        aux = variables(two, rows.take(rows.group < 2))
        expected = soft_values(two, rows.take(rows.group < 2), aux).numpy()
        assert soft_values(kept, rows, aux).numpy() == pytest.approx(expected, abs=1e-12)


def test_bins_err_by_at_most_half_the_mass_they_share():
    """The bound in the docstring, for steps that are indicators; and it is not vacuous."""
    for seed in range(5):
        rows = random_rows(seed, n_groups=2, n=300)
        z, group = rows.scores[:, 0].numpy(), rows.group.numpy()
        intervals = read_intervals((0.1, 0.6), ["a", "b"])
        exact = auc_inside(intervals.fraction(rank_of_scores(z, group, rows.weight, 2).rank))
        constraint = bound(constraints.PartialGroupAUC((0.1, 0.6), 0.0), 2, temperature=1e6)
        binned = soft_values(constraint, rows, torch.zeros(0)) + 0.5
        edges = np.concatenate(([-np.inf], _EDGES.numpy(), [np.inf]))
        above = torch.as_tensor(z[:, None] > edges).double()
        rates = np.stack(rates_of(rows, above))
        mass = -np.diff(intervals.fraction(rates), axis=1)
        error = abs(float(binned[0]) - exact[0, 1])
        assert 0 < error <= 0.5 * mass[0] @ mass[1] < 0.1
