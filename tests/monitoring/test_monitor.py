"""A monitor says what its rows say, in calls of any size, and refuses the unreadable."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.dummy import DummyClassifier

from fairconstrained import metrics
from fairconstrained.constraints import DemographicParity, FalseNegativeRate
from fairconstrained.exceptions import MissingSensitiveFeaturesWarning, SmallGroupWarning
from fairconstrained.groups import GroupProbabilities
from fairconstrained.monitoring import FairnessMonitor
from tests.helpers.fits import CAPS, METRIC_OF


def stream(n, gap=0.2, n_groups=2, seed=0):
    rng = np.random.default_rng(seed)
    group = rng.integers(n_groups, size=n)
    y = rng.integers(2, size=n)
    return (rng.random(n) < 0.3 + gap * (group == n_groups - 1)).astype(int), group, y


SAME = {"error_rate_parity", "predictive_parity", "false_omission_rate_parity"}


@pytest.mark.parametrize("name", sorted(set(METRIC_OF) - {"loss_parity"}))
def test_it_measures_as_the_metrics_do_and_alarms_at_a_large_violation(name):
    """Labels are independent of the decisions, and so are errors and precision of the groups."""
    decisions, group, y = stream(4000, n_groups=3)
    groups = {} if name in CAPS else {"sensitive_features": group}
    monitor = FairnessMonitor(name, slack=0.02).update(decisions, y_true=y, **groups)
    assert monitor.estimate_ == pytest.approx(METRIC_OF[name](y, decisions, **groups))
    low, high = monitor.interval_
    assert low <= monitor.estimate_ <= high
    assert monitor.alarm_ == (name not in SAME)
    assert monitor.alarm_ == (monitor.evidence_ >= 20)
    assert all(rate["low"] <= rate["rate"] <= rate["high"] for rate in monitor.rates_)


def test_caps_of_groups_and_ratios():
    decisions, group, y = stream(3000)
    worst = FairnessMonitor(FalseNegativeRate(max=0.6, per_group=True))
    worst.update(decisions, sensitive_features=group, y_true=y)
    assert worst.limit_ == 0.6
    assert worst.estimate_ == metrics.false_negative_rate(y, decisions, sensitive_features=group)
    assert worst.alarm_
    ratio = FairnessMonitor(DemographicParity(ratio=0.8))
    ratio.update(decisions, sensitive_features=group)
    assert ratio.limit_ == pytest.approx(0.2)
    smallest = metrics.demographic_parity_ratio(y, decisions, sensitive_features=group)
    assert ratio.estimate_ == pytest.approx(1 - smallest)
    assert 0.2 < ratio.interval_[0] <= ratio.estimate_ <= ratio.interval_[1]
    assert ratio.alarm_
    # The only hit is that of a group with too few rows to be compared.
    few = FairnessMonitor(DemographicParity(ratio=0.8))
    few.update(np.arange(900) == 450, sensitive_features=np.repeat([0, 2, 1], [450, 1, 449]))
    assert np.isnan(few.estimate_)
    assert few.left_out_[1].endswith("(rates of zero have no ratio)")


def test_a_restart_and_other_types_make_no_difference():
    """The same chunks, through a pickle, as strings, as tables: the same evidence."""
    decisions, group, _ = stream(900)
    first, second = FairnessMonitor(), FairnessMonitor(pos_label="yes")
    for start in range(0, 900, 90):
        rows = slice(start, start + 90)
        first.update(decisions[rows], sensitive_features=group[rows])
        words = pd.Series(np.where(decisions[rows] == 1, "yes", "no"))
        second.update(words, sensitive_features=pd.DataFrame({"sex": group[rows].astype(str)}))
        second = pickle.loads(pickle.dumps(second))
    assert first.evidence_ == second.evidence_
    assert first.interval_ == second.interval_
    assert first.alarm_at_ == second.alarm_at_
    assert len(pickle.dumps(second)) < 80_000


def test_before_any_row_nothing_is_known():
    fresh = clone(FairnessMonitor().update([0, 1], sensitive_features=[0, 1]))
    assert not fresh.alarm_
    assert fresh.evidence_ == 1.0
    assert fresh.interval_ == (0.0, 1.0)
    assert np.isnan(fresh.estimate_)
    assert fresh.rates_ == []


@pytest.mark.parametrize("name", ["demographic_parity", "equalized_odds"])
def test_the_order_of_calls_does_not_matter_to_bounds(name):
    """Rows of a call are compared with each other, so that calls may come in any order."""
    decisions, group, y = stream(600, n_groups=3)
    monitors = [FairnessMonitor(name) for _ in range(2)]
    for monitor, step in zip(monitors, (1, -1), strict=True):
        for start in range(0, 600, 60)[::step]:
            rows = slice(start, start + 60)
            monitor.update(decisions[rows], y_true=y[rows], sensitive_features=group[rows])
    assert monitors[0].interval_ == pytest.approx(monitors[1].interval_, abs=0.01)
    assert monitors[0].estimate_ == pytest.approx(monitors[1].estimate_)


@pytest.mark.parametrize("name", ["demographic_parity", "equalized_odds", "false_negative_rate"])
def test_small_calls_make_no_difference(name):
    """Rows are compared within the same windows, one by one or by threes."""
    decisions, group, y = stream(201, n_groups=3)
    monitors = [FairnessMonitor(name) for _ in range(3)]
    for monitor, size in zip(monitors, (1, 2, 3), strict=True):
        for start in range(0, 201, size):
            rows = slice(start, start + size)
            groups = {} if name in CAPS else {"sensitive_features": group[rows]}
            monitor.update(decisions[rows], y_true=y[rows], **groups)
    for monitor in monitors[1:]:
        assert monitor.evidence_ == pytest.approx(monitors[0].evidence_, rel=1e-9)
        assert monitor.interval_ == monitors[0].interval_
        assert sorted(map(str, monitor.rates_)) == sorted(map(str, monitors[0].rates_))


@pytest.mark.parametrize("size", [5, 20, 100])
def test_both_groups_may_change_from_call_to_call(size):
    """Equal rates and the composition jump with every second call: no evidence."""
    for seed in range(3):
        rng, monitor = np.random.default_rng(seed), FairnessMonitor()
        for call in range(min(6000 // size, 300)):
            group = rng.random(size) < (0.1, 0.5)[call % 2]
            granted = rng.random(size) < (0.2, 0.7)[call % 2]
            monitor.update(granted, sensitive_features=group)
        assert monitor.evidence_ < 2
        assert monitor.interval_[0] == 0.0


def test_a_chunk_sorted_by_group_is_compared_all_the_same():
    decisions, group, _ = stream(1000)
    order = np.argsort(group, kind="stable")
    watch = FairnessMonitor().update(decisions[order], sensitive_features=group[order])
    assert watch.alarm_
    low, high = watch.interval_
    assert low <= watch.estimate_ <= high


def test_calls_sorted_by_decision_and_group_raise_no_alarm():
    """Otherwise those with one decision end with one group, and the next begin with the other."""
    rng, monitor = np.random.default_rng(0), FairnessMonitor("equalized_odds")
    for _ in range(60):
        rows = rng.integers(2, size=(3, 100))
        y, decisions, group = rows[:, np.lexsort(rows[::-1])]
        monitor.update(decisions, sensitive_features=group, y_true=y)
    assert monitor.evidence_ < 2


@pytest.mark.parametrize("share", [0.02, 0.15, 0.5])
@pytest.mark.parametrize("chunk", [100, 1000])
def test_rates_that_all_groups_share_may_move(share, chunk):
    """From .3 to .7, the small group's share from .02 to .5 or to nearly all: no evidence."""
    for seed in range(5):
        rng, monitor = np.random.default_rng(seed), FairnessMonitor()
        for start in range(0, 6000, chunk):
            late = np.arange(start, start + chunk) >= 3000
            group = rng.random(chunk) < np.where(late, 1 - share, share)
            granted = rng.random(chunk) < np.where(late, 0.7, 0.3)
            monitor.update(granted, sensitive_features=group)
        assert monitor.evidence_ < 2
        assert monitor.interval_[0] == 0.0


