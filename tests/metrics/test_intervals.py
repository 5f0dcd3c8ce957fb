"""Intervals of metrics, proportions and differences: coverage, scipy, exact enumeration."""

import warnings
from functools import partial
from itertools import product

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, binomtest, norm

from fairconstrained import metrics
from fairconstrained.exceptions import MissingSensitiveFeaturesWarning, SmallGroupWarning
from fairconstrained.metrics import bounds, confidence_interval
from fairconstrained.metrics.intervals import READERS


def sample(seed=0, n=1500, n_groups=3, shift=0.4):
    rng = np.random.default_rng(seed)
    group = rng.integers(n_groups, size=n)
    true = rng.random(n) < 0.4
    score = rng.normal(size=n) + true - 0.5 + shift * group
    return true, score, group


def inputs(metric, true, score, group):
    name = metric.__name__
    if "omission" in name:  # more positives of the first group are found
        return score + true * (group == 0) > 0.2
    if "auc" in name or "equality" in name or "bpsn" in name:
        return score
    return 1 / (1 + np.exp(-score)) if name == "loss_gap" else score > 0.2


def ends_of(metric, y_true, y_pred, group, **options):
    options = {"random_state": 0, **options}
    return confidence_interval(metric, y_true, y_pred, sensitive_features=group, **options)


@pytest.mark.parametrize("metric", READERS, ids=lambda m: m.__name__)
def test_a_clear_gap_lies_in_its_interval_which_is_repeatable_and_shorter_for_more_rows(metric):
    lengths = []
    for n in (400, 3600):
        true, score, group = sample(n=n)
        values = inputs(metric, true, score, group)
        observed = metric(true, values, sensitive_features=group)
        low, high = ends_of(metric, true, values, group, random_state=1)
        assert low <= observed <= high or n == 400
        assert n > 400 or ends_of(metric, true, values, group, random_state=1) == (low, high)
        lengths.append(high - low)
    assert lengths[1] < 0.6 * lengths[0]


MIXED = (15, 20, 30, 50, 80, 120, 200, 300, 500, 700, 1000, 1000)
POPULATIONS = {
    "small extreme group": ((300, 300, 20), (0.4, 0.3, 0.55)),
    "small extreme group of two": ((84, 27), (0.4, 0.5)),
    "twelve equal groups": ((30,) * 12, (0.4,) * 12),
    "twelve groups, one apart": (MIXED, (0.4,) * 8 + (0.6,) + (0.4,) * 3),
    "four groups": ((60, 100, 140, 180), (0.4, 0.3, 0.3, 0.3)),
}
SIZES = {
    metrics.demographic_parity_difference: np.ptp,
    metrics.demographic_parity_ratio: lambda rates: min(rates) / max(rates),
    metrics.false_negative_rate: lambda rates: 1 - min(rates),
    metrics.equalized_odds_difference: np.ptp,
}
# Ratios and odds, which take longest, on two of the populations each.
OTHERS = [name for name in POPULATIONS if "one apart" not in name]
COVERED = list(product(list(SIZES)[::2], POPULATIONS))
COVERED += zip(list(SIZES)[1::2] * 2, OTHERS, strict=True)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The interval, .* does not contain the measured")
@pytest.mark.parametrize(("metric", "population"), COVERED)
def test_the_true_value_is_in_the_interval(metric, population):
    """In 190 of 200 samples; 180 and fewer, or all, have a chance below 2e-3 and 1e-4."""
    sizes, rates = POPULATIONS[population]
    n_labels = 1 + (metric is metrics.equalized_odds_difference)
    group = np.tile(np.repeat(np.arange(len(sizes)), sizes), n_labels)
    y = np.repeat([1, 0][:n_labels], sum(sizes))
    truth, covered = SIZES[metric](rates), 0
    for t in range(200):
        decisions = np.random.default_rng([t, 5]).random(len(y)) < np.array(rates)[group]
        rows = partial(metric, pos_label=1), y, decisions.astype(int), group
        low, high = ends_of(*rows, n_draws=1_000, random_state=t)
        covered += low - 1e-9 <= truth <= high + 1e-9
    assert 181 <= covered <= 199


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The interval, .* does not contain the measured")
def test_the_true_difference_of_aucs_of_few_rows_is_in_the_interval():
    """In 285 of 300 samples of five equal groups: 271 and fewer have a chance below 1e-3."""
    covered = 0
    for t in range(300):
        rng = np.random.default_rng([t, 7])
        group = rng.choice(5, size=150, p=np.linspace(1, 2, 5) / 7.5)
        true = rng.random(150) < 0.4
        score = rng.normal(size=150) + 1.2 * true
        rows = metrics.intra_group_auc_gap, true, score, group
        low, _ = ends_of(*rows, n_draws=1_000, random_state=t)
        covered += low <= 1e-9
    assert 272 <= covered < 300


