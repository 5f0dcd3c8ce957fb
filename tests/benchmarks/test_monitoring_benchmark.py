"""The monitoring benchmark counts what a monitor sees row by row, and false alarms are rare."""

import numpy as np
import pytest

from benchmarks.monitoring import MOVES, Setting, alarm_at, drifting, evidence, newton_steps
from fairconstrained.monitoring import FairnessMonitor


def test_evidence_is_that_of_a_monitor_after_every_row():
    setting = Setting("twice", 0.05, 0.3, 0.2, 0.4)
    outcomes, second = setting.stream(np.random.default_rng(0), 300)
    at_once = evidence(outcomes, second, setting.slack)
    monitor = FairnessMonitor(slack=setting.slack)
    for row in range(300):
        monitor.update(outcomes[row : row + 1], sensitive_features=second[row : row + 1])
        assert monitor.evidence_ == pytest.approx(at_once[row], rel=1e-9)


@pytest.mark.slow
def test_alarms_at_the_slack_are_rare_and_at_twice_the_slack_early():
    """100 streams: more than 13 false alarms have a chance below 1e-3 if 5 % are false.

    The half of 200 that ring first does so within 1.5 times the rows of a fixed sample.
    """
    rng = np.random.default_rng(0)
    null = Setting("slack", 0.05, 0.3, 0.05, 0.5)
    assert sum(np.isfinite(alarm_at(*null.stream(rng, 4_000), 0.05)) for _ in range(100)) <= 13
    setting = Setting("twice", 0.05, 0.3, 0.1, 0.5)
    delays = [alarm_at(*setting.stream(rng, 8_000), 0.05) for _ in range(200)]
    assert np.median(delays) <= 1.5 * setting.fixed_rows(0.8)


@pytest.mark.slow
@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("share", [0.02, 0.15, 0.5])
def test_alarms_are_rare_whatever_moves(move, share):
    """The gap is the slack at every row; 14 or more of 100 have a chance below 1e-3."""
    rng = np.random.default_rng(0)
    streams = (drifting(rng, move, 0.05, share) for _ in range(100))
    alarms = [alarm_at(decisions, second, 0.05) for decisions, _, second in streams]
    assert np.isfinite(alarms).sum() <= 13


def test_newton_steps_follow_the_published_rule():
    """Differences of one from the second pair on: bets are 0, then 1/2, and wealth 1.5^t."""
    ones, zeros = np.ones(20), np.zeros(20)
    assert newton_steps(ones, zeros, 0.05) == 1 + int(np.ceil(np.log(20) / np.log(1.5)))
    assert newton_steps(zeros, ones, 0.05) == newton_steps(ones, zeros, 0.05)
    assert newton_steps(ones, ones, 0.05) is None
