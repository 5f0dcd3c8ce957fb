"""The monitoring benchmark counts what a monitor sees row by row, and false alarms are rare."""

import numpy as np
import pytest

from benchmarks.monitoring import Setting, alarms_at, evidence, newton_steps
from fairconstrained.monitoring import FairnessMonitor


def test_evidence_is_that_of_a_monitor_after_every_row():
    setting = Setting("twice", 0.05, 0.3, 0.2, 0.4)
    outcomes, second = setting.streams(np.random.default_rng(0), 300, 2)
    found = evidence(outcomes, second, setting.slack)
    monitor = FairnessMonitor(slack=setting.slack)
    for row in range(300):
        monitor.update(outcomes[row : row + 1, 1], sensitive_features=second[row : row + 1])
        assert monitor.evidence_ == pytest.approx(found[row, 1], rel=1e-9)


@pytest.mark.slow
def test_alarms_at_the_slack_are_rare_and_at_twice_the_slack_early():
    """100 streams: more than 13 false alarms have a chance below 1e-3 if 5 % are false."""
    rng = np.random.default_rng(0)
    null = Setting("slack", 0.05, 0.3, 0.05, 0.5)
    assert np.isfinite(alarms_at(*null.streams(rng, 4_000, 100), 0.05)).sum() <= 13
    setting = Setting("twice", 0.05, 0.3, 0.1, 0.5)
    delays = alarms_at(*setting.streams(rng, 6_000, 100), 0.05)
    assert np.median(delays) <= 1.5 * setting.fixed_rows(0.8)


def test_newton_steps_follow_the_published_rule():
    """Differences of one from the second pair on: bets are 0, then 1/2, and wealth 1.5^t."""
    ones, zeros = np.ones(20), np.zeros(20)
    assert newton_steps(ones, zeros, 0.05) == 1 + int(np.ceil(np.log(20) / np.log(1.5)))
    assert newton_steps(zeros, ones, 0.05) == newton_steps(ones, zeros, 0.05)
    assert newton_steps(ones, ones, 0.05) is None