def rows_of_groups(sizes, hits):
    group = np.repeat(np.arange(len(sizes)), sizes)
    decisions = np.concatenate([np.arange(n) < k for n, k in zip(sizes, hits, strict=True)])
    return decisions.astype(int), group


@pytest.mark.parametrize("n_small", [1, 4])
@pytest.mark.parametrize("metric", list(SIZES)[:2], ids=lambda m: m.__name__)
def test_small_groups_do_not_hide_what_two_large_ones_prove(metric, n_small):
    """The lower end is no worse than that of the two alone at Bonferroni's confidence."""
    sizes, hits = [900, 1100] + [32] * n_small, [630, 330] + [16] * n_small
    decisions, group = rows_of_groups(sizes, hits)
    large = group < 2
    ends = ends_of(metric, decisions, decisions, group)
    confidence = 1 - 0.05 / ((2 + n_small) * (1 + n_small) / 2)  # of pairs
    two = decisions[large], decisions[large], group[large]
    alone = ends_of(metric, *two, confidence=confidence)
    if metric is metrics.demographic_parity_ratio:
        assert ends[1] <= alone[1] + 0.01
    else:
        assert ends[0] >= alone[0] - 0.005


def test_a_cap_over_groups_alike_gives_its_lower_end_what_the_upper_one_cannot_use():
    """A tail of five sixths of alpha for two groups: half would be 2.24 deviations."""
    decisions, group = rows_of_groups((2000, 2000), (800, 800))
    low, high = ends_of(metrics.false_negative_rate, np.ones_like(decisions), decisions, group)
    deviation = np.sqrt(0.6 * 0.4 / 2000)
    expected = norm.isf(1 - np.sqrt(1 - 0.05 * 5 / 6))
    assert (0.6 - low) / deviation == pytest.approx(expected, abs=0.07)
    assert 0.6 < high < 0.6 + 2.1 * deviation


@pytest.mark.slow
def test_the_cap_over_a_small_group_that_could_be_the_highest_covers_exactly():
    """In 93 % to 97 % of all counts; in 97.6 % if half of alpha guarded each end."""
    sizes, rates, covered, total = (84, 27), (0.4, 0.5), 0.0, 0.0
    for hits in np.ndindex(85, 28):
        chance = np.prod(binom.pmf(hits, sizes, rates))
        if chance > 1e-4:
            decisions, group = rows_of_groups(sizes, hits)
            rows = metrics.false_negative_rate, np.ones_like(decisions), decisions, group
            low, high = ends_of(*rows, n_draws=1_000, random_state=28 * hits[0] + hits[1])
            covered, total = covered + chance * (low <= 0.6 <= high), total + chance
    assert total > 0.95
    assert 0.93 <= covered / total <= 0.97


@pytest.mark.parametrize(("sizes", "rate"), [((56, 19), 0.1), ((300, 15), 0.08)])
def test_a_small_group_may_have_the_largest_rate_whichever_comes_first(sizes, rate):
    """Nobody of the large group has a hit; in the small one any number, by its chance."""
    for order in (slice(None), slice(None, None, -1)):
        above = 0.0
        for few in range(round(sizes[1] * rate) + 1):
            decisions, group = rows_of_groups(sizes[order], (0, few)[order])
            rows = metrics.demographic_parity_difference, decisions, decisions, group
            above += binom.pmf(few, sizes[1], rate) * (ends_of(*rows, n_draws=1_000)[1] < rate)
        assert above <= 0.05


