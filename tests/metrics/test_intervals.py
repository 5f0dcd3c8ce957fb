"""Intervals of metrics: what they are made of, coverage, and any metric at all."""

import warnings

import numpy as np
import pytest

from fairconstrained import metrics
from fairconstrained.exceptions import SmallGroupWarning
from fairconstrained.metrics import confidence_interval, intervals
from fairconstrained.metrics.intervals import COMPONENTS


@pytest.fixture
def _few_draws(monkeypatch):
    """Whether an interval covers depends little on how many draws it takes."""
    monkeypatch.setattr(intervals, "N_DRAWS", 2_000)


def sample(seed=0, n=1500, n_groups=3, shift=0.4):
    rng = np.random.default_rng(seed)
    group = rng.integers(n_groups, size=n)
    true = rng.random(n) < 0.4
    score = rng.normal(size=n) + true - 0.5 + shift * group
    return true, score, group


def inputs(metric, true, score, group):
    """What the metric reads."""
    name = metric.__name__
    if "omission" in name:  # more positives of the first group are found
        return score + true * (group == 0) > 0.2
    if "auc" in name or "equality" in name or "bpsn" in name:
        return score
    return 1 / (1 + np.exp(-score)) if name == "loss_gap" else score > 0.2


@pytest.mark.parametrize("metric", COMPONENTS, ids=lambda m: m.__name__)
def test_a_clear_gap_lies_in_its_interval_which_is_repeatable_and_shorter_for_more_rows(metric):
    lengths = []
    for n in (400, 3600):
        true, score, group = sample(n=n)
        values = inputs(metric, true, score, group)
        observed = metric(true, values, sensitive_features=group)
        given = {"sensitive_features": group, "random_state": 1}
        low, high = confidence_interval(metric, true, values, **given)
        assert low <= observed <= high or n == 400
        assert confidence_interval(metric, true, values, **given) == (low, high)
        lengths.append(high - low)
    assert lengths[1] < 0.6 * lengths[0]


@pytest.mark.slow
@pytest.mark.usefixtures("_few_draws")
@pytest.mark.parametrize(("n_groups", "gap"), [(2, 0.0), (2, 0.3), (4, 0.1)])
def test_coverage_of_demographic_parity(gap, n_groups):
    """Of 200 samples with 60 rows or more a group, also where the truth is zero."""
    rng = np.random.default_rng(n_groups)
    group = np.repeat(np.arange(n_groups), 60 + 40 * np.arange(n_groups))
    rate = np.where(group == 0, 0.3 + gap, 0.3)
    metric = metrics.demographic_parity_difference
    covered = 0
    for t in range(200):
        y = rng.random(len(group)) < rate
        low, high = confidence_interval(metric, y, y, sensitive_features=group, random_state=t)
        covered += low <= gap <= high
    # Three standard errors of 200 trials are .046.
    assert 0.95 - 0.046 <= covered / 200 <= 0.95 + 0.046


@pytest.mark.slow
@pytest.mark.usefixtures("_few_draws")
def test_a_fair_model_does_not_look_unfair():
    """Twelve groups of 30 rows, one rate: measured far above zero, which lies in the interval."""
    group = np.repeat(np.arange(12), 30)
    rng = np.random.default_rng(0)
    metric = metrics.demographic_parity_difference
    observed, fair = [], 0
    for t in range(50):
        y = rng.random(360) < 0.4
        given = {"sensitive_features": group, "random_state": t}
        observed.append(metric(y, y, sensitive_features=group))
        fair += confidence_interval(metric, y, y, **given)[0] == 0
    assert np.mean(observed) > 0.25
    assert fair >= 44


def test_metrics_of_the_users_own():
    """Rows are resampled; the mean score's interval is the normal one."""
    true, score, group = sample()

    def mean_score(y_true, y_pred, *, sensitive_features):
        return float(np.mean(y_pred))

    low, high = confidence_interval(
        mean_score, true, score, sensitive_features=group, random_state=0
    )
    half = 1.96 * score.std() / np.sqrt(len(score))
    assert low == pytest.approx(score.mean() - half, abs=0.15 * half)
    assert high == pytest.approx(score.mean() + half, abs=0.15 * half)
    with pytest.raises(ValueError, match="inversion"):
        confidence_interval(mean_score, true, score, sensitive_features=group, method="inversion")


def test_weights():
    """Constant ones change nothing; unequal ones make the interval longer."""
    true, score, group = sample()
    metric = metrics.demographic_parity_difference
    given = {"sensitive_features": group, "random_state": 0}
    plain = confidence_interval(metric, true, score > 0, **given)
    same = confidence_interval(metric, true, score > 0, sample_weight=np.full(1500, 2.0), **given)
    assert same == pytest.approx(plain, abs=1e-9)
    uneven = np.random.default_rng(0).exponential(size=1500)
    ends = confidence_interval(metric, true, score > 0, sample_weight=uneven, **given)
    assert ends[1] - ends[0] > 1.15 * (plain[1] - plain[0])


def test_nan_stays_nan():
    """A group without positives has no true positive rate."""
    y_true, y_pred, group = [0, 0, 1, 0], [0, 1, 1, 0], list("aabb")
    with pytest.warns(SmallGroupWarning, match="group a"):
        ends = confidence_interval(
            metrics.equal_opportunity_difference, y_true, y_pred, sensitive_features=group
        )
    assert np.isnan(ends).all()


@pytest.mark.parametrize(
    ("options", "match"), [({"confidence": 2}, "confidence"), ({"method": "best"}, "method")]
)
def test_wrong_parameters(options, match):
    with pytest.raises(ValueError, match=match):
        confidence_interval(
            metrics.error_rate_difference, [0, 1], [0, 1], sensitive_features=[0, 1], **options
        )


def test_bootstrap_ignores_warnings_of_single_draws():
    y_true, y_pred, group = [0, 1] * 3 + [1], [0, 1, 1, 1, 0, 1, 0], list("aaabbbb")
    given = {"sensitive_features": group, "method": "bootstrap", "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        confidence_interval(metrics.equal_opportunity_difference, y_true, y_pred, **given)