def test_small_groups_are_compared_at_the_same_time_too():
    """Beside a large one, under equal rates and shares that follow a season of 400 rows."""
    season, alarms = np.sin(2 * np.pi * np.arange(60_000) / 400), 0
    for seed in range(4):
        rng, monitor = np.random.default_rng(seed), FairnessMonitor()
        granted = rng.random(60_000) < 0.4 + 0.35 * season
        first = rng.random(60_000) < 0.5 + 0.45 * season
        group = np.where(rng.random(60_000) < 0.04, first, 2)
        for start in range(0, 60_000, 1000):
            rows = slice(start, start + 1000)
            monitor.update(granted[rows], sensitive_features=group[rows])
        alarms += monitor.alarm_
    assert not alarms


@pytest.mark.slow
@pytest.mark.parametrize("name", ["demographic_parity", "equalized_odds", "predictive_parity"])
def test_false_alarms_are_rare_under_seasons_of_everything(name):
    """Of 60 streams 5 % may ring: nine or more have a chance below 1e-3."""
    season, alarms = np.sin(2 * np.pi * np.arange(6000) / 700), 0
    for seed in range(60):
        rng, monitor = np.random.default_rng(seed), FairnessMonitor(name)
        group = rng.random(6000) < 0.2 + 0.15 * season
        y, decisions = (rng.random((2, 6000)) < 0.4 + 0.25 * season).astype(int)
        for start in range(0, 6000, 500):
            rows = slice(start, start + 500)
            monitor.update(decisions[rows], y_true=y[rows], sensitive_features=group[rows])
        alarms += monitor.alarm_
    assert alarms <= 8