def test_ends_are_finite_and_farther_apart_the_more_confidence_is_asked_for():
    group, label = np.repeat([0, 1, 2], [1, 60, 60]), np.arange(121) % 2
    alike = np.where(group == 1, 0.5, 0.1 + 0.8 * np.random.default_rng(0).random(121))
    for metric, values, most in (
        (metrics.loss_gap, alike, 10.0),  # of one row, and of rows alike
        (metrics.loss_gap, np.full(121, 0.5), 1e-6),
        (metrics.group_auc_gap, np.full(121, 0.5), 1.0),
        (metrics.separation_gap, group == 1, 2.0),
    ):
        some = slice(None) if metric is metrics.loss_gap else slice(1, None)
        rows = metric, label[some], values[some]
        value = metric(*rows[1:], sensitive_features=group[some])
        with warnings.catch_warnings(action="error"):
            ends = [ends_of(*rows, group[some], confidence=c) for c in (0.8, 0.95, 0.999)]
        lows, highs = zip(*ends, strict=True)
        assert lows[0] >= lows[1] >= lows[2] >= 0
        assert value <= highs[0] <= highs[1] <= highs[2] <= most


@pytest.mark.parametrize("hits", [(0, 0), (0, 15), (1, 0), (0, 1000)])
def test_rates_of_zero_and_one(hits):
    decisions, group = rows_of_groups((15, 1000), hits)
    for metric in list(SIZES)[: 1 + any(hits)]:  # no ratio of zeros
        value = metric(decisions, decisions, sensitive_features=group)
        low, high = ends_of(metric, decisions, decisions, group)
        assert 0 <= low <= value <= high <= 1


def test_an_interval_without_its_metric_says_why():
    """Groups whose observed rates are equal have a gap in all resampled rows."""
    decisions, group = rows_of_groups([30] * 6, [12] * 6)
    rows = metrics.demographic_parity_difference, decisions, decisions, group
    with pytest.warns(SmallGroupWarning, match="does not contain the measured 0: .* bias"):
        low, _ = ends_of(*rows, method="bootstrap")
    assert low > 0


def test_metrics_of_the_users_own():
    """Rows are resampled; the mean score's interval is the normal one."""
    true, score, group = sample()

    def mean_score(y_true, y_pred, *, sensitive_features):
        return float(np.mean(y_pred))

    low, high = ends_of(mean_score, true, score, group)
    half = 1.96 * score.std() / np.sqrt(len(score))
    assert low == pytest.approx(score.mean() - half, abs=0.15 * half)
    assert high == pytest.approx(score.mean() + half, abs=0.15 * half)
    with pytest.raises(ValueError, match="inversion"):
        confidence_interval(mean_score, true, score, sensitive_features=group, method="inversion")


def test_more_draws_leave_less_to_the_seed():
    """The ends of eight seeds differ by a seventh for fifty times as many draws."""
    true, score, group = sample(n=300)

    def spread(n_draws):
        rows = metrics.demographic_parity_difference, true, score > 0, group
        ends = [ends_of(*rows, n_draws=n_draws, random_state=seed) for seed in range(8)]
        return np.std(ends, axis=0)

    assert (spread(5_000) < 0.5 * spread(100)).all()


def test_weights():
    """Constant ones change nothing; unequal ones make the interval longer."""
    true, score, group = sample()
    rows = metrics.demographic_parity_difference, true, score > 0, group
    plain = ends_of(*rows)
    assert ends_of(*rows, sample_weight=np.full(1500, 2.0)) == pytest.approx(plain, abs=1e-9)
    uneven = np.random.default_rng(0).exponential(size=1500)
    ends = ends_of(*rows, sample_weight=uneven)
    assert ends[1] - ends[0] > 1.15 * (plain[1] - plain[0])


def test_nan_stays_nan():
    """A group without positives has no true positive rate."""
    y_true, y_pred, group = [0, 0, 1, 0], [0, 1, 1, 0], list("aabb")
    rows = metrics.equal_opportunity_difference, y_true, y_pred
    with pytest.warns(SmallGroupWarning, match="group a"):
        ends = confidence_interval(*rows, sensitive_features=group)
    assert np.isnan(ends).all()


def test_rows_are_read_once_and_options_are_those_of_the_metric():
    """What there is to say of the rows is said once, and a metric takes its own options only."""
    true, score, group = sample(n=200)
    metric, some = metrics.demographic_parity_difference, np.where(group == 0, np.nan, group)
    with pytest.warns(MissingSensitiveFeaturesWarning) as told:
        confidence_interval(metric, true, score > 0, sensitive_features=some, random_state=0)
    assert len(told) == 1
    with pytest.raises(TypeError, match="unexpected keyword argument 'agg'"):
        confidence_interval(partial(metric, agg="mean"), true, true, sensitive_features=group)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"confidence": 2}, "confidence"),
        ({"method": "best"}, "method"),
        ({"metric": "dp"}, "metric must be a function"),
        *(({"n_draws": number}, "None or an integer >= 100") for number in (99, 100.5, True)),
    ],
)
def test_wrong_parameters(options, match):
    metric, rows = metrics.error_rate_difference, {"y_true": [0, 1], "y_pred": [0, 1]}
    options = {"metric": metric, "sensitive_features": [0, 1], **rows, **options}
    with pytest.raises(ValueError, match=match):
        confidence_interval(**options)


def test_bootstrap_ignores_warnings_of_single_draws():
    y_true, y_pred, group = [0, 1] * 3 + [1], [0, 1, 1, 1, 0, 1, 0], list("aaabbbb")
    rows = metrics.equal_opportunity_difference, y_true, y_pred, group
    with warnings.catch_warnings(action="error"):
        ends_of(*rows, method="bootstrap")


def test_resampled_rows_keep_the_order_of_labels_and_missing_groups():
    """An ordered column says which label is favourable; a list with NaN has no group "nan"."""
    y_true, y_pred, group = [0, 1] * 30, [0, 0, 1, 1, 0, 1] * 10, ["a", "b", np.nan] * 20
    rows = metrics.equal_opportunity_difference, y_true, y_pred, pd.Series(group)
    options = {"method": "bootstrap", "n_draws": 100}
    expected = ends_of(*rows, **options)
    order = pd.CategoricalDtype(["no", "yes"], ordered=True)
    words = (pd.Series(np.take(order.categories, y), dtype=order) for y in (y_true, y_pred))
    assert ends_of(rows[0], *words, group, **options) == expected


@pytest.mark.parametrize("n_rows", [40, 400])
def test_groups_that_are_alike_by_chance_do_not_prove_equality(n_rows):
    """A difference of zero has standard error s: the gap may be 1.2 of them, and not 3."""
    group, label = np.repeat([0, 1], n_rows), np.tile(np.arange(n_rows) < 0.4 * n_rows, 2)
    proba = np.tile(np.random.default_rng(0).random(n_rows), 2)
    losses = -np.log(np.where(label, proba, 1.0 - proba))
    for metric, values, of_rows in (
        (metrics.demographic_parity_difference, label, label),
        (metrics.loss_gap, proba, losses),
    ):
        error = np.std(of_rows) * np.sqrt(2.0 / n_rows)
        low, high = ends_of(metric, label, values, group)
        assert low == 0.0
        assert 1.2 * error < high < 3.0 * error


def test_perfect_ranks_do_not_prove_equal_aucs():
    """One of n positives may rank below all others where none of n did."""
    n_rows = 50
    group, label = np.tile(np.repeat([0, 1], n_rows), 2), np.repeat([0, 1], 2 * n_rows)
    low, high = ends_of(metrics.intra_group_auc_gap, label, label, group)
    assert low == 0.0
    assert 1.0 / n_rows < high < 4.0 / n_rows


def test_all_of_alpha_guards_the_end_that_counts_can_guard():
    """Of 15 rows with a rate below .1 none may have a hit: the upper end is that of one tail."""
    decisions, group = rows_of_groups((15, 1000), (3, 300))
    _, high = ends_of(metrics.demographic_parity_difference, decisions, decisions, group)
    rate = 0.3 - high
    tail = binom.sf(2, 15, rate) - 0.5 * binom.pmf(3, 15, rate)
    assert tail == pytest.approx(0.05, abs=0.01)