def test_parts_merge():
    """As one monitor that has seen the windows of both, whose groups come in another order."""
    decisions, group, _ = stream(2001)
    whole, parts = FairnessMonitor(), [FairnessMonitor(), FairnessMonitor()]
    group[:2], group[1001:1003] = [0, 1], [1, 0]  # they begin each part
    batches = (slice(0, 1002),), (slice(1001, 1002), slice(1002, 2001))
    for part, slices in zip(parts, batches, strict=True):
        for rows in slices:
            part.update(decisions[rows], sensitive_features=group[rows])
    for rows in (slice(0, 1002), slice(1003, 2001)):
        whole.update(decisions[rows], sensitive_features=group[rows])
    merged = parts[0].merge(parts[1])
    assert merged.interval_ == whole.interval_
    assert merged.n_rows_ == whole.n_rows_ + 2
    assert np.log(merged.evidence_) == pytest.approx(np.log(whole.evidence_), abs=0.2)
    assert FairnessMonitor().merge(merged).interval_ == merged.interval_
    with pytest.raises(ValueError, match="same rule"):
        merged.merge(FairnessMonitor(slack=0.1))
    with pytest.raises(ValueError, match="another monitor, of other rows"):
        merged.merge(merged)


def test_late_labels_count_when_they_come():
    decisions, group, y = stream(2000)
    known = np.arange(2000) % 3 > 0
    later = ~known
    monitor = FairnessMonitor("equal_opportunity")
    now = np.where(known, y, np.nan)
    monitor.update(decisions, sensitive_features=group, y_true=now)
    assert (monitor.n_rows_, monitor.n_unlabelled_) == (known.sum(), later.sum())
    monitor.update(decisions[later], sensitive_features=group[later], y_true=y[later])
    assert monitor.n_rows_ == 2000
    gap = metrics.equal_opportunity_difference(y, decisions, sensitive_features=group)
    assert monitor.estimate_ == gap
    again = FairnessMonitor("equal_opportunity")
    again.update(decisions, sensitive_features=group, y_true=np.where(known, y, None))
    assert again.n_unlabelled_ == later.sum()


def test_groups_that_come_later_are_compared_at_a_smaller_stake():
    decisions, group, _ = stream(3000, gap=0.0)
    monitor = FairnessMonitor().update(decisions, sensitive_features=group)
    before = monitor.evidence_
    monitor.update(decisions[:200], sensitive_features=np.repeat([0, 1, 2], [1, 1, 198]))
    assert monitor.evidence_ == pytest.approx(before, abs=0.1)
    rng = np.random.default_rng(1)
    for _ in range(30):
        granted = rng.random(150) < np.repeat([0.3, 0.9], [100, 50])
        monitor.update(granted, sensitive_features=np.repeat([0, 1, 2], 50))
    assert monitor.alarm_


def test_groups_that_no_call_has_together_are_named_and_not_compared():
    monitor = FairnessMonitor().update(np.arange(100) % 2, sensitive_features=np.full(100, "a"))
    monitor.update(np.ones(99), sensitive_features=np.full(99, "b"))
    with pytest.warns(SmallGroupWarning, match=r"does not compare groups a and b \(in no call"):
        monitor.update([1], sensitive_features=["b"])
    assert monitor.left_out_ == ["groups a and b (in no call together)"]
    assert (monitor.evidence_, monitor.alarm_) == (1.0, False)
    monitor.update([0, 1, 1, 1], sensitive_features=["a", "a", "b", "b"])
    assert monitor.left_out_ == []


def test_rows_of_unknown_group_are_counted_and_left_out():
    decisions, group, _ = stream(400)
    named = np.where(np.arange(400) % 4 == 0, np.nan, group)
    monitor = FairnessMonitor().update(decisions, sensitive_features=named)
    assert (monitor.n_rows_, monitor.n_unknown_) == (300, 100)
    assert len(monitor.rates_) == 2
    assert "the group of 100 of 400 rows is missing" in monitor.assumptions_[-1]
    everybody = FairnessMonitor().update(decisions, sensitive_features=group)
    assert everybody.assumptions_ == monitor.assumptions_[:-1]
    with pytest.warns(MissingSensitiveFeaturesWarning, match="the group of 1 of 401 rows"):
        everybody.update([1], sensitive_features=[None])