@pytest.mark.parametrize(("hits", "rows"), [(0, 7), (3, 7), (7, 7), (40, 200)])
def test_proportions_are_scipys(hits, rows):
    test = binomtest(hits, rows)
    expected = test.proportion_ci(0.9, method="wilson")
    np.testing.assert_allclose(bounds.wilson(hits, rows, 0.9), expected, atol=1e-12)
    expected = test.proportion_ci(0.9, method="exact")
    np.testing.assert_allclose(bounds.clopper_pearson(hits, rows, 0.05), expected, atol=1e-12)


def test_without_rows_nothing_is_known():
    assert np.isnan(bounds.wilson(0, 0)).all()
    assert [float(end) for end in bounds.clopper_pearson(0, 0, 0.05)] == [0.0, 1.0]


def test_auc_interval_covers():
    """Binormal scores, AUC .76: between .93 and .97 of 600 intervals."""
    rng = np.random.default_rng(0)
    x, z = rng.normal(size=(600, 40, 1)) + 1.0, rng.normal(size=(600, 1, 60))
    low, high = bounds.newcombe_auc((x > z).mean(axis=(1, 2)), 40, 60)
    truth = 0.7602499389065233  # Phi(1 / sqrt(2))
    assert 0.93 <= ((low <= truth) & (truth <= high)).mean() <= 0.97


def test_distribution_band_holds_everywhere():
    """Uniform scores: the empirical distribution leaves the band in at most 5 % of the samples."""
    rows = np.sort(np.random.default_rng(0).random((2000, 50)), axis=1)
    steps = np.arange(51) / 50
    distance = np.maximum(steps[1:] - rows, rows - steps[:-1]).max(axis=1)
    assert (distance > bounds.distribution_band(50, 0.05)).mean() <= 0.05


SIZE = st.integers(1, 15)


def brute_force(hits, rows, delta, gamma, factor=1.0):
    """Largest chance of a difference as small as the observed one, over rates that are possible."""
    lows, highs = bounds.clopper_pearson(hits, rows, gamma / 4)
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


@pytest.mark.parametrize("comparison", [bounds.DIFFERENCE, bounds.SHORTFALL])
@settings(deadline=None, max_examples=40)
@given(SIZE, SIZE, st.floats(0, 1), st.floats(0, 1), st.floats(0.05, 0.95), st.floats(0.01, 0.9))
def test_no_comparison_is_excluded_that_is_possible(comparison, n1, n2, a, b, limit, alpha):
    """Rates that the data do not rule out have a chance of alpha at most, with gamma for others."""
    hits = round(a * n1), round(b * n2)
    delta, factor = (limit, 1.0) if comparison is bounds.DIFFERENCE else (0.0, 1.0 - limit)
    if comparison.excludes(hits, (n1, n2), limit, alpha):
        assert delta > factor * hits[0] / n1 - hits[1] / n2
        gamma = alpha / 50
        assert brute_force(hits, (n1, n2), delta, gamma, factor) + gamma <= alpha + 1e-12


SMALL = [(bounds.DIFFERENCE, 12, 30, 0.5, 0.3), (bounds.SHORTFALL, 15, 20, 0.9, 0.85)]


@pytest.mark.slow
@pytest.mark.parametrize(("comparison", "n1", "n2", "p1", "p2"), SMALL)
def test_bound_of_a_comparison_errs_at_most_as_stated(comparison, n1, n2, p1, p2):
    """Exactly, over all outcomes: the bound is below the truth with a chance of at most alpha."""
    chance = np.outer(binom.pmf(np.arange(n1 + 1), n1, p1), binom.pmf(np.arange(n2 + 1), n2, p2))
    wrong = sum(
        chance[x, y]
        for x, y in np.argwhere(chance > 1e-7)
        if comparison.bound((int(x), int(y)), (n1, n2), 0.05) < comparison.of_rates(p1, p2)
    )
    assert wrong <= 0.05