def test_rates_are_named_by_the_labels_of_the_data():
    monitor = FairnessMonitor("equalized_odds", pos_label="yes")
    monitor.update(["yes"], y_true=["yes"], sensitive_features=["a"])
    assert monitor.left_out_[0] == "group a with label 'another label' (0 rows)"
    monitor.update(["no", "yes"], y_true=["no", "yes"], sensitive_features=["a", "b"])
    events = [rate["event"] for rate in monitor.rates_]
    assert set(events) == {"predicted 'yes' with label 'no'", "predicted 'yes' with label 'yes'"}
    assert monitor.left_out_[0] == "group a with label 'no' (1 row, nothing to compare it with)"


def test_a_model_in_a_loop():
    _, group, y = stream(300)
    model = DummyClassifier(strategy="constant", constant=1).fit(y[:, None], y)
    monitor = FairnessMonitor("equal_opportunity")
    assert monitor(model, y[:, None], y, sensitive_features=group) == -monitor.evidence_
    assert monitor.estimate_ == 0.0


@pytest.mark.parametrize(
    ("parameters", "change", "match"),
    [
        ({"constraint": "fairness"}, {}, "constraint must be one of"),
        ({"slack": 1.0}, {}, "slack must be a number >= 0 and < 1"),
        ({"constraint": DemographicParity(attributes="parallel")}, {}, "crossed groups"),
        ({"slack": True}, {}, "slack"),
        ({"constraint": FalseNegativeRate(max={"a": 0.2}, per_group=True)}, {}, "got {'a': 0.2}"),
        ({"confidence": 95}, {}, "confidence"),
        ({"constraint": "equalized_odds"}, {}, "y_true must hold the true labels"),
        ({}, {"y_pred": ["a", "b"]}, r"pos_label must say which of the labels \['a', 'b'\]"),
        ({"pos_label": "a"}, {"y_pred": ["b", "c"]}, "y_pred must hold two labels, of which 'a'"),
        ({}, {"y_pred": [0, np.nan]}, "y_pred has missing values"),
        ({}, {"y_pred": [{}, {}]}, "y_pred must hold values .* got values of type dict"),
        ({}, {"y_pred": [[0, 1], [1, 0]]}, "y_pred must have one label per row"),
        ({}, {"sensitive_features": None}, "sensitive_features must hold one group per row"),
        ({"constraint": "rejection_rate"}, {"sensitive_features": "sex"}, "the single text 'sex'"),
    ],
)
def test_wrong_input_is_refused_and_nothing_is_added(parameters, change, match):
    monitor = FairnessMonitor(**parameters)
    with pytest.raises(ValueError, match=match):
        monitor.update(**{"y_pred": [0, 1], "sensitive_features": ["a", "b"], **change})
    assert monitor.n_rows_ == 0
    if not parameters:
        assert monitor.update([0, 1], sensitive_features=["a", "b"]).n_rows_ == 2


def test_a_cap_on_all_rows_together_does_not_depend_on_groups():
    """As in fits, they may be known with a probability."""
    probabilities = GroupProbabilities([[0.2, 0.8], [1.0, 0.0]])
    for groups in (None, ["a", None], probabilities):
        monitor = FairnessMonitor("rejection_rate").update([0, 1], sensitive_features=groups)
        assert (monitor.n_rows_, monitor.estimate_) == (2, 0.5)


def test_too_many_groups_are_refused():
    with pytest.raises(ValueError, match="at most 64 groups; got 65"):
        FairnessMonitor().update(np.zeros(65, dtype=int), sensitive_features=np.arange(65))
    halves = range(40), range(40, 80)
    parts = [FairnessMonitor().update([0] * 40, sensitive_features=half) for half in halves]
    with pytest.raises(ValueError, match="at most 64 groups; got 80"):
        parts[0].merge(parts[1])
    assert len(parts[0].groups_) == parts[0].n_rows_ == 40


def test_the_history_stays_short():
    decisions, group, _ = stream(15_000)
    monitor = FairnessMonitor(slack=0.1)
    for start in range(0, 15_000, 50):
        monitor.update(decisions[start : start + 50], sensitive_features=group[start : start + 50])
    rows = monitor.history_["rows"]
    assert 100 <= len(rows) <= 200
    assert rows == sorted(rows)
    assert {len(values) for values in monitor.history_.values()} == {len(rows)}
